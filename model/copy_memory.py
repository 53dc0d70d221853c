"""The tagged memory where changes of tier take time: a copy's bytes move when it lands, not when it begins.

Records run in stream order. A copy that lands first brings the memory up to the record with which it began; the plan
whose records these are finds them done. A copy that lands before the steps ahead of it takes what is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from model.copies import Copy
from model.events import EventLog
from model.invariants.flight import FlightLaw
from model.plan import CLAIM, END, PUBLISH, START, StepPlan
from model.reader import Reader
from model.rules.claim import Claim
from model.shadow import Shadow

if TYPE_CHECKING:
    from model.invariants.memory import MemoryLaws
    from model.joint import Twin
    from model.request import Request


class CopyingShadow(Shadow):
    """Memory of an engine with asynchronous copies, judged by ``flight`` as well."""

    def __init__(self, twin: Twin, laws: MemoryLaws, log: EventLog) -> None:
        super().__init__(twin, laws, log)
        self.flight = FlightLaw(laws.docket, self)
        self._head: list[tuple] | None = None  # records that ran in part, and how many of them did
        self._done = 0
        # Owners whose rows in flight compute nothing. What they wrote before stays published under their keys.
        self._void: dict[int, Reader | None] = {}
        self._plan: StepPlan | None = None

    # -- stream order --------------------------------------------------------------------------------------------

    def run_step(self, plan: StepPlan, accepted: tuple[int, ...]) -> None:
        self._plan = plan
        super().run_step(plan, accepted)

    def run_records(self, records: list[tuple]) -> None:
        self._run_up_to(records, len(records))
        self._head, self._done = None, 0
        plan, self._plan = self._plan, None
        if plan is not None:
            self.flight.rows([row for row in (*plan.context, *plan.generation) if row.owner in self.readers])

    def _run_up_to(self, records: list[tuple], end: int) -> None:
        """Run ``records[.. end]`` as far as they have not run yet."""
        if records is not self._head:
            self._head, self._done = records, 0
        for record in records[self._done : end]:
            kind = record[0]
            self.flight.record(record)
            if kind == START and self.claims is not None:
                with self._as_landed():
                    self.claims.published_pages.moved(record[2], *record[4:6])
            elif kind == PUBLISH or (kind == CLAIM and record[1] not in self._void):
                with self._as_landed():  # what is known of published pages includes those on their way
                    super().run_records([record])
            elif kind != CLAIM:
                super().run_records([record])
            if kind == END:
                self._void.pop(record[1], None)
        self._done = max(self._done, end)

    @contextmanager
    def _as_landed(self) -> Iterator[None]:
        """For a while, the memory as it is once every copy that is under way has landed: what a claim counts on."""
        saved = []
        for copy in self.flight.flying.values():
            if copy.promised is not None:
                cells, sealed, target = self.cells[copy.pool], self.sealed[copy.pool], copy.target
                saved.append((cells, sealed, target, cells[target].copy(), sealed[target]))
                cells[target] = np.frombuffer(copy.promised, dtype=np.uint64)
                sealed[target] = sealed[copy.source]
        yield
        for cells, sealed, target, content, published in reversed(saved):
            cells[target] = content
            sealed[target] = published

    def publisher(self, owner: int) -> Reader | None:
        return self.readers.get(owner) or self._void.get(owner)

    def _begin(self, owner: int, request: Request, claim: Claim, space: int, received: int = -1) -> None:
        if owner not in self._void:
            super()._begin(owner, request, claim, space, received)

    def _catch_up(self, copy: Copy, records: list[tuple]) -> None:
        """Run the oldest ``records`` that are queued up to the one with which ``copy`` began, if it is among them."""
        for reader in list(self.dirty.values()):
            self.flush(reader)
        for place, record in enumerate(records):
            if record[0] == START and record[1] == copy.number:
                self._run_up_to(records, place + 1)
                return

    # -- copies --------------------------------------------------------------------------------------------------

    def land(self, copy: Copy, records: list[tuple], plans: Sequence[StepPlan]) -> None:
        """``copy`` arrives. ``records`` are the oldest queued ones, ``plans`` those in flight, oldest first."""
        self._catch_up(copy, records)
        self.flight.landing(copy, plans)
        self.move(copy.pool, copy.page, copy.source, copy.target)

    def lose(self, copy: Copy, records: list[tuple], void: Sequence[int]) -> None:
        """``copy`` fails: its target keeps the cells of whoever had it before. Rows of ``void`` owners are not run."""
        self._catch_up(copy, records)
        self.flight.lost(copy)
        self.versions[copy.pool][copy.target] += 1
        self.owner[copy.pool][copy.target] = self.owner[copy.pool][copy.source]
        self.sealed[copy.pool][copy.target] = self.sealed[copy.pool][copy.source]
        for owner in void:
            self._void.setdefault(owner, self.readers.pop(owner, None))
            self.dirty.pop(owner, None)
            if self.claims is not None:
                self.claims.void(owner)
