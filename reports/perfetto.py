"""The course of a run as a trace for the Perfetto UI and chrome://tracing.

The Trace Event Format, JSON object form (Google's document of that name): ``traceEvents`` is a list of events, each
with a phase ``ph``, a process and a thread, and ``ts`` in microseconds. Used here: complete events ``X``, instants
``i``, counters ``C``, async pairs ``b`` and ``e`` for what may overlap, flow pairs ``s`` and ``f``, metadata ``M``.
A worker is a process, its device a thread, each request a thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from reports.course import Course
from sim.files import write_lines

TRACE = "trace.json"
Event = dict[str, Any]
_DEVICE, _FIRST_REQUEST = 1, 2  # threads of a process
_SPANS = ("queued", "chunk", "generation", "suspended", "transfer", "preempted")
_STEPS = {
    (True, True): "prefill and verify",
    (True, False): "prefill",
    (False, True): "verify",
    (False, False): "dummies alone",
}
_PHASES = ("e", "X", "s", "f", "b", "i", "C")  # at one time: what ends comes first, and a flow lies in its slice


def write_trace(path: Path, course: Course, title: str) -> None:
    """Write ``course`` as a trace, an event a line; ``title`` says what ran."""
    clock = "simulated time" if course.clocked else "no clock: an iteration takes 1 ms"
    head = json.dumps({"displayTimeUnit": "ms", "otherData": {"run": title, "clock": clock}})
    lines = [json.dumps(event, separators=(",", ":")) for event in trace_events(course)]
    write_lines(path, [head[:-1] + ', "traceEvents": [', *(f"{line}," for line in lines[:-1]), *lines[-1:], "]}"])


def trace_events(course: Course) -> list[Event]:
    """All events: names of processes and threads first, then the rest by time."""
    course = course.timed()
    timed = [*_steps(course), *_requests(course), *_counters(course), *_flows(course)]
    timed.sort(key=lambda event: (event["ts"], _PHASES.index(event["ph"]), -event.get("dur", 0)))
    return [*_names(course), *timed]


def _names(course: Course) -> Iterator[Event]:
    for history in course.pages:
        process = history.worker + 1
        yield _named("process_name", process, 0, name=f"worker {history.worker}")
        yield _named("process_sort_index", process, 0, sort_index=process)
        yield _named("thread_name", process, _DEVICE, name="device")
        yield _named("thread_sort_index", process, _DEVICE, sort_index=0)
    requests = dict.fromkeys(_rows(course.spans, ("worker", "request_id", "session", "turn")))
    for worker, request, session, turn in (row for row in requests if row[1] >= 0):
        name = f"request {request}" + (f" ({session} turn {turn})" if session else "")
        yield _named("thread_name", worker + 1, _FIRST_REQUEST + request, name=name)
        yield _named("thread_sort_index", worker + 1, _FIRST_REQUEST + request, sort_index=1 + request)


def _named(what: str, process: int, thread: int, **arguments: object) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": arguments}


def _steps(course: Course) -> Iterator[Event]:
    """What the device ran."""
    columns = ("worker", "iteration", "start_ns", "duration", "chunks", "steps", "chunk_tokens")
    for worker, iteration, start, duration, chunks, steps, tokens in _rows(course.iterations, columns):
        yield {
            "ph": "X",
            "name": _STEPS[bool(chunks), bool(steps)],
            "cat": "step",
            "pid": worker + 1,
            "tid": _DEVICE,
            "ts": _us(start),
            "dur": _us(duration),
            "args": {"iteration": iteration, "chunks": chunks, "verify steps": steps, "chunk tokens": tokens},
        }


def _requests(course: Course) -> Iterator[Event]:
    """What requests did. Slices of one thread may not overlap: one that begins on the host while the device still runs
    the one before it is cut at its begin, and says when it really began."""
    ends: dict[tuple[int, int], int] = {}
    columns = ("worker", "request_id", "kind", "begin_ns", "end_ns", "iteration", "tokens", "pool", "note")
    for number, (worker, request, kind, begin, end, iteration, tokens, pool, note) in enumerate(
        _rows(course.spans, columns)
    ):
        told = {"iteration": iteration, "tokens": tokens, "pool": pool, "note": note}
        place = {"cat": kind, "pid": worker + 1, "tid": _FIRST_REQUEST + request if request >= 0 else _DEVICE}
        event: Event = {"name": kind, **place, "args": {key: value for key, value in told.items() if value != ""}}
        if kind in _SPANS:
            start = max(begin, ends.get((worker, request), 0))
            stop = ends[worker, request] = max(start, end)
            if start > begin:
                event["args"]["began_us"] = _us(begin)
            yield event | {"ph": "X", "ts": _us(start), "dur": _us(stop - start)}
        elif end > begin:
            yield event | {"ph": "b", "ts": _us(begin), "id": str(number)}
            yield {"ph": "e", "name": kind, **place, "ts": _us(end), "id": str(number)}
        else:
            yield event | {"ph": "i", "ts": _us(begin), "s": "t"}


def _counters(course: Course) -> Iterator[Event]:
    """Pages of each pool by state, where they change."""
    before: dict[tuple[int, str], tuple[int, ...]] = {}
    columns = ("worker", "pool", "time_ns", "used", "reusable", "host_used")
    for worker, pool, time, *counts in _rows(course.occupancy, columns):
        if before.get((worker, pool)) == tuple(counts):
            continue
        before[worker, pool] = tuple(counts)
        arguments = dict(zip(("used", "reusable", "host"), counts, strict=True))
        yield {
            "ph": "C",
            "name": f"pages of {pool}",
            "cat": "pool",
            "pid": worker + 1,
            "tid": 0,
            "ts": _us(time),
            "args": arguments,
        }


def _flows(course: Course) -> Iterator[Event]:
    """An arrow from the last chunk of a request on one worker to its transfer to another."""
    last: dict[int, tuple[int, int]] = {}
    for number, (kind, request, worker, begin) in enumerate(
        _rows(course.spans, ("kind", "request_id", "worker", "begin_ns"))
    ):
        if kind == "chunk":
            last[request] = worker, begin
        if kind != "transfer" or request not in last or last[request][0] == worker:
            continue
        source, when = last[request]
        flow = {"name": "transfer", "cat": "flow", "id": str(number), "tid": _FIRST_REQUEST + request}
        yield flow | {"ph": "s", "pid": source + 1, "ts": _us(when)}
        yield flow | {"ph": "f", "pid": worker + 1, "ts": _us(begin), "bp": "e"}


def _rows(table: pd.DataFrame, columns: tuple[str, ...]) -> Iterable[tuple[Any, ...]]:
    """Rows of ``table`` as plain values."""
    return zip(*(table[name].tolist() for name in columns), strict=True)


def _us(nanoseconds: int) -> float:
    return nanoseconds / 1000
