"""``kvtwin explain``: the events that led to a violation, told in the order in which they happened."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from model.invariants import INVARIANTS
from reports import terminal
from reports.document import dump, plural
from reports.events import Event
from reports.run_folder import EVENTS, RESULT, VIOLATIONS, read_json
from reports.sentences import decoding, granted, published, sentence
from scenarios.errors import InputError
from sim.crashes import CRASH

LINES_SHOWN = 60
_PAGE_FIELDS = ("slot", "source", "target", "page")
_ROUTINE = ("step", "settle", "grant", "publish")  # told as one line while a request generates
# No count depends on which pages a request had, or on how often it waited.
_UNCOUNTED = ("grant", "publish", "bind", "unbind", "copy", "move", "evict", "suspend", "refuse", "defer", "skip")


@dataclass(frozen=True, slots=True)
class Story:
    """One violation with what led to it: ``events`` as they stand in the log, ``lines`` as people read them."""

    run: str
    number: int
    violation: dict[str, Any]
    law: str
    events: list[Event]
    lines: list[str]
    headline: str


def tell(folder: Path, wanted: str) -> Story:
    """The story of one violation of the run in ``folder``: ``wanted`` is its number from 1, or a law's code.

    Raises :class:`InputError` for a folder without a run or without its events, and for a violation that is not there.
    """
    result = read_json(folder, RESULT)
    violations = read_json(folder, VIOLATIONS)
    number = _number(folder, violations, wanted)
    violation = violations[number - 1]
    selection = Selection(violation)
    events = selection.of(read_events(folder))
    return Story(
        run=f"{result['scenario']} on {result['build']}",
        number=number,
        violation=violation,
        law=law_of(violation["code"]),
        events=events,
        lines=list(lines_of(events, violation)),
        headline=headline(violation, selection.owners),
    )


def law_of(code: str) -> str:
    """The sentence of a law; a crash is none of the model's own."""
    return "The model and its rules come to an end." if code == CRASH else INVARIANTS[code].sentence


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
    out.print(f"Violation {story.number} of {story.run}: {story.headline}", style="bold", soft_wrap=True)
    out.print(f"The law {story.violation['code']}: {story.law}", soft_wrap=True)
    out.print()
    out.print(f"{'iteration':>9}  {'request':>7}  what happened", style="bold")
    hidden = max(0, len(story.lines) - LINES_SHOWN)
    head = story.lines[: LINES_SHOWN // 3] if hidden else story.lines
    tail = story.lines[-(LINES_SHOWN - len(head)) :] if hidden else []
    for line in head:
        out.print(line, soft_wrap=True, markup=False)
    if hidden:
        out.print(f"{'':>9}  {'':>7}  … {plural(hidden, 'line')}; --json has them all", style="dim")
    for line in tail:
        out.print(line, soft_wrap=True, markup=False)
    out.print(
        _line(story.violation["step"], story.violation["request"], story.headline),
        style="bold red",
        soft_wrap=True,
    )


def headline(violation: dict[str, Any], owners: dict[int, int] | None = None) -> str:
    """The violation in one sentence; ``owners`` says whose request an owner is."""
    places = [f"worker {violation['worker']}"] if violation.get("worker") is not None else []
    places += [f"request {violation['request']}"] if violation["request"] is not None else []
    places += [f"pool {violation['pool']}"] if violation["pool"] else []
    places += [f"{key} {violation[key]}" for key in ("page", "position", "step") if violation[key] is not None]
    where = f" ({', '.join(places)})" if places else ""
    against = f"expected {violation['expected']}, found {violation['found']}"
    if owners:
        against = re.sub(r"owner (\d+)", lambda match: _named(match, owners), against)
    if not (violation["expected"] or violation["found"]):
        return f"{violation['code']} broke{where}: {violation['message']}"
    return f"{violation['code']} broke{where}: {violation['message']}; {against}"


def _named(match: re.Match[str], owners: dict[int, int]) -> str:
    owner = int(match[1])
    return f"{match[0]} (request {owners[owner]})" if owner in owners else match[0]


class Selection:
    """Decisions up to a violation about its request, or about the last two tenancies of its page.

    Passes that did not run belong to every request; a violation of a whole step concerns all that its pass schedules.
    """

    def __init__(self, violation: dict[str, Any]) -> None:
        self.violation = violation
        self.owners: dict[int, int] = {}  # owner -> request
        self.found: list[Event] = []
        self._grants: list[int] = []  # places in found where the page starts a new tenancy
        row_slot = re.search(r"row slot (\d+)", violation["message"])
        self._row_slot = int(row_slot[1]) if row_slot else None
        epoch = re.search(r"owner (\d+)", violation["expected"]) if violation["code"] == "STATE" else None
        self._epoch = int(epoch[1]) if epoch else None
        self._holds_draft = violation["found"] in ("provisional", "masked")
        self._width = 0
        self._left: Event | None = None

    def of(self, events: Iterable[Event]) -> list[Event]:
        """Choose from a log, in its order."""
        request, last = self.violation["request"], self.violation["step"]
        for event in events:
            if "worker" in event and self.violation.get("worker") not in (None, event["worker"]):
                continue  # of another worker; a violation between workers concerns the events of all
            late = last is not None and event["iteration"] > last
            # A result may settle after its request began again: how that came about is told as well.
            if late and (self._epoch is None or self._epoch in self.owners):
                break
            event = self._owned(event)
            if late:
                if event.get("request") == request and event["event"] == "preempt":
                    self.found.append(event)
            elif event["event"].startswith("mem_"):
                self._remember(event)
            elif self._concerns(event):
                self.found.append(event)
        start = self._grants[-2] if len(self._grants) > 1 else 0
        chosen = [
            event
            for place, event in enumerate(self.found)
            if place >= start or (request is not None and event.get("request") == request)
        ]
        return [*chosen, self._left] if self._left is not None else chosen

    def _owned(self, event: Event) -> Event:
        """``event`` with the request that its owner is; a request that is admitted again ends its last preemption."""
        if event["event"] == "claim":
            self.owners[event["owner"]] = event["request"]
            for place in range(len(self.found) - 1, -1, -1):
                before = self.found[place]
                if before["event"] == "preempt" and before["request"] == event["request"] and "becomes" not in before:
                    self.found[place] = {**before, "becomes": event["owner"], "again": event["iteration"]}
        if "owner" in event and "request" not in event and event["owner"] in self.owners:
            return {**event, "request": self.owners[event["owner"]]}
        return event

    def _concerns(self, event: Event) -> bool:
        violation, kind = self.violation, event["event"]
        request, page = violation["request"], violation["page"]
        mine = request is not None and event.get("request") == request
        if mine and kind == "step":
            self._width = event["width"]
        if page is not None and event.get("pool") == violation["pool"] and touches(event, page):
            if kind == "grant":
                self._grants.append(len(self.found))
            return True
        if mine:
            return True
        if kind == "skip" or (kind in ("bind", "unbind") and event["slot"] == self._row_slot):
            return bool(self.found)
        if "dummy" in violation["message"] and kind in ("dummy", "skip"):
            return True
        whole = request is None and page is None and event["iteration"] == violation["step"]
        return whole and kind in ("claim", "iteration", "chunk", "step", "dummy", "padding")

    def _remember(self, event: Event) -> None:
        """Keep the last step of the request that wrote the position of a cell without content."""
        if not self._holds_draft or event["event"] != "mem_step" or event.get("request") != self.violation["request"]:
            return
        drafter = "draft" in self.violation["pool"]
        end = event["draft_length" if drafter else "position"]
        begin = end - event["committed"]
        if begin <= self.violation["position"] < end + self._width:
            self._left = {**event, "drafter": drafter}


def touches(event: Event, page: int) -> bool:
    """Whether ``event``, of the pool of ``page``, is about it."""
    pages = event.get("page")
    if page in event.get("slots", ()) or (isinstance(pages, list) and page in pages):
        return True
    return any(event.get(key) == page for key in _PAGE_FIELDS)


def lines_of(events: list[Event], violation: dict[str, Any]) -> Iterator[str]:
    """A line an event, but one for what repeats: verify steps, grants and publications of one pass, refusals."""
    if violation["code"] == "METRIC":
        events = [event for event in events if event["event"] not in _UNCOUNTED]
    told: list[tuple[Event, str]] = []
    for key, group in groupby(events, key=Sorting(violation)):
        alike = list(group)
        if key[0] == "decoding" and any(event["event"] == "step" for event in alike):
            told.append((alike[0], decoding(alike)))
        elif key[0] == "grant":
            told.append((alike[0], granted(alike, violation)))
        elif key[0] == "publish":
            told.append((alike[0], published(alike, violation)))
        else:
            told += [(event, sentence(event, violation)) for event in alike]
    if violation.get("worker") is None:  # several workers are told of: each line says whose it is
        told = [(event, f"{_worker(event)}{text}" if text else "") for event, text in told]
    same = groupby(told, key=lambda entry: (entry[0].get("request"), entry[1]))
    for (request, text), group in same:
        entries = [event for event, _ in group]
        first, last = entries[0]["iteration"], entries[-1]["iteration"]
        if len(entries) > 1:
            text += f" ({len(entries)} times{f' up to iteration {last}' if last > first else ''})"
        if entries[0]["event"] == "skip":
            request = None
        if text.split(" (")[0]:
            yield _line(first, request, text)
    yield from _closing(events, violation)


def _worker(event: Event) -> str:
    return f"worker {event['worker']}: " if "worker" in event else ""


class Sorting:
    """Key of an event: events in a row with one key are told as one."""

    def __init__(self, violation: dict[str, Any]) -> None:
        self.violation = violation
        self._generating: set[int | None] = set()
        self._last: tuple[Any, ...] = ()

    def __call__(self, event: Event) -> tuple[Any, ...]:
        """Called once for each event, in their order."""
        self._last = self._key(event)
        return self._last

    def _key(self, event: Event) -> tuple[Any, ...]:
        kind, request, violation = event["event"], event.get("request"), self.violation
        if kind == "chunk" and event["last"]:
            self._generating.add(request)
        elif kind in ("preempt", "claim"):
            self._generating.discard(request)
        here = violation["step"] is not None and event["iteration"] >= violation["step"]
        page = violation["page"]
        if page is not None and event.get("pool") == violation["pool"] and touches(event, page):
            here = True
        if not here and kind in _ROUTINE and request in self._generating:
            return ("decoding", request)
        if not here and kind == "skip" and violation["code"] != "ROLLBACK" and self._last[:1] == ("decoding",):
            return self._last
        if kind in ("grant", "publish"):
            return (kind, event["iteration"], event.get("owner"), event.get("worker"))
        return ("event", id(event))


def _closing(events: list[Event], violation: dict[str, Any]) -> Iterator[str]:
    """What no single event says: that nothing was scheduled, which count differs, which result came late."""
    request, step, code = violation["request"], violation["step"], violation["code"]
    if code == "PROGRESS" and request is not None:
        ran = [event["iteration"] for event in events if event["event"] in ("chunk", "step")]
        since = f"after iteration {ran[-1]}" if ran else "at all"
        stands = re.search(r"it stands at .*", violation["expected"])
        told = f"{stands[0]}, and " if stands else ""
        yield _line(step, request, f"{told}no pass schedules a chunk or a step of it {since}")
    elif code == "METRIC":
        expected, found = (_counts(violation[key]) for key in ("expected", "found"))
        wrong = [f"{name}: {expected[name]} happened, {found.get(name)} reported" for name in expected]
        wrong = [text for text, name in zip(wrong, expected, strict=True) if expected[name] != found.get(name)]
        claims = [event["tokens"] for event in events if event["event"] == "claim"]
        if len(claims) > 1:
            wrong.append(f"claimed at the admissions: {', '.join(map(str, claims))}, only the first is a hit")
        if wrong:
            yield _line(step, request, f"the counts differ in {'; '.join(wrong)}")
    elif code == "STATE" and any(event["iteration"] > step for event in events):
        yield _line(None, request, f"iteration {step} was dispatched before that, and its result settles after it")
    elif code == "STATE" and violation["message"].startswith("row slot"):
        moves = [event for event in events if event.get("request") == request and event["event"] in ("bind", "suspend")]
        if moves and moves[-1]["event"] == "suspend":
            since = moves[-1]["iteration"]
            yield _line(step, request, f"it goes on in its old row, and is not bound to one since iteration {since}")


def _counts(text: str) -> dict[str, str]:
    """``prefilled 62, output 24`` by name."""
    return {name: value for name, _, value in (part.rpartition(" ") for part in text.split(", "))}


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


def read_events(folder: Path) -> Iterator[Event]:
    """The event log in the folder of a run."""
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
