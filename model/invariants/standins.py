"""OWN, WINDOW and STATE of rows without a request: a dummy has its own pages and slot, a padding row has nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from model.geometry import cdiv
from model.invariants.base import Docket, Violation
from model.plan import DummyRow
from model.table import TableRow

if TYPE_CHECKING:
    from model.shadow import Shadow


class Touched(NamedTuple):
    """What one padding row touches: the lengths of row ``slot``, pages that it ``reads`` through table rows (one a
    column; request ``left_by`` left them) and cells that it ``writes``, as pool and index into its cells."""

    slot: int
    left_by: int = -1
    reads: tuple[TableRow, ...] = ()
    writes: tuple[tuple[int, int], ...] = ()


class StandInLaws:
    """Judge of the rows without a request of one memory."""

    def __init__(self, docket: Docket) -> None:
        self.docket = docket

    def reads(self, shadow: Shadow, row: DummyRow) -> None:
        """A dummy reads pages that were granted to it; what they hold does not matter."""
        self.docket.count("OWN", len(shadow.columns))
        self.docket.count("WINDOW", len(shadow.columns))
        if shadow.slots.get(row.slot) is None or row.slot < shadow.twin.config.limits.max_batch:
            self._report(shadow, "STATE", "a dummy uses the row slot of a request", -1, "", -1, -1, f"slot {row.slot}")
        for column in shadow.columns:
            table, pool = row.tables[column.index], shadow.pool_of[column.index]
            low, high = column.lifecycle.read_from(row.position), row.position + 1
            if low // shadow.page < table.base:
                where = f"block {low // shadow.page}, the row backs blocks from {table.base}"
                self._report(
                    shadow, "WINDOW", "a dummy's window reads a released block", -1, column.pool.name, -1, low, where
                )
            for block in range(max(low // shadow.page, table.base), cdiv(high, shadow.page)):
                slot = shadow.slot_at(table, block)
                if slot < 0 or shadow.owner[pool][slot] != row.owner:
                    tenant = f"page of owner {shadow.owner[pool][slot]}" if slot >= 0 else "guard page"
                    place = max(low, block * shadow.page)
                    message = "a dummy reads a page that it does not hold"
                    self._report(shadow, "OWN", message, -1, column.pool.name, slot, place, tenant)

    def padding(self, shadow: Shadow, touched: Touched) -> None:
        """A padding row owns nothing: no page of a pool is its to read or write, no slot of a request its to move."""
        self.docket.count("OWN")
        self.docket.count("STATE")
        for pool, cell in touched.writes:
            slot, offset = divmod(cell, shadow.page)
            last = " the last cell of the pool" if cell == len(shadow.flat[pool]) - 1 else " a page"
            message, request = f"a row without a request writes{last}", self._tenant(shadow, pool, slot)
            self._report(shadow, "OWN", message, request, shadow.pools[pool].name, slot, offset, f"page {slot}")
        for column, table in zip(shadow.columns, touched.reads, strict=False):
            if len(table.view):
                message = "a row without a request reads through the table row of an earlier one"
                place = table.base * shadow.page
                found = f"page {table.view[0]}"
                self._report(shadow, "OWN", message, touched.left_by, column.pool.name, table.view[0], place, found)
        owner = shadow.slots.get(touched.slot)
        if owner is not None and touched.slot < shadow.twin.config.limits.max_batch:
            reader = shadow.readers.get(owner)
            request = reader.request_id if reader is not None else -1
            message = f"a row without a request uses row slot {touched.slot}, which a request has"
            self._report(shadow, "STATE", message, request, "", -1, -1, f"slot {touched.slot}")

    @staticmethod
    def _tenant(shadow: Shadow, pool: int, slot: int) -> int:
        reader = shadow.readers.get(shadow.owner[pool][slot])
        return reader.request_id if reader is not None else -1

    def _report(
        self, shadow: Shadow, code: str, message: str, request: int, pool: str, page: int, position: int, found: str
    ) -> None:
        expected = "pages and slots of its own" if "dummy" in message else "scratch only"
        self.docket.report(
            Violation(code, message, request, pool, page, position, shadow.iteration, expected=expected, found=found)
        )
