"""OWN, INIT, KEY, WINDOW and PUB: what every read, write and publication finds in the tagged memory.

A page that a row verified is trusted while its version stays: the version moves with every grant, copy, change of
tier and write by somebody else, and the owner's own writes are judged as they happen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from model.drafter import rebased
from model.geometry import cdiv
from model.invariants.base import Docket, Violation
from model.invariants.publication import WriteLaws
from model.pages import PagePool
from model.plan import ContextRow, GenerationRow, StepPlan
from model.reader import SENTINELS, UNWRITTEN, Reader
from model.shadow import Shadow
from model.table import TableRow

if TYPE_CHECKING:
    from model.joint import Column

SMALL = 1024  # pools up to this many pages are compared cell by cell when checks are exhaustive

Row = ContextRow | GenerationRow

_UNREAD = {
    "unwritten": "reads a cell that was never written",
    "provisional": "reads a cell that holds a draft: an accepted token was never written there",
    "masked": "reads a cell of a masked column: no token was ever written there",
    "dummy": "reads a cell that a dummy wrote: no token was ever written there",
}


class MemoryLaws(WriteLaws):
    """Judge of one shadow memory.

    ``exhaustive`` compares every cell that is read, at every read, where all pools are small.
    """

    def __init__(self, docket: Docket, exhaustive: bool, pools: Sequence[PagePool]) -> None:
        super().__init__(docket)
        self.exhaustive = exhaustive
        self.everything = exhaustive and max(pool.total for pool in pools) <= SMALL

    # -- rows ----------------------------------------------------------------------------------------------------

    def rows(self, shadow: Shadow, context: Sequence[ContextRow], generation: Sequence[GenerationRow]) -> None:
        """Judge what the rows of a step read before any of them writes."""
        quiet: list[tuple[Row, Reader]] = []
        slots, readers, everything = shadow.slots, shadow.readers, self.everything
        judged = 0
        for row in (*context, *generation):
            owner = row.owner
            if slots.get(row.slot) != owner:
                self._foreign_slot(shadow, row)
            reader = readers.get(owner)
            if reader is None:
                continue
            judged += 1
            if everything or reader.pending:
                self._row(shadow, row, reader)
            elif reader.tables is row.tables or self._grew(shadow, row, reader):
                quiet.append((row, reader))
            else:
                self._row(shadow, row, reader)
        if quiet:
            self._quiet(shadow, quiet)
        for code in ("OWN", "INIT", "KEY"):
            self.docket.count(code, judged * len(shadow.columns))
        self.docket.count("WINDOW", judged * shadow.windowed)
        self.docket.count("STATE", len(context) + len(generation))

    def _row(self, shadow: Shadow, row: Row, reader: Reader) -> None:
        """Look at every column of one row, and at what its slot keeps."""
        if shadow.base[row.slot] * shadow.page >= shadow.draft_length[row.slot] + shadow.page:
            self._strange_base(shadow, row)
        if isinstance(row, ContextRow):
            position = row.start
        else:
            position = shadow.length[row.slot]
            if row.real_drafts != (row.drafts and reader.slot >= 0) or (row.real_drafts and reader.flushed > position):
                self._strange_drafts(shadow, row, reader, position)
        for column in shadow.columns:
            if not self.everything or not self._intact(shadow, column, row, reader, position):
                self._verify(shadow, column, (row, reader, position), self.everything)
        reader.pending = isinstance(row, ContextRow)

    def _intact(self, shadow: Shadow, column: Column, row: Row, reader: Reader, position: int) -> bool:
        """Whether all that a row reads of a column without sinks is backed and right, page by page (small pools)."""
        low, high, lag = self._range(shadow, column, row, reader, position)
        if high <= low:
            return True
        page, index = shadow.page, column.index
        table, flat, tags = row.tables[index], shadow.flat[shadow.pool_of[index]], reader.views[index]
        first, last = low // page, (high - 1) // page
        if column.lifecycle.sinks or first < table.base or last >= table.base + len(table.view):
            return False
        for block in range(first, last + 1):
            begin, end = max(low, block * page), min(high, (block + 1) * page)
            cell = (table.view[block - table.base] - block) * page
            if flat[cell + begin : cell + end] != tags[begin + lag : end + lag]:
                return False
        return True

    def _grew(self, shadow: Shadow, row: Row, reader: Reader) -> bool:
        """Whether a row differs from what was verified only by pages behind all that it reads; notes their versions."""
        if isinstance(row, ContextRow):
            return False
        position = shadow.length[row.slot]
        for column in shadow.columns:
            table, old = row.tables[column.index], reader.seen_rows[column.index]
            if old is None or table.base != old.base or table.sinks != old.sinks:
                return False
            if not table.pages.startswith(old.pages) or (old.base + len(old.view)) * shadow.page < position:
                return False
        for column in shadow.columns:
            index = column.index
            table = row.tables[index]
            versions = shadow.versions[shadow.pool_of[index]][np.frombuffer(table.pages, dtype=np.int32)].tobytes()
            # A page that was given back and granted again has moved on, but what lies behind the position is not read.
            read = 8 * max(0, cdiv(position, shadow.page) - table.base)
            if versions[:read] != reader.seen_versions[index][:read]:
                return False
            reader.seen_versions[index], reader.seen_rows[index] = versions, table
        return True

    def _quiet(self, shadow: Shadow, rows: list[tuple[Row, Reader]]) -> None:
        """Rows whose tables did not change: their pages' versions must not have moved either."""
        for column in shadow.columns:
            index = column.index
            slots = np.frombuffer(b"".join([row.tables[index].pages for row, _ in rows]), dtype=np.int32)
            seen = b"".join([reader.seen_versions[index] for _, reader in rows])
            now = shadow.versions[shadow.pool_of[index]][slots].tobytes()
            if now == seen:
                continue
            end = 0
            for row, reader in rows:
                begin, end = end, end + len(reader.seen_versions[index])
                if now[begin:end] != reader.seen_versions[index]:
                    shadow.flush(reader)
                    self._verify(shadow, column, (row, reader, shadow.length[row.slot]), False)

    def uploaded(self, shadow: Shadow, plan: StepPlan, used: Sequence[Row]) -> None:
        """The device reads the table rows of this very step."""
        for planned, row in zip((*plan.context, *plan.generation), used, strict=True):
            self.docket.count("MAP")
            for column, own, told in zip(shadow.columns, planned.tables, row.tables, strict=True):
                if own != told:
                    self.docket.report(
                        Violation(
                            "MAP",
                            "the device reads the table of another step",
                            row.request_id,
                            column.pool.name,
                            step=plan.iteration,
                            expected=f"its own row: {len(own.view)} blocks from block {own.base}",
                            found=f"what the shared buffer held: {len(told.view)} blocks from block {told.base}",
                        )
                    )

    def _foreign_slot(self, shadow: Shadow, row: Row) -> None:
        holder = shadow.slots.get(row.slot)
        self.docket.report(
            Violation(
                "STATE",
                f"row slot {row.slot} still belongs to another request"
                if holder
                else f"row slot {row.slot} is not bound",
                row.request_id,
                step=shadow.iteration,
                expected=f"owner {row.owner}",
                found=f"owner {holder}" if holder else "nobody",
            )
        )

    def _range(self, shadow: Shadow, column: Column, row: Row, reader: Reader, position: int) -> tuple[int, int, int]:
        """Cells ``[low, high)`` that the row reads in this column, and how far its slot trails the request."""
        if not column.draft:
            return column.lifecycle.read_from(position), position, 0
        if not row.drafts:
            return position, position, 0
        hidden = shadow.base[row.slot] * shadow.page
        if shadow.twin.kind.slot:
            high = shadow.draft_length[row.slot]
            table = row.tables[column.index]
            first, visible = rebased(table.base + len(table.view), shadow.base[row.slot], high, shadow.page)
            if isinstance(row, ContextRow) or not visible:
                return high, high, 0  # the store projects and reads nothing; an empty context has nothing to read
            low = column.lifecycle.read_from(high + shadow.commits(row.owner))  # it reads once it has folded them
            return max(first * shadow.page, low), high, position - high
        high = min(position, reader.draft_final)
        return max(hidden, column.lifecycle.read_from(position)), high, 0

    def _verify(self, shadow: Shadow, column: Column, entry: tuple[Row, Reader, int], everything: bool) -> None:
        """Compare the blocks of a row that changed since it was last verified, and remember their versions."""
        row, reader, position = entry
        index, page = column.index, shadow.page
        table = row.tables[index]
        low, high, lag = self._range(shadow, column, row, reader, position)
        slots = np.frombuffer(table.pages, dtype=np.int32)
        versions = shadow.versions[shadow.pool_of[index]][slots]
        first, last = low // page, cdiv(high, page)
        if high > low:
            sinks = column.lifecycle.sink_blocks(page) if low else 0
            backed_from = max(first, table.base)
            if first < table.base:
                self._missing(shadow, column, row, table, first, high)
            if last > table.base + len(slots):
                self._missing(shadow, column, row, table, table.base + len(slots), high)
            inside = slice(backed_from - table.base, max(0, min(last, table.base + len(slots)) - table.base))
            suspects = np.arange(backed_from, table.base + inside.stop)
            if not everything and len(suspects):
                fresh = self._changed(reader, index, table, slots, versions)[inside]
                suspects = suspects[fresh | (suspects * page < reader.checked_from[index])]
            if len(suspects):
                self._compare(shadow, column, row, reader, suspects, slots[suspects - table.base], (low, high, lag))
            if sinks and (everything or reader.seen_rows[index] is None):
                blocks = np.arange(min(sinks, len(table.sinks) // 4))
                kept = np.frombuffer(table.sinks, dtype=np.int32)[: len(blocks)]
                hidden = shadow.base[row.slot] * page if column.draft else 0  # a base hides the sinks as well
                self._compare(shadow, column, row, reader, blocks, kept, (hidden, min(high, sinks * page), lag))
            reader.checked_from[index] = min(low, reader.checked_from[index])
        reader.seen_rows[index] = table
        reader.seen_versions[index] = versions.tobytes()

    @staticmethod
    def _changed(
        reader: Reader, index: int, table: TableRow, slots: NDArray[np.int32], versions: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Which blocks of the row hold another page, or another version of it, than when last verified."""
        changed = np.ones(len(slots), dtype=np.bool_)
        old = reader.seen_rows[index]
        if old is None:
            return changed
        old_slots = np.frombuffer(old.pages, dtype=np.int32)
        old_versions = np.frombuffer(reader.seen_versions[index], dtype=np.int64)
        begin = max(table.base, old.base)
        end = min(table.base + len(slots), old.base + len(old_slots))
        if end > begin:
            here, there = slice(begin - table.base, end - table.base), slice(begin - old.base, end - old.base)
            changed[here] = (slots[here] != old_slots[there]) | (versions[here] != old_versions[there])
        return changed

    def _missing(self, shadow: Shadow, column: Column, row: Row, table: TableRow, block: int, high: int) -> None:
        """A block that the row reads has no page: released too early, or never backed."""
        released = block < table.base
        self.docket.report(
            Violation(
                "WINDOW" if released else "OWN",
                "the window reads a released block" if released else "the row reads past its last backed block",
                row.request_id,
                column.pool.name,
                shadow.slot_at(table, block),
                block * shadow.page,
                shadow.iteration,
                expected=f"a page for block {block}: the row reads up to position {high}",
                found=f"row backs blocks {table.base}..{table.base + len(table.pages) // 4 - 1}",
            )
        )

    def _compare(
        self,
        shadow: Shadow,
        column: Column,
        row: Row,
        reader: Reader,
        blocks: NDArray[np.int64],
        slots: NDArray[np.int32],
        span: tuple[int, int, int],
    ) -> None:
        """Compare the cells of ``blocks`` that lie in ``[low, high)`` with the reader's own tags."""
        if not len(blocks):
            return
        low, high, lag = span
        page, pool = shadow.page, shadow.pool_of[column.index]
        tags = reader.tags[column.index]
        found = shadow.cells[pool][slots]
        first, last = int(blocks[0]), int(blocks[-1])
        if last - first == len(blocks) - 1:  # one run of cells
            origin = first * page
            begin, end = max(low, origin), min(high, (last + 1) * page)
            if found.reshape(-1)[begin - origin : end - origin].tobytes() == tags[begin + lag : end + lag].tobytes():
                return
        positions = blocks[:, None] * page + np.arange(page)
        wanted = tags[np.minimum(positions + lag, len(tags) - 1)]
        wrong = (found != wanted) & (positions >= low) & (positions < high)
        if not wrong.any():
            return
        place = np.argwhere(wrong)
        reader.invalid_below[column.index] = max(
            reader.invalid_below[column.index], int(positions[tuple(place[-1])]) + 1
        )
        row_of, offset = place[0]
        slot, cell = int(slots[row_of]), int(found[row_of, offset])
        self._wrong_cell(shadow, column, row, slot, cell, int(positions[row_of, offset]), int(wanted[row_of, offset]))

    def _wrong_cell(
        self, shadow: Shadow, column: Column, row: Row, slot: int, cell: int, position: int, wanted: int
    ) -> None:
        pool = shadow.pool_of[column.index]
        tenant = shadow.owner[pool][slot]
        name = SENTINELS.get(cell)
        foreign = tenant != row.owner and not shadow.sealed[pool][slot]
        if name is not None:
            code, message = "INIT", _UNREAD[name]
            if foreign and cell != UNWRITTEN:
                code, message = "OWN", f"reads a {name} cell of a page that another request holds"
        elif foreign:
            code, message = "OWN", "reads a page that another request holds"
        else:
            code, message = "KEY", "reads content that its own tokens do not give"
        self.docket.report(
            Violation(
                code,
                f"{column.lifecycle.name}: {message}",
                row.request_id,
                column.pool.name,
                slot,
                position,
                shadow.iteration,
                expected=f"tag {wanted:016x}",
                found=name or f"tag {cell:016x} (page granted to owner {tenant})",
            )
        )

    # -- the drafter's pass --------------------------------------------------------------------------------------

    def drafter_read(self, shadow: Shadow, row: GenerationRow, after: int) -> None:
        """The window of the drafter's pass at context length ``after`` lies in backed pages."""
        hidden = shadow.base[row.slot] * shadow.page
        for column in shadow.draft_columns:
            low = max(hidden, column.lifecycle.read_from(after))
            table = row.tables[column.index]
            if low < after and low // shadow.page < table.base:
                self._missing(shadow, column, row, table, low // shadow.page, after)

    def folded(
        self, shadow: Shadow, row: GenerationRow, reader: Reader, column: Column, span: tuple[int, int, int]
    ) -> None:
        """Cells ``[begin, end)`` that the drafter's pass folded, and now reads, are final and right."""
        begin, end, lag = span
        page, index = shadow.page, column.index
        table, flat, tags = row.tables[index], shadow.flat[shadow.pool_of[index]], reader.views[index]
        for block in range(max(begin // page, table.base), min(cdiv(end, page), table.base + len(table.view))):
            low, high = max(begin, block * page), min(end, (block + 1) * page)
            slot = table.view[block - table.base]
            cell = slot * page + low - block * page
            if flat[cell : cell + high - low] != tags[low + lag : high + lag]:
                place = np.array([slot], dtype=np.int32)
                self._compare(shadow, column, row, reader, np.array([block]), place, span)
