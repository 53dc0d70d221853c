"""Rows without a request on the device: dummies with caches of their own, and the padding of a captured batch."""

from __future__ import annotations

import torch

from gpu_backend.calls import StoreCall
from gpu_backend.cells import SENTINEL, CellState
from gpu_backend.replay.columns import DeviceColumn, dense
from gpu_backend.replay.memory import DeviceMemory
from gpu_backend.replay.planes import FIRST_PAGE, sent
from model.events import Kind
from model.plan import DummyRow, StepPlan
from model.rules.device import Padding


class DeviceStandIns:
    """Runs the dummies and padding rows of one device's steps."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.memory = memory

    def run(self, plan: StepPlan, iteration: int) -> None:
        """The dummies of a step, then the padding behind its verify rows."""
        for row in plan.dummies:
            self._dummy(row, iteration)
        if plan.padding:
            self._pad(plan.device.padding, plan.padding)

    def _dummy(self, row: DummyRow, iteration: int) -> None:
        """A dummy writes its verify row in every column; it reads nothing that anybody looks at."""
        memory, rows = self.memory, self.memory.rows
        device = memory.device
        position = torch.arange(row.position, row.position + row.width, dtype=torch.int32, device=device)
        pages = []
        for column in memory.columns:
            table = sent(torch.from_numpy(dense(row.tables[column.index], memory.entries)[None]), device)
            table = column.resolved(table, memory.rules.unbacked)
            self._store(column, table, position)
            block = position[:1].long() // memory.page_size
            pages.append(torch.where(block < table.shape[1], table[0, block.clamp(max=table.shape[1] - 1)], -1).long())
        rows.length[row.slot].fill_(row.position + 1)
        rows.drafter.length[row.slot].fill_(row.position + 1)
        if memory.checks:
            page = torch.cat(pages)
            slots = torch.where(page >= 0, page - FIRST_PAGE, -1)
            at = torch.full((1,), row.slot, dtype=torch.int64, device=device)
            tenant = memory.target_columns[0].planes.tenant[slots[:1].clamp(min=0)]  # all dummies share one row slot
            memory.journal.add(Kind.MEM_DUMMY, (iteration,), tenant, rows.length[at] - 1, slots)

    def _store(self, column: DeviceColumn, table: torch.Tensor, position: torch.Tensor) -> None:
        """DUMMY cells of one row with a table of its own, int32 ``[1, columns]``."""
        memory, pool = self.memory, column.planes.pool
        tag = torch.full((len(position),), SENTINEL[CellState.DUMMY], device=memory.device)
        state = torch.full((len(position),), int(CellState.DUMMY), dtype=torch.int8, device=memory.device)
        row = torch.zeros_like(position)
        for layer in range(memory.content.layers):
            last = layer == memory.content.layers - 1
            k = memory.content.keys(tag, layer)
            memory.kernels.store(
                StoreCall(
                    k, memory.content.values(k), pool.k(layer), pool.v(layer), row, position, table, memory.origin[:1],
                    pool.cells if last else None, tag if last else None, state if last else None,
                )
            )  # fmt: skip

    def _pad(self, rule: Padding, count: int) -> None:
        """Padding rows move their slot's lengths on by a token each; by the right rule they write nothing."""
        rows = self.memory.rows
        slot = 0 if rule is Padding.REQUEST_SLOT else self.memory.dummy_slot
        rows.length[slot].add_(count)
        rows.drafter.length[slot].add_(count)
        if rule is Padding.LAST_CELL:
            for column in self.memory.columns:
                self._last_cell(column)

    def _last_cell(self, column: DeviceColumn) -> None:
        """Row -1 counts from the end: the last cell of the pool's last page, whoever has it."""
        pool, device = column.planes.pool, self.memory.device
        pool.cells.tags[-1, -1].fill_(SENTINEL[CellState.DUMMY])
        pool.cells.states[-1, -1].fill_(int(CellState.DUMMY))
        if self.memory.findings:
            slot = torch.full((1,), self.memory.dummy_slot, dtype=torch.int64, device=device)
            nobody = torch.full_like(self.memory.rows.owner, -1)
            table = torch.full((len(nobody), 1), pool.pages, dtype=torch.int32, device=device)
            given = torch.ones_like(slot, dtype=torch.bool)
            found = self.memory.findings[column.index]
            found.wrote(self.memory.kernels, slot, torch.zeros_like(slot), table, nobody, given)
