"""The course of a run: what every request did and when, how full the pools were, what every page held at any step.

Built from the event log, the journal of pages beside it and the simulated clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from model.events import Kind
from model.page_journal import COUNT_FIELDS
from reports.course_spans import KINDS, Spans, requests_by_owner
from reports.decisions import Decisions
from reports.page_history import PageHistory, history_of, occupancy_of, owner_of
from sim.result import RunResult

SPAN_COLUMNS = {
    "worker": 0,
    "request_id": -1,
    "session": "",
    "turn": -1,
    "kind": "",
    "begin_ns": 0,
    "end_ns": 0,
    "iteration": 0,
    "tokens": 0,
    "position": -1,
    "pool": "",
    "note": "",
}  # with what stands where a column does not apply
STEP_NS = 1_000_000  # that an iteration of a run without a clock takes where it is drawn: a millisecond
_TIMES = ("begin_ns", "end_ns", "time_ns", "dispatch_ns", "start_ns", "settle_ns", "duration")
_OCCUPANCY = ("time_ns", "iteration", "worker", "pool")


@dataclass(frozen=True)
class Course:
    """One run as tables; times are integer nanoseconds of the simulated clock.

    Where a run has no clock (``clocked`` is off: ops as they stand), the number of an iteration stands in for its time,
    and it ends where the next one begins.

    ``spans``: a row for everything that a request did, ordered by time; ``kind`` is one of
    :data:`reports.course_spans.KINDS`. Chunks, and verify steps in a row, last from when the device begins the first
    step to when it ends the last one. ``position`` is the first token of a chunk; columns that do not apply are 0, -1
    or empty (:data:`SPAN_COLUMNS`).
    ``occupancy``: device pages of each pool when an iteration went out, and at the end of the run (one past the last
    iteration): ``used`` by sequences, ``reusable`` (only the prefix tree holds them), ``free``; ``peak`` is the most
    that were used at once up to then, ``host_used`` counts pages of the host tier.
    ``iterations``: a row for each plan: when the host dispatched and settled it (-1: it never did), when the device
    began it (``start_ns``) and how long it took (``duration``), its rows, and the prompt tokens in its chunks.
    """

    clocked: bool
    spans: pd.DataFrame
    occupancy: pd.DataFrame
    iterations: pd.DataFrame
    pages: tuple[PageHistory, ...]

    def timed(self) -> Course:
        """The same with times that can be drawn: without a clock an iteration takes :data:`STEP_NS`."""
        if self.clocked:
            return self
        spans, occupancy, iterations = (
            frame.assign(**{name: frame[name] * STEP_NS for name in _TIMES if name in frame})
            for frame in (self.spans, self.occupancy, self.iterations)
        )
        return replace(self, spans=spans, occupancy=occupancy, iterations=iterations)

    def page_map(self, iteration: int) -> pd.DataFrame:
        """Every page of every pool when ``iteration`` went out; one past the last iteration: at the end of the run.

        A row a page: worker, pool, page, owner and request (of the last grant; -1: none), block and lifecycle column
        (-1), how many tokens the prefix tree has of it (coverage; 0: it is not cached), and its state: ``free``,
        ``held`` by sequences, ``published`` (held and cached), ``reusable`` (cached only), ``host`` (in the host tier).
        """
        return pd.concat([history.at(iteration) for history in self.pages], ignore_index=True)


def course_of(result: RunResult) -> Course | None:
    """The course of a run; ``None`` where it kept no event log."""
    if not result.logs or any(log.journal is None for log in result.logs):
        return None
    spans, occupancy, iterations, pages = [], [], [], []
    for worker, log in enumerate(result.logs):
        decisions = Decisions(log, result.clocks[worker] if result.clocks else None)
        assert log.journal is not None
        history = history_of(log.journal, worker, requests_by_owner(decisions))
        tables = Spans(decisions, list(history.pools), owner_of(history)).tables()
        spans += [_filled(table.assign(worker=worker)) for table in tables if len(table)]
        iterations.append(_iterations(decisions, worker))
        occupancy.append(_occupancy(decisions, occupancy_of(log.journal, worker)))
        pages.append(history)
    return Course(
        clocked=bool(result.clocks),
        spans=_spans(spans, result),
        occupancy=pd.concat(occupancy, ignore_index=True),
        iterations=pd.concat(iterations, ignore_index=True),
        pages=tuple(pages),
    )


def _spans(tables: list[pd.DataFrame], result: RunResult) -> pd.DataFrame:
    """All spans in order, with session and turn of their requests."""
    table = pd.concat([*tables, _filled(pd.DataFrame(index=range(0)))], ignore_index=True)
    requests = table["request_id"].tolist()
    places = {timing.request_id: (timing.session, timing.turn) for timing in result.timings}
    table["session"] = [places[request][0] if request in places else "" for request in requests]
    table["turn"] = [places[request][1] if request in places else -1 for request in requests]
    rank = np.array([KINDS.index(kind) for kind in table["kind"]], dtype=np.int64)
    order = np.lexsort((rank, table["request_id"], table["worker"], table["end_ns"], table["begin_ns"]))
    return table.iloc[order].reset_index(drop=True)


def _filled(table: pd.DataFrame) -> pd.DataFrame:
    """A table with all columns of spans, in their order and of their types."""
    absent = {name: value for name, value in SPAN_COLUMNS.items() if name not in table}
    types = {name: "int64" if isinstance(value, int) else "str" for name, value in SPAN_COLUMNS.items()}
    return table.assign(**absent).reindex(columns=list(SPAN_COLUMNS)).astype(types)


def _iterations(decisions: Decisions, worker: int) -> pd.DataFrame:
    counts, chunks = decisions.fields(Kind.ITERATION), decisions.fields(Kind.CHUNK)
    iteration, dispatch, start, finish, settle = decisions.steps.T
    of = np.searchsorted(decisions.numbers, decisions.iterations[decisions.places(Kind.CHUNK)])
    tokens = np.bincount(of, weights=chunks["end"] - chunks["start"], minlength=len(iteration))
    return pd.DataFrame(
        {
            "iteration": iteration,
            "worker": worker,
            "dispatch_ns": dispatch,
            "start_ns": start,
            "settle_ns": settle,
            "chunks": counts["chunks"],
            "steps": counts["steps"],
            "chunk_tokens": tokens.astype(np.int64),
            "duration": finish - start,
        }
    )


def _occupancy(decisions: Decisions, table: pd.DataFrame) -> pd.DataFrame:
    """Occupancy of the pools of one worker, with the time of each look: that of the dispatch, or the end."""
    at = np.searchsorted(decisions.numbers, table["iteration"].to_numpy())
    table.insert(0, "time_ns", np.append(decisions.steps[:, 1], decisions.end_ns)[at])
    return table.reindex(columns=[*_OCCUPANCY, *COUNT_FIELDS])
