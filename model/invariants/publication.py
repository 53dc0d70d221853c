"""OWN and PUB of writes and publications: who may write a cell, and what may enter the prefix tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from model.cells import CellStore
from model.invariants.base import Violation
from model.invariants.slot_state import SlotLaws
from model.plan import ContextRow, DummyRow, GenerationRow
from model.reader import SENTINELS, Reader

if TYPE_CHECKING:
    from model.joint import Column
    from model.shadow import Shadow

Row = ContextRow | GenerationRow | DummyRow


class WriteLaws(SlotLaws):
    """Judge of what is written and published in one memory."""

    def bad_write(
        self, shadow: CellStore, row: Row, column: Column, block: int, slot: int, position: int, unbacked: bool
    ) -> None:
        """A write to a page that the row does not own alone, or over published cells."""
        pool = shadow.pool_of[column.index]
        tenant = shadow.owner[pool][slot] if slot >= 0 else -1
        expected = f"a page granted to owner {row.owner}"
        found = f"page of owner {tenant}" if slot >= 0 else "guard page"
        if unbacked:
            code, message = "OWN", f"writes through an unbacked entry, block {block}"
        elif tenant != row.owner:
            code, message = "OWN", "writes a page that it does not own alone"
        else:
            code, message = "PUB", "writes over published cells"
            sealed = shadow.sealed[pool][slot]
            expected = f"cells from offset {sealed} on"
            found = f"the cell at offset {position % shadow.page} of a page published for its first {sealed}"
        self.docket.report(
            Violation(
                code,
                f"{column.lifecycle.name}: {message}",
                row.request_id,
                column.pool.name,
                slot,
                position,
                shadow.iteration,
                expected=expected,
                found=found,
            )
        )

    def published(
        self,
        shadow: Shadow,
        column: Column,
        slots: NDArray[np.int32],
        vouched: NDArray[np.int32],
        owner: int,
        block: int,
    ) -> None:
        """Pages from ``block`` on enter the tree: each cell that a key speaks for is final and right."""
        reader = shadow.readers.get(owner)
        if reader is None:
            return
        self.docket.count("PUB", len(slots))
        page = shadow.page
        found = shadow.cells[shadow.pool_of[column.index]][slots]
        tags = reader.tags[column.index]
        begin, end = block * page, (block + len(slots)) * page
        if found.tobytes() == tags[begin:end].tobytes():
            return
        wanted = np.zeros(len(slots) * page, dtype=np.uint64)
        known = tags[begin:end]
        wanted[: len(known)] = known
        wrong = found != wanted.reshape(-1, page)
        if not wrong.any():
            return
        wrong &= np.arange(page) < vouched[:, None]
        for place in np.argwhere(wrong)[:1].tolist():
            self._bad_publication(shadow, column, reader, int(slots[place[0]]), begin + place[0] * page + place[1])

    def _bad_publication(self, shadow: Shadow, column: Column, reader: Reader, slot: int, position: int) -> None:
        cell = int(shadow.cells[shadow.pool_of[column.index]][slot, position % shadow.page])
        name = SENTINELS.get(cell)
        what = f"a cell that is {name}" if name is not None else "content that its key does not give"
        self.docket.report(
            Violation(
                "KEY" if name is None else "PUB",
                f"{column.lifecycle.name}: publishes {what}",
                reader.request_id,
                column.pool.name,
                slot,
                position,
                shadow.iteration,
                expected=f"tag {int(reader.tags[column.index][position]):016x}",
                found=name or f"tag {cell:016x}",
            )
        )
