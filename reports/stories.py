"""The stories of many violations of one run, from one pass over its events.

Each is the one that ``kvtwin explain`` tells. A violation is about a request, a page and a step: for each of those
that a violation names, the places of the events about it are kept, and only these are looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from reports.document import violation_document
from reports.events import Event, events_of
from reports.story import Selection, headline, law_of, lines_of
from sim.result import RunResult

_OF_A_STEP = ("claim", "iteration", "chunk", "step", "dummy", "padding")
_OF_ALL = ("claim", "skip", "dummy", "padding", "bind", "unbind")
_PAGE_FIELDS = ("slot", "source", "target")


@dataclass(frozen=True, slots=True)
class Told:
    """A violation by its number from 1 in its run; ``lines`` led to it, ``headline`` is what broke."""

    number: int
    code: str
    law: str
    headline: str
    lines: list[str]


def stories_of(result: RunResult, most: int) -> list[Told]:
    """The stories of the first ``most`` violations of a run that kept its events; none without them."""
    if not (result.violations and result.logs and result.logs[0].decisions.keep):
        return []
    pools = dict.fromkeys(pool.name.partition("@")[0] for pool in result.occupancy)
    documents = [violation_document(violation) for violation in result.violations]
    return stories(documents, events_of(result.logs, list(pools)), most)


def stories(violations: Sequence[dict[str, Any]], events: Iterable[Event], most: int) -> list[Told]:
    """The stories of the first ``most`` of ``violations``, which are all of a run in their order."""
    wanted = violations[:most]
    if not wanted:
        return []
    index = _Index(wanted, events)
    told = []
    for number, violation in enumerate(wanted, 1):
        selection = Selection(violation)
        lines = list(lines_of(selection.of(index.about(violation)), violation))
        broke = headline(violation, selection.owners)
        told.append(Told(number, violation["code"], law_of(violation["code"]), broke, lines))
    return told


class _Index:
    """Events of a run by what violations name: request, page of a pool, step."""

    def __init__(self, violations: Sequence[dict[str, Any]], events: Iterable[Event]) -> None:
        self._requests: dict[int, list[int]] = {one["request"]: [] for one in violations if one["request"] is not None}
        self._pages: dict[tuple[str, int], list[int]] = {
            (one["pool"], one["page"]): [] for one in violations if one["page"] is not None
        }
        self._steps: dict[int, list[int]] = {one["step"]: [] for one in violations if one["step"] is not None}
        self._always: list[int] = []
        self._events: dict[int, Event] = {}
        owners: dict[Any, int] = {}
        for place, event in enumerate(events):
            if self._keep(place, event, owners):
                self._events[place] = event

    def _keep(self, place: int, event: Event, owners: dict[Any, int]) -> bool:
        """Whether any violation may be about ``event``, which is noted under each of them."""
        kind, kept = event["event"], False
        worker = event.get("worker")
        if kind == "claim":
            owners[event["owner"]] = owners[worker, event["owner"]] = event["request"]
        whose = {event["request"]} if "request" in event else set()
        if not whose and "owner" in event:
            whose = {owners.get(event["owner"]), owners.get((worker, event["owner"]))}
        lists = [self._requests[one] for one in whose if one in self._requests]
        if "pool" in event:
            pages = event.get("page", ())
            pages = [*event.get("slots", ()), *(pages if isinstance(pages, list) else [pages] if pages != () else [])]
            pages += [event[key] for key in _PAGE_FIELDS if key in event]
            lists += [self._pages[spot] for page in set(pages) if (spot := (event["pool"], page)) in self._pages]
        if kind in _OF_A_STEP and event["iteration"] in self._steps:
            lists.append(self._steps[event["iteration"]])
        if kind in _OF_ALL:
            lists.append(self._always)
        for one in lists:
            one.append(place)
            kept = True
        return kept

    def about(self, violation: dict[str, Any]) -> Iterable[Event]:
        """A part of the events, in their order, with all that the story of ``violation`` is chosen from."""
        places = {*self._always}
        places.update(self._requests.get(violation["request"], ()))
        places.update(self._pages.get((violation["pool"], violation["page"]), ()))
        places.update(self._steps.get(violation["step"], ()))
        return (self._events[place] for place in sorted(places))
