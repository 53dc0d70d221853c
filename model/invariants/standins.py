"""OWN, WINDOW and STATE of rows without a request: a dummy has its own pages and slot, a padding row has nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model.geometry import cdiv
from model.invariants.base import Docket, Violation
from model.plan import DummyRow
from model.table import TableRow

if TYPE_CHECKING:
    from model.shadow import Shadow


class StandInLaws:
    """Judge of the rows without a request of one memory."""

    def __init__(self, docket: Docket) -> None:
        self.docket = docket

    def count(self) -> None:
        """A padding row is about to run."""
        self.docket.count("OWN")
        self.docket.count("STATE")

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

    def last_cell(self, shadow: Shadow, pool: int, slot: int) -> None:
        """A padding row wrote the last cell of a pool."""
        request = self._tenant(shadow, pool, slot)
        message = "a row without a request writes the last cell of the pool"
        self._report(shadow, "OWN", message, request, shadow.pools[pool].name, slot, shadow.page - 1, "index -1")

    def stale_row(self, shadow: Shadow, request: int, tables: tuple[TableRow, ...]) -> None:
        """A padding row reads through the table row that ``request`` left behind."""
        for column in shadow.columns:
            table = tables[column.index]
            if len(table.view):
                message = "a row without a request reads through the table row of an earlier one"
                place = table.base * shadow.page
                self._report(shadow, "OWN", message, request, column.pool.name, table.view[0], place, "a stale row")

    def request_slot(self, shadow: Shadow, slot: int) -> None:
        """A padding row uses a row slot that requests get."""
        owner = shadow.slots.get(slot)
        if owner is not None:
            reader = shadow.readers.get(owner)
            request = reader.request_id if reader is not None else -1
            message = f"a row without a request uses row slot {slot}, which a request has"
            self._report(shadow, "STATE", message, request, "", -1, -1, f"slot {slot}")

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
