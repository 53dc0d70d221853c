"""Storage of the tagged memory: pages of cells, and the writes that reach them through table rows."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from model.events import EventLog, Kind
from model.geometry import cdiv
from model.plan import ContextRow, DummyRow, GenerationRow
from model.reader import GUARD, LOGGED, UNWRITTEN
from model.rules.device import Addressing, DeviceRules, Extent, Unbacked
from model.table import TableRow

if TYPE_CHECKING:
    from model.invariants.memory import MemoryLaws
    from model.joint import Column, Twin


_GRANT, _COPY, _MOVE = int(Kind.MEM_GRANT), int(Kind.MEM_COPY), int(Kind.MEM_MOVE)
FEW = 6  # pages up to which a loop beats numpy


class CellStore:
    """Cells of every pool, ``[slots, page]`` of 64 bits, with the version, tenant and published length of each page."""

    def __init__(self, twin: Twin, laws: MemoryLaws | None, log: EventLog) -> None:
        self.twin, self.laws, self.log = twin, laws, log
        self.device: DeviceRules = twin.rules.device()
        self.iteration = -1
        self.page = twin.config.limits.page_size
        self.columns: tuple[Column, ...] = twin.columns
        self.target_columns = [column for column in self.columns if not column.draft]
        self.draft_columns = [column for column in self.columns if column.draft]
        self.windowed = sum(column.lifecycle.window is not None for column in self.columns)
        self.pools = list(twin.pools.values())
        self.cells = [np.full((pool.total, self.page), UNWRITTEN, dtype=np.uint64) for pool in self.pools]
        self.flat = [memoryview(cells.reshape(-1)) for cells in self.cells]
        self.counts = [array("q", bytes(8 * pool.total)) for pool in self.pools]
        self.versions = [np.frombuffer(counts, dtype=np.int64) for counts in self.counts]  # the same, for bulk work
        self.owner = [array("q", bytes(8 * pool.total)) for pool in self.pools]
        self.sealed = [array("i", bytes(4 * pool.total)) for pool in self.pools]  # published tokens of the page
        self.pool_of = [self.pools.index(column.pool) for column in self.columns]
        self.column_of = {(self.pool_of[column.index], column.column): column for column in self.columns}
        self._unwritten = memoryview(np.full(self.page, UNWRITTEN, dtype=np.uint64))

    # -- records -------------------------------------------------------------------------------------------------

    def grant(self, pool: int, slots: array[int], owner: int) -> None:
        """A new tenancy of pages starts: every cell is UNWRITTEN."""
        if len(slots) <= FEW:
            flat, page, owners, sealed = self.flat[pool], self.page, self.owner[pool], self.sealed[pool]
            counts = self.counts[pool]
            for slot in slots:
                begin = slot * page
                flat[begin : begin + page] = self._unwritten
                counts[slot] += 1
                owners[slot] = owner
                sealed[slot] = 0
        else:
            chosen = np.frombuffer(slots, dtype=np.int32)
            self.cells[pool][chosen] = UNWRITTEN
            self.versions[pool][chosen] += 1
            np.frombuffer(self.owner[pool], dtype=np.int64)[chosen] = owner
            np.frombuffer(self.sealed[pool], dtype=np.int32)[chosen] = 0
        self.log.memory.add((_GRANT, 3 + len(slots), self.iteration, pool, owner, *slots))

    def copy(self, pool: int, source: int, target: int, tokens: int) -> None:
        """The first ``tokens`` cells of a page are copied within a pool."""
        flat, page = self.flat[pool], self.page
        flat[target * page : target * page + tokens] = flat[source * page : source * page + tokens]
        self.counts[pool][target] += 1
        tag = LOGGED & (flat[target * page + tokens - 1])
        self.log.memory.add((_COPY, 6, self.iteration, pool, source, target, tokens, tag))

    def move(self, index: int, page: int, source: int, target: int) -> None:
        """A page changes tiers: its cells, tenant and published length go with it."""
        self.cells[index][target] = self.cells[index][source]
        self.versions[index][target] += 1
        self.owner[index][target] = self.owner[index][source]
        self.sealed[index][target] = self.sealed[index][source]
        tag = LOGGED & (self.flat[index][target * self.page])
        self.log.memory.add((_MOVE, 5, self.iteration, index, source, target, tag))

    def receive(self, pool: int, owner: int, slots: NDArray[np.int32], begin: int, cells: NDArray[np.uint64]) -> None:
        """Cells from another memory, ``[blocks, page]``, land in ``slots``, from offset ``begin`` of the first on."""
        store, first = self.cells[pool], slots[:1]
        store[first, begin:] = cells[:1, begin:]
        store[slots[1:]] = cells[1:]
        self.versions[pool][slots] += 1
        tag = LOGGED & int(cells[-1, 0])
        self.log.memory.add(
            (Kind.MEM_RECEIVE, 5 + len(slots), self.iteration, pool, owner, begin, tag, *slots.tolist())
        )

    def bound(self, table: TableRow) -> int:
        """Positions a row may address, by the extent rule."""
        backed = len(table.view)
        if self.device.extent is Extent.COUNT:
            return (backed + len(table.sinks) // 4) * self.page
        return (table.base + backed) * self.page

    # -- writes --------------------------------------------------------------------------------------------------

    def slot_at(self, table: TableRow, block: int) -> int:
        """Slot behind ``block`` of a row; unbacked entries resolve to ``GUARD`` or to page 0, by the rule."""
        place = block - table.base
        if 0 <= place < len(table.view):
            return table.view[place]
        if place < 0 and block < len(table.sinks) // 4:
            return int.from_bytes(table.sinks[4 * block : 4 * block + 4], "little")
        return GUARD if self.device.unbacked is Unbacked.GUARD else 0

    def write(
        self,
        row: ContextRow | GenerationRow | DummyRow,
        column: Column,
        table: TableRow,
        begin: int,
        end: int,
        content: memoryview,
    ) -> None:
        """Write cells ``[begin, end)`` of one row, page by page (a few cells)."""
        page = self.page
        pool = self.pool_of[column.index]
        flat, owners, sealed = self.flat[pool], self.owner[pool], self.sealed[pool]
        view, base, owner = table.view, table.base, row.owner
        adjacent, slot = self.device.addressing is Addressing.ADJACENT, GUARD
        at = begin
        while at < end:
            block = at // page
            offset = at - block * page
            stop = at + page - offset
            if stop > end:
                stop = end
            place = block - base
            backed = 0 <= place < len(view)
            if adjacent and at > begin:
                slot = min(slot + 1, len(owners) - 1)
            else:
                slot = view[place] if backed else self.slot_at(table, block)
            if not backed or owners[slot] != owner or offset < sealed[slot]:
                if self.laws is not None:
                    self.laws.bad_write(self, row, column, block, slot, at, not backed)
                if slot >= 0:
                    self.versions[pool][slot] += 1
            if slot >= 0:
                cell = slot * page + offset
                flat[cell : cell + stop - at] = content[at - begin : stop - begin]
            at = stop

    def write_span(self, row: ContextRow, column: Column, begin: int, end: int, cells: NDArray[np.uint64]) -> None:
        """Write cells ``[begin, end)`` of one chunk, whole pages at once."""
        page = self.page
        table = row.tables[column.index]
        first, last = begin // page, cdiv(end, page)
        few = last - first < FEW
        if few or first < table.base or (last - table.base) * 4 > len(table.pages):
            return self._write_holed(row, column, table, begin, end, cells)
        pool = self.pool_of[column.index]
        slots = np.frombuffer(table.pages, dtype=np.int32)[first - table.base : last - table.base]
        owners = np.frombuffer(self.owner[pool], dtype=np.int64)[slots]
        sealed = np.frombuffer(self.sealed[pool], dtype=np.int32)[slots]
        if (owners != row.owner).any() or sealed[1:].any() or sealed[0] > begin % page:
            return self._write_holed(row, column, table, begin, end, cells)
        store = self.cells[pool]
        head = min(end, (first + 1) * page)
        if begin % page or head == end:
            store[slots[0], begin % page : begin % page + head - begin] = cells[: head - begin]
            slots, cells, begin = slots[1:], cells[head - begin :], head
        full = (end - begin) // page
        if full > 0:
            store[slots[:full]] = cells[: full * page].reshape(full, page)
        rest = end - begin - full * page if end > begin else 0
        if rest > 0:
            store[slots[full], :rest] = cells[full * page :]
        return None

    def _write_holed(
        self, row: ContextRow, column: Column, table: TableRow, begin: int, end: int, cells: NDArray[np.uint64]
    ) -> None:
        self.write(row, column, table, begin, end, memoryview(np.ascontiguousarray(cells)))
