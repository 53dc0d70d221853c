"""The event log as JSON lines: what the engine decided and what the memory did, merged by iteration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from heapq import merge
from typing import Any

from model.events import FIELDS, EventLog, Kind

Event = dict[str, Any]
_AFTER_MARK = (
    Kind.CHUNK,
    Kind.STEP,
    Kind.DUMMY,
    Kind.PADDING,
)  # rows of an iteration follow its record; all else leads up to it
_MASK = (1 << 64) - 1


def events(log: EventLog, pools: list[str]) -> Iterator[Event]:
    """All kept records with named fields, ordered by iteration, decisions first; ``pools`` names pools by index.

    A decision outside of a pass counts to the pass that comes next; a memory event to the iteration that caused it.
    """
    decisions = _decisions(log, pools)
    memory = (_event(kind, values, pools) for kind, values in log.memory.records())
    ordered = merge(
        ((event["iteration"], 0, event) for event in decisions),
        ((event["iteration"], 1, event) for event in memory),
        key=_order,
    )
    return (event for _, _, event in ordered)


def events_of(logs: Sequence[EventLog], pools: list[str]) -> Iterator[Event]:
    """:func:`events` of every worker, merged by iteration; each says its ``worker`` where there are several."""
    if len(logs) == 1:
        return events(logs[0], pools)
    ordered = merge(*(_marked(log, pools, worker) for worker, log in enumerate(logs)), key=_order)
    return (event for _, _, event in ordered)


def _marked(log: EventLog, pools: list[str], worker: int) -> Iterator[tuple[int, int, Event]]:
    for event in events(log, pools):
        yield event["iteration"], worker, {"worker": worker, **event}


def event_lines(logs: Sequence[EventLog], pools: list[str]) -> Iterator[str]:
    """:func:`events_of` as compact JSON, a line each."""
    return (json.dumps(event, separators=(",", ":")) for event in events_of(logs, pools))


def _order(entry: tuple[int, int, Event]) -> tuple[int, int]:
    return entry[:2]


def _decisions(log: EventLog, pools: list[str]) -> Iterator[Event]:
    waiting: list[Event] = []
    iteration = 0
    for kind, values in log.decisions.records():
        event = _event(kind, values, pools)
        if kind in _AFTER_MARK:
            yield {"iteration": iteration, **event}
            continue
        waiting.append(event)
        if kind is Kind.ITERATION:
            iteration = event["iteration"]
            yield from ({"iteration": iteration, **one} for one in waiting)
            waiting = []
    yield from ({"iteration": iteration + 1, **one} for one in waiting)


def _event(kind: Kind, values: tuple[int, ...], pools: list[str]) -> Event:
    """One record with its fields by name; a list takes the rest, content tags are hexadecimal."""
    event: Event = {"event": kind.name.lower()}
    for place, name in enumerate(FIELDS[kind]):
        if name.endswith(".."):
            tags = name.endswith("tag..")
            rest = values[place:]
            event["tags" if tags else name[:-2]] = [_tag(value) for value in rest] if tags else list(rest)
        elif name == "pool":
            event[name] = pools[values[place]] if values[place] < len(pools) else values[place]
        else:
            event[name] = _tag(values[place]) if name == "tag" else values[place]
    return event


def _tag(value: int) -> str:
    return f"{value & _MASK:016x}"
