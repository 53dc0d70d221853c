"""Row slots of the tagged memory: their lengths and bases, and a step's rows as one access or another sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from model.cells import CellStore
from model.drafter import Pass
from model.events import EventLog
from model.lookup import LookupTable
from model.plan import ContextRow, GenerationRow
from model.reader import GUARD, LOGGED, Reader
from model.table import TableRow, shifted

if TYPE_CHECKING:
    from model.invariants.memory import MemoryLaws
    from model.joint import Twin

Row = TypeVar("Row", ContextRow, GenerationRow)


class SlotStore(CellStore):
    """Cells and row slots of one engine; a slot's lengths are the device's own and come from no plan."""

    def __init__(self, twin: Twin, laws: MemoryLaws | None, log: EventLog) -> None:
        super().__init__(twin, laws, log)
        slots = twin.config.limits.max_batch + 1
        self.slots: dict[int, int] = {}  # row slot -> owner
        self.length = [0] * slots  # target length per row slot
        self.base = [0] * slots  # drafter base page per row slot
        self.draft_length = [0] * slots
        self.lookup = LookupTable(slots) if twin.kind.writes is Pass.NONE else None
        self.readers: dict[int, Reader] = {}
        self.verified: tuple[list[GenerationRow], tuple[int, ...]] = ([], ())  # rows of this step, tokens they commit
        self._stale_rows: dict[tuple[int, int], tuple[TableRow, ...]] = {}

    def unbased(self, row: Row) -> Row:
        """A row as an access sees it that leaves the slot's base page out of account."""
        base, columns = self.base[row.slot], self.columns
        tables = [
            shifted(table, base) if column.draft else table for column, table in zip(columns, row.tables, strict=True)
        ]
        return row._replace(tables=tuple(tables))

    def knows(self, owner: int) -> bool:
        """Whether the owner's request has not ended: rows of one that did run on, and nobody looks."""
        return owner in self.readers

    def commits(self, owner: int) -> int:
        """Tokens that the owner's verify row commits in this step."""
        rows, counts = self.verified
        return next((count for row, count in zip(rows, counts, strict=True) if row.owner == owner), 1)

    def look_up(self, context: list[ContextRow], generation: list[GenerationRow]) -> None:
        """An n-gram drafter reads what became known and looks its drafts up in it."""
        lookup = self.lookup
        assert lookup is not None
        for row in context:
            lookup.read(row.slot, row.owner, row.end)
        for row in generation:
            lookup.read(row.slot, row.owner, self.length[row.slot])
            if self.laws is not None and self.slots.get(row.slot) == row.owner and self.knows(row.owner):
                self.laws.looked_up(self, lookup, row)

    def overwritten_tables(
        self, context: list[ContextRow], generation: list[GenerationRow]
    ) -> tuple[list[ContextRow], list[GenerationRow]]:
        """One host buffer serves all steps: row slot by row slot, a step finds what was written there before it."""
        old = self._stale_rows
        self._stale_rows = {(0, row.slot): row.tables for row in (*context, *generation)}
        context = [row._replace(tables=old.get((0, row.slot), row.tables)) for row in context]
        return context, [row._replace(tables=old.get((0, row.slot), row.tables)) for row in generation]

    def frontier(self, row: GenerationRow, index: int, position: int) -> tuple[int, int]:
        """(slot, content) of the last final cell of a column, read back from memory; -1, 0 where there is none."""
        if index < 0 or position < 0:
            return GUARD, 0
        slot = self.slot_at(row.tables[index], position // self.page)
        if slot < 0:
            return GUARD, 0
        return slot, self.flat[self.pool_of[index]][slot * self.page + position % self.page] & LOGGED
