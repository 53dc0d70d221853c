"""``kvtwin explain``: the events that led to a violation, told in the order in which they happened."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from model.invariants import INVARIANTS
from reports import terminal
from reports.document import dump
from reports.events import Event
from reports.run_folder import EVENTS, RESULT, VIOLATIONS, read_json
from reports.sentences import published, sentence, verify_steps
from scenarios.errors import InputError

LINES_SHOWN = 60
_PAGE_FIELDS = ("slot", "source", "target", "page")
_ROUTINE = ("step", "settle")  # told as one line while they repeat


@dataclass(frozen=True, slots=True)
class Story:
    """One violation with what led to it: ``events`` as they stand in the log, ``lines`` as people read them."""

    run: str
    number: int
    violation: dict[str, Any]
    law: str
    events: list[Event]
    lines: list[str]


def tell(folder: Path, wanted: str) -> Story:
    """The story of one violation of the run in ``folder``: ``wanted`` is its number from 1, or a law's code.

    Raises :class:`InputError` for a folder without a run or without its events, and for a violation that is not there.
    """
    result = read_json(folder, RESULT)
    violations = read_json(folder, VIOLATIONS)
    number = _number(folder, violations, wanted)
    violation = violations[number - 1]
    events = relevant(_read_events(folder), violation)
    name = f"{result['scenario']} on {result['build']}"
    return Story(
        name, number, violation, INVARIANTS[violation["code"]].sentence, events, list(_lines(events, violation))
    )


def show(story: Story, json_wanted: bool) -> None:
    """Print the story."""
    if json_wanted:
        document = {
            "name": f"{story.violation['code']} {story.number}",
            "run": story.run,
            "number": story.number,
            "violation": story.violation,
            "law": story.law,
            "events": story.events,
            "story": story.lines,
        }
        sys.stdout.write(dump(document))
        return
    out = terminal.console()
    out.print(f"Violation {story.number} of {story.run}: {headline(story.violation)}", style="bold", soft_wrap=True)
    out.print(f"The law {story.violation['code']}: {story.law}", soft_wrap=True)
    out.print()
    out.print(f"{'iteration':>9}  {'request':>7}  what happened", style="bold")
    hidden = max(0, len(story.lines) - LINES_SHOWN)
    head = story.lines[: LINES_SHOWN // 3] if hidden else story.lines
    tail = story.lines[-(LINES_SHOWN - len(head)) :] if hidden else []
    for line in head:
        out.print(line, soft_wrap=True, markup=False)
    if hidden:
        out.print(f"{'':>9}  {'':>7}  … {hidden:,} lines; --json has them all", style="dim")
    for line in tail:
        out.print(line, soft_wrap=True, markup=False)
    out.print(
        _line(story.violation["step"], story.violation["request"], headline(story.violation)),
        style="bold red",
        soft_wrap=True,
    )


def headline(violation: dict[str, Any]) -> str:
    """The violation in one sentence."""
    places = [f"request {violation['request']}"] if violation["request"] is not None else []
    places += [f"pool {violation['pool']}"] if violation["pool"] else []
    places += [f"{key} {violation[key]}" for key in ("page", "position", "step") if violation[key] is not None]
    where = f" ({', '.join(places)})" if places else ""
    against = f"expected {violation['expected']}, found {violation['found']}"
    return f"{violation['code']} broke{where}: {violation['message']}; {against}"


def relevant(events: Iterable[Event], violation: dict[str, Any]) -> list[Event]:
    """Decisions up to the violation about its request, or about the last two tenancies of its page."""
    request, page, pool, last = (violation[key] for key in ("request", "page", "pool", "step"))
    owners: dict[int, int] = {}
    found: list[Event] = []
    grants: list[int] = []  # places in found where the page starts a new tenancy
    for event in events:
        if last is not None and event["iteration"] > last:
            break
        if event["event"].startswith("mem_"):
            continue
        if event["event"] == "claim":
            owners[event["owner"]] = event["request"]
        if "owner" in event and "request" not in event and event["owner"] in owners:
            event = {**event, "request": owners[event["owner"]]}
        of_page = page is not None and event.get("pool") == pool and _touches(event, page)
        if of_page or (request is not None and event.get("request") == request):
            if of_page and event["event"] == "grant":
                grants.append(len(found))
            found.append(event)
    start = grants[-2] if len(grants) > 1 else 0
    return [event for place, event in enumerate(found) if place >= start or event.get("request") == request]


def _touches(event: Event, page: int) -> bool:
    return page in event.get("slots", ()) or any(event.get(key) == page for key in _PAGE_FIELDS)


def _lines(events: list[Event], violation: dict[str, Any]) -> Iterator[str]:
    """A line an event; verify steps of one request in a row, and pages published at once, are one line."""
    for _, group in groupby(events, key=_sort_of):
        alike = list(group)
        first, summary = alike[0], None
        if first["event"] in _ROUTINE and len(alike) > 2:
            summary = verify_steps(alike)
        elif first["event"] == "publish" and len(alike) > 1:
            summary = published(alike)
        if summary is not None:
            yield _line(first["iteration"], first.get("request"), summary)
            continue
        for event in alike:
            if text := sentence(event, violation):
                yield _line(event["iteration"], event.get("request"), text)


def _sort_of(event: Event) -> tuple[Any, ...]:
    """Events in a row that are alike in this are told as one."""
    if event["event"] in _ROUTINE:
        return (_ROUTINE, event["request"])
    if event["event"] == "publish":
        return ("publish", event["iteration"], event.get("request"), event["pool"])
    return (id(event),)


def _line(iteration: int | None, request: int | None, text: str) -> str:
    return f"{'' if iteration is None else iteration:>9}  {'' if request is None else request:>7}  {text}"


def _number(folder: Path, violations: list[dict[str, Any]], wanted: str) -> int:
    if not violations:
        raise InputError(str(folder), 0, "", "expected a run with a violation, found one without")
    if wanted.isdigit() and 1 <= int(wanted) <= len(violations):
        return int(wanted)
    for number, violation in enumerate(violations, 1):
        if violation["code"] == wanted.upper():
            return number
    codes = ", ".join(sorted({violation["code"] for violation in violations}))
    raise InputError(
        str(folder), 0, "", f"expected a violation from 1 to {len(violations)} or one of {codes}, found {wanted!r}"
    )


def _read_events(folder: Path) -> Iterator[Event]:
    path = folder / EVENTS
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)
    except FileNotFoundError as error:
        raise InputError(
            str(folder), 0, "", f"expected {EVENTS}, found none: the run was made with --no-events"
        ) from error
    except ValueError as error:
        raise InputError(str(path), 0, "", f"expected JSON lines, found: {error}") from error
