"""Rows without a request in the tagged memory: dummies with caches of their own, and the padding of a captured batch.

A dummy writes DUMMY cells where a verify row writes: its target cells, and the columns of its drafter's pass. Padding
rows fill a batch up to the size that its graph was captured for; what they touch is the *padding* rule's answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from model.events import Kind
from model.invariants.standins import StandInLaws, Touched
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
            self._pad(self._touched(padding, position))
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

    def _touched(self, padding: Padding, position: int) -> Touched:
        """What the padding row at ``position`` of the batch touches by the rule."""
        shadow = self.shadow
        scratch = shadow.twin.config.limits.max_batch
        if padding is Padding.LAST_CELL:  # row slot -1 counts from the end
            return Touched(scratch, writes=tuple((index, len(flat) - 1) for index, flat in enumerate(shadow.flat)))
        if padding is Padding.STALE_ROW and position in self._left:
            return Touched(scratch, *self._left[position])
        return Touched(0 if padding is Padding.REQUEST_SLOT else scratch)

    def _pad(self, touched: Touched) -> None:
        """A padding row runs: it moves its slot's lengths on by a token, and its cells hold no token's content."""
        shadow = self.shadow
        if self.laws is not None:
            self.laws.padding(shadow, touched)
        for index, cell in touched.writes:
            shadow.flat[index][cell] = DUMMY
            shadow.versions[index][cell // shadow.page] += 1
        shadow.length[touched.slot] += 1
        shadow.draft_length[touched.slot] += 1
