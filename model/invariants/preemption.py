"""PROGRESS of preemptions: who may be set back, and for whom. The order of arrival is the checker's own."""

from __future__ import annotations

from array import array

from model.engine import Engine
from model.eviction import DROPPABLE, LOCKED
from model.invariants.base import Docket, Violation
from model.invariants.gate import gate_open
from model.request import CONTEXT, Request, RequestRecord
from model.table import Table


class PreemptionLaw:
    """A started request loses its pages only to one that came before it and needs them, the newest holder first.

    So the oldest request is never set back while others hold pages, and what a request prefills is bounded by the
    growth of those before it.
    """

    def __init__(self, engine: Engine, docket: Docket) -> None:
        self.engine, self.docket = engine, docket
        # By request id: its record (a request would keep its tokens alive for ever), and how many came before.
        self._arrival: dict[int, tuple[RequestRecord, int]] = {}
        self._arrived = 0
        # Started ones: request id -> owner, and by column its sinks and the pages behind them.
        self._before: dict[int, tuple[int, list[tuple[array[int], array[int]]]]] = {}
        self._started: tuple[list[int], list[list[Table]]] = ([], [])  # owners of those and their tables, as last seen
        self._bases: list[list[int]] = []  # of each of these tables, where any can release what its window left
        self._windows = any(column.lifecycle.window is not None for column in engine.twin.columns)
        self._shut = False  # a pool was too full for a suspended request to resume
        self._tiers = any(pool.host_pages for pool in engine.twin.pools.values())

    def _place(self, request: Request) -> int:
        """How many requests came before this one. Ids may be used again, and requests may come from other workers."""
        known = self._arrival.get(request.request_id)
        if known is None or known[0] is not request.record:
            known = self._arrival[request.request_id] = (request.record, self._arrived)
            self._arrived += 1
        return known[1]

    def submitted(self, request_id: int) -> None:
        """A request was queued here."""
        self._place(self.engine.live[request_id])

    def before_pass(self) -> None:
        """Remember who is started, and on which pages; note who came from another worker."""
        self._shut = not gate_open(self.engine.twin)
        requests = [request for request in self.engine.scheduler.active if request.started]
        started = ([request.owner for request in requests], [request.tables for request in requests])
        if self._windows:
            self._bases = [[table.base for table in tables] for tables in started[1]]
        if started == self._started:
            return  # an owner is one epoch of one request, and its tables grow and shrink in place
        self._before, self._started = {}, started
        for request in requests:
            self._place(request)
            pages = [(table.sinks, table.pages) for table in request.tables]
            self._before[request.spec.request_id] = (request.owner, pages)

    def after_pass(self) -> None:
        """Judge the preemptions of a pass that was not undone."""
        engine = self.engine
        live = engine.live
        lost = [name for name, (owner, _) in self._before.items() if name in live and live[name].owner != owner]
        if not lost:
            return
        taken = engine.last_pass
        running = {request.request_id for request in taken.generation}
        running.update(request.request_id for request, _, _ in taken.chunks)
        needed = self._tiers or self._shut or self._needed([self._before[name] for name in lost])
        free = [request for request in engine.scheduler.active if not request.pinned]  # no transfer is at their pages
        holders = [request for request in free if engine.twin.sequences(request)]
        for name in lost:
            self.docket.count("PROGRESS")
            self._judge(live[name], [other for other in holders if other is not live[name]], running, needed)

    def _needed(self, lost: list[tuple[int, list[tuple[array[int], array[int]]]]]) -> bool:
        """Whether some pool could not have done without the pages that were given up: they were short, or with them
        locked nobody who had stepped aside could have resumed.

        What others released in the same pass may have come too late for whoever was short.
        """
        limit, columns = self.engine.config.limits.max_util_for_resume, self.engine.twin.columns
        late = self._released({owner for owner, _ in lost})
        for pool in self.engine.twin.pools.values():
            indexes = [column.index for column in columns if column.pool is pool]
            pages = sum(len(part) for _, tables in lost for index in indexes for part in tables[index])
            if not pages:
                continue
            spare = pages + sum(late[index] for index in indexes)
            if sum(1 for state in pool.state if state <= DROPPABLE) < spare:
                return True
            if pool.state.count(LOCKED) + spare > limit * pool.device_pages:
                return True
        return False

    def _released(self, lost: set[int]) -> list[int]:
        """By column, blocks that windows of requests other than the ``lost`` ones left in this pass."""
        late = [0] * len(self.engine.twin.columns)
        for owner, tables, bases in zip(*self._started, self._bases, strict=False):
            if owner not in lost:
                for index, (table, base) in enumerate(zip(tables, bases, strict=True)):
                    late[index] += table.base - base
        return late

    def _judge(self, request: Request, others: list[Request], running: set[int], needed: bool) -> None:
        """One request lost its pages while ``others`` hold theirs."""
        if not others:
            return  # it began again alone
        place = self._place(request)
        older = [other for other in others if self._place(other) < place]
        if not older:
            self._report(request, "it came before all who hold pages", others)
        elif not needed and all(other.request_id in running for other in older):
            self._report(request, "nobody before it lacked a page", older)
        younger = [other for other in others if self._place(other) > place]
        # A context asks after the generation rows of the pass were taken: those are out of its reach.
        asks = any(other.state is CONTEXT and other.request_id not in running for other in older)
        kept = [
            other
            for other in younger
            if self._before.get(other.request_id, (-1, []))[0] == other.owner
            and not other.pinned
            and not (asks and other.request_id in running)
        ]
        if kept:
            self._report(request, "a newer one keeps its pages", kept)

    def _report(self, request: Request, why: str, others: list[Request]) -> None:
        names = ", ".join(str(other.request_id) for other in others[:8])
        self.docket.report(
            Violation(
                "PROGRESS",
                f"set back out of turn: {why}",
                request.request_id,
                step=self.engine.iteration,
                expected="the newest request makes room for an older one that needs pages",
                found=f"request {request.request_id} began again after {request.record.preemptions} preemptions; "
                f"requests {names} hold pages",
            )
        )
