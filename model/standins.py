"""Rows without a request in the tagged memory: dummies with caches of their own, and the padding of a captured batch.

A dummy writes DUMMY cells where a verify row writes: its target cells, and the columns of its drafter's pass. Padding
rows fill a batch up to the size that its graph was captured for; what they touch is the *padding* rule's answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from model.events import Kind
from model.invariants.standins import StandInLaws
from model.plan import DummyRow, GenerationRow, StepPlan
from model.reader import DUMMY
from model.rules.device import Padding
from model.table import TableRow

if TYPE_CHECKING:
    from model.shadow import Shadow


class StandIns:
    """Runs the rows without a request of one memory's steps."""

    def __init__(self, shadow: Shadow) -> None:
        self.shadow = shadow
        self.laws = None if shadow.laws is None else StandInLaws(shadow.laws.docket)
        self._cells = memoryview(np.full(4 * shadow.steps + 2, DUMMY, dtype=np.uint64))
        # Batch position -> the request that was there last and its table rows, as a buffer that nobody clears has them.
        self._left: dict[int, tuple[int, tuple[TableRow, ...]]] = {}

    def run(self, plan: StepPlan, generation: list[GenerationRow]) -> None:
        """The dummies of a step, then the padding behind its ``generation`` rows as the device reads them."""
        for row in plan.dummies:
            self._dummy(row)
        padding = plan.device.padding
        for position in range(len(generation), len(generation) + plan.padding):
            if self.laws is not None:
                self.laws.count()
            if padding is Padding.LAST_CELL:
                self._last_cell()
            elif padding is Padding.STALE_ROW:
                self._stale_row(position)
            elif padding is Padding.REQUEST_SLOT:
                self._first_slot()
        if padding is Padding.STALE_ROW:
            self._left.update({place: (row.request_id, row.tables) for place, row in enumerate(generation)})

    def _dummy(self, row: DummyRow) -> None:
        shadow = self.shadow
        if self.laws is not None:
            self.laws.reads(shadow, row)
        position = row.position
        for column in shadow.target_columns:
            shadow.write(row, column, row.tables[column.index], position, position + row.width, self._cells)
        for column in shadow.draft_columns:
            # One accepted token is folded, then the drafts' columns follow.
            shadow.write(row, column, row.tables[column.index], position, position + row.width, self._cells)
        shadow.length[row.slot] = shadow.draft_length[row.slot] = position + 1
        slots = [shadow.slot_at(row.tables[column.index], position // shadow.page) for column in shadow.columns]
        shadow.log.memory.add((Kind.MEM_DUMMY, 3 + len(slots), shadow.iteration, row.owner, position, *slots))

    def _last_cell(self) -> None:
        """Row slot -1 counts from the end: the last cell of every pool is written."""
        shadow = self.shadow
        for index, flat in enumerate(shadow.flat):
            slot = len(flat) // shadow.page - 1
            flat[len(flat) - 1] = DUMMY
            shadow.versions[index][slot] += 1
            if self.laws is not None:
                self.laws.last_cell(shadow, index, slot)

    def _stale_row(self, position: int) -> None:
        """The table row at this place of the batch is what an earlier request left there, and is read."""
        left = self._left.get(position)
        if left is not None and self.laws is not None:
            self.laws.stale_row(self.shadow, *left)

    def _first_slot(self) -> None:
        """The row counts as one of slot 0: it moves that slot's lengths on by a token."""
        shadow = self.shadow
        if self.laws is not None:
            self.laws.request_slot(shadow, 0)
        shadow.length[0] += 1
        shadow.draft_length[0] += 1
