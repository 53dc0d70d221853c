"""FLIGHT: nothing that a copy between the tiers still reads or writes is granted, overwritten or read too early.

Judged in the memory, in stream order: from the records with which copies begin, the rows of plans and the cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from model.copies import Copy
from model.invariants.base import Docket, Violation
from model.plan import BEGIN, COPY, GRANT, PUBLISH, START, ContextRow, GenerationRow, StepPlan

if TYPE_CHECKING:
    from model.cells import CellStore

Row = ContextRow | GenerationRow


@dataclass(slots=True)
class Flying:
    """A copy that began in stream order and has not ended.

    ``promised``: what it is to bring, the source's cells when it began, or what copy ``behind`` was to bring there;
    ``None`` if that one was lost.
    """

    number: int
    pool: int
    page: int
    source: int
    target: int
    promised: bytes | None
    behind: int = -1


class FlightLaw:
    """Judge of the copies of one memory."""

    def __init__(self, docket: Docket, memory: CellStore) -> None:
        self.docket, self.memory = docket, memory
        self.flying: dict[int, Flying] = {}
        self.by_slot: dict[tuple[int, int], list[Flying]] = {}
        self._names: dict[int, int] = {}  # owner -> request id
        # Copies that ended before they began here: what they took, and the last step dispatched before they began.
        self._early: dict[int, tuple[bytes | None, int]] = {}

    # -- stream order --------------------------------------------------------------------------------------------

    def record(self, record: tuple) -> None:
        """A record is about to run."""
        kind = record[0]
        if kind == START:
            self._begin(*record[1:])
        elif kind == BEGIN:
            self._names[record[1]] = record[2].request_id
        elif not self.by_slot:
            return
        elif kind == GRANT:
            for slot in record[2]:
                self._busy(record[1], slot, self._names.get(record[3], -1), "is granted")
        elif kind == COPY:
            self._busy(record[1], record[2], -1, "is copied from", loads_only=True)
            self._busy(record[1], record[3], -1, "is copied to")
        elif kind == PUBLISH:
            for slot in record[2]:
                self._busy(record[1], slot, self._names.get(record[4], -1), "is published", loads_only=True)

    def rows(self, rows: Sequence[Row]) -> None:
        """Rows are about to run: what they read has arrived, and what they write no copy still reads."""
        if not self.by_slot:
            return
        self.docket.count("FLIGHT")
        memory = self.memory
        for row in rows:
            start = row.start if isinstance(row, ContextRow) else 1 << 62  # a step appends to pages granted to it
            for column, table in zip(memory.columns, row.tables, strict=True):
                pool = memory.pool_of[column.index]
                for slot in memoryview(table.sinks).cast("i"):
                    self._busy(pool, slot, row.request_id, "is read", loads_only=True)
                for place, slot in enumerate(table.view):
                    written = table.base + place >= start // memory.page
                    what = "is written" if written else "is read"
                    self._busy(pool, slot, row.request_id, what, loads_only=not written)

    def _begin(self, number: int, pool: int, page: int, source: int, target: int) -> None:
        self.docket.count("FLIGHT")
        promised = self.memory.cells[pool][source].tobytes()
        copy = Flying(number, pool, page, source, target, promised)
        if number in self._early:
            taken, fence = self._early.pop(number)
            if taken is not None and taken != promised:
                message = "a copy took a page before the step that writes it"
                self._report(copy, message, source, when=f"iteration {fence}, which was dispatched before it, has run")
            return
        for other in self.by_slot.get((pool, source), ()):
            if other.target == source:
                copy.promised, copy.behind = other.promised, other.number
        self.flying[number] = copy
        for slot in (source, target):
            self.by_slot.setdefault((pool, slot), []).append(copy)

    def _busy(self, pool: int, slot: int, request: int, what: str, loads_only: bool = False) -> None:
        """A page is used although a copy that began earlier still reads it, or has yet to write it."""
        for copy in self.by_slot.get((pool, slot), ()):
            if slot == copy.target or not loads_only:
                state = "has not arrived" if slot == copy.target else "is still copied away"
                self._report(copy, f"a page that {state} {what}", slot, request)

    # -- ends ----------------------------------------------------------------------------------------------------

    def landing(self, copy: Copy, plans: Sequence[StepPlan]) -> None:
        """A copy is about to move its bytes; ``plans`` are in flight."""
        self.docket.count("FLIGHT")
        memory = self.memory
        now = memory.cells[copy.pool][copy.source].tobytes()
        begun = self._forget(copy)
        if begun is None:
            begun = Flying(copy.number, copy.pool, copy.page, copy.source, copy.target, now)
            self._early[copy.number] = now, copy.fence
            self._outrun(begun, [plan for plan in plans if plan.iteration <= copy.fence])
            self._undone(begun, plans)
        elif begun.promised not in (None, now):
            self._report(begun, "a page changed while it was copied", copy.source)
        for slot, readers in ((copy.target, True), (copy.source, False)):
            for other in self.by_slot.get((copy.pool, slot), ()):
                if other.number < copy.number and (readers or other.target == slot):
                    gone = "still reads" if other.source == slot else "has not written yet"
                    message = f"a copy uses a page that copy {other.number} {gone}"
                    self._report(begun, message, slot, when=f"copy {other.number} has landed")

    def lost(self, copy: Copy) -> None:
        """A copy failed."""
        if self._forget(copy) is None:
            self._early[copy.number] = None, copy.fence
        void = {copy.number}
        for other in self.flying.values():
            if other.behind in void:
                other.promised = None
                void.add(other.number)

    def drained(self, owes: Sequence[int]) -> None:
        """The run is over and nothing is in flight; ``owes`` are copies that the engine still counts as open."""
        self.docket.count("FLIGHT")
        for copy in list(self.flying.values()):
            self._report(copy, "a copy is open after the drain", copy.target)
        if owes and not self.flying:
            message, found = "copies ended and are still counted as open", f"{len(owes)} of them, the first {owes[0]}"
            step = self.memory.iteration
            self.docket.report(Violation("FLIGHT", message, step=step, expected="no copy open", found=found))

    def _outrun(self, copy: Flying, plans: Sequence[StepPlan]) -> None:
        """A copy arrives before ``plans``, which were dispatched before it began: none of them uses its target."""
        memory = self.memory
        for plan in plans:
            for row in (*plan.context, *plan.generation):
                for column, table in zip(memory.columns, row.tables, strict=True):
                    named = copy.target in (*table.view, *memoryview(table.sinks).cast("i"))
                    if named and memory.pool_of[column.index] == copy.pool:
                        message = f"a copy overwrites a page that iteration {plan.iteration} still uses"
                        self._report(copy, message, copy.target, row.request_id, f"iteration {plan.iteration} has run")

    def _undone(self, copy: Flying, plans: Sequence[StepPlan]) -> None:
        """A copy arrives before records that were queued ahead of it: none of them grants its target."""
        for plan in plans:
            for record in plan.records:
                if record[0] == START and record[1] == copy.number:
                    return
                if record[0] == GRANT and record[1] == copy.pool and copy.target in record[2]:
                    message = f"a copy fills a page ahead of its grant in iteration {plan.iteration}"
                    when = f"iteration {plan.iteration} has granted it"
                    self._report(copy, message, copy.target, self._names.get(record[3], -1), when)

    def _forget(self, copy: Copy) -> Flying | None:
        begun = self.flying.pop(copy.number, None)
        if begun is not None:
            for slot in (begun.source, begun.target):
                users = self.by_slot[begun.pool, slot]
                users.remove(begun)
                if not users:
                    del self.by_slot[begun.pool, slot]
        return begun

    def _report(self, copy: Flying, message: str, slot: int, request: int = -1, when: str = "") -> None:
        """Report a copy; ``when``: what it, or who uses its page, has to wait for, if that is not its own end."""
        memory = self.memory
        pool = memory.pools[copy.pool]
        if request < 0:
            request = self._names.get(memory.owner[copy.pool][copy.source], -1)
        way = "store" if copy.target >= pool.device_pages else "load"
        name = f"copy {copy.number}, a {way} of page {copy.page}"
        self.docket.report(
            Violation(
                "FLIGHT",
                message,
                request,
                pool.name,
                slot,
                step=memory.iteration,
                expected=f"{name}, once {when}" if when else f"after {name}, has landed",
                found=f"its bytes {'went' if when else 'still go'} from slot {copy.source} to slot {copy.target}",
            )
        )
