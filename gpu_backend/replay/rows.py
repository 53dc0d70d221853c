"""Rows of a step on the device: chunks of prompts, verify rows, and the drafter's passes behind them.

A verify row names its slot and its width; where it reads and writes follows from the slot's own length.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gpu_backend.answers import chunk_tags, fold_rows
from gpu_backend.calls import ConvertCall
from gpu_backend.cells import CellState
from gpu_backend.replay.columns import DeviceColumn
from gpu_backend.replay.journal import logged
from gpu_backend.replay.memory import DeviceMemory
from gpu_backend.replay.planes import sent
from gpu_backend.replay.step_rows import StepRows
from model.drafter import Pass
from model.events import Kind
from model.plan import ContextRow
from model.rules.device import Provisional, Rebase, Trim

Cells = tuple[torch.Tensor, torch.Tensor]


def cells_of(final: torch.Tensor, tag: torch.Tensor, memory: DeviceMemory) -> Cells:
    """Tags and states: content where ``final`` (bool), drafts elsewhere."""
    drafts, provisional = memory.fill(CellState.PROVISIONAL, tag)
    return torch.where(final, tag, drafts), torch.where(final, int(CellState.FINAL), provisional).to(torch.int8)


class Chunks:
    """Prompt chunks, one after the other."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.memory = memory
        self.slotted = memory.twin.kind.slot

    def run(self, row: ContextRow, iteration: int) -> None:
        """Store one chunk in every column and move the slot's lengths on."""
        memory, rows = self.memory, self.memory.rows
        count = row.end - row.start
        slot = torch.full((count,), row.slot, dtype=torch.int64, device=memory.device)
        position = torch.arange(row.start, row.end, device=memory.device)
        every = torch.ones_like(slot, dtype=torch.bool)
        length, drafted = rows.length[row.slot : row.slot + 1], rows.drafter.length[row.slot : row.slot + 1]
        before = length.clone()
        for column in memory.target_columns:
            tag = column.expected[row.slot, row.start : row.end]
            memory.store(column, slot, position, cells_of(every, tag, memory), every)
        stored = position
        if row.drafts and self.slotted and memory.draft_columns:
            stored = drafted.long() + torch.arange(count, device=memory.device)
        for column in memory.draft_columns if row.drafts else ():
            self._drafted(column, row, slot, stored)
        length.fill_(row.end)
        drafted.copy_(stored[-1:] + 1)
        if memory.checks:
            self._log(row, iteration, before)

    def move(self, context: Sequence[ContextRow]) -> None:
        """Move the lengths of all slots on and store nothing: for a memory that spells no cells."""
        rows, slotted = self.memory.rows, self.slotted and bool(self.memory.draft_columns)
        told = [(row.slot, row.end, row.end - row.start, row.drafts and slotted) for row in context]
        slot, end, count, own = sent(torch.tensor(told).T.contiguous(), self.memory.device)
        rows.length[slot] = end.int()
        rows.drafter.length[slot] = torch.where(own > 0, rows.drafter.length[slot] + count, end).int()

    def _drafted(self, column: DeviceColumn, row: ContextRow, slot: torch.Tensor, position: torch.Tensor) -> None:
        """The drafter's cells of a chunk: the last of them need tokens that stand behind it."""
        memory, span = self.memory, column.life.lookahead
        known = memory.known[row.owner]
        place, final = memory.rows.place_of[row.owner], row.end
        if span:
            if known.begun < 0:
                known.begun = row.start
            *told, final = chunk_tags(
                memory.rules.lookahead, known.stream, row, known.begun, span=span, seed=known.seeds[column.index],
                vocabulary=memory.vocabulary,
            )  # fmt: skip
            cells = sent(told[0], memory.device), sent(told[1], memory.device)
            again = len(told[0]) - len(position)  # cells before the chunk that wait for its token
            position = torch.arange(-again, len(position), device=memory.device) + position[:1]
            slot = torch.full_like(position, row.slot)
        else:
            tag = column.expected[row.slot, row.start : row.end]
            cells = cells_of(torch.ones_like(tag, dtype=torch.bool), tag, memory)
        table = column.table
        if memory.rules.rebase is Rebase.READS:
            table = column.shifted(memory.rows.drafter.base)
        memory.store(column, slot, position, cells, torch.ones_like(slot, dtype=torch.bool), table)
        memory.rows.final[place].fill_(final)

    def _log(self, row: ContextRow, iteration: int, before: torch.Tensor) -> None:
        memory, rows = self.memory, self.memory.rows
        slot = torch.full((1,), row.slot, dtype=torch.int64, device=memory.device)
        tags = []
        for column in memory.columns:
            length = rows.drafter.length if column.draft else rows.length
            tags.append(logged(column.cell_at(slot, length[slot].long() - 1)[1]))
        fields = (rows.owner[slot], before, rows.length[slot], rows.drafter.base[slot], *tags)
        memory.journal.add(Kind.MEM_CHUNK, (iteration,), *fields)


class VerifyRows:
    """The verify rows of a step, all at once."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.memory = memory
        self.kind = memory.twin.kind
        self.tag_span = memory.twin.tag_span
        self.drafter = memory.draft_columns[0] if memory.draft_columns else None

    def run(self, rows: StepRows) -> torch.Tensor:
        """Verify rows, let the drafter pass; returns what is logged of them, int64 ``[rows, 9]``."""
        memory, state = self.memory, self.memory.rows
        start = state.length[rows.slot].long()
        drafted = state.drafter.length[rows.slot].long()
        self._verify(rows, start)
        after = start + rows.taken
        state.length[rows.slot] = after.int()
        behind = torch.where(rows.chunk, drafted, after)  # padding rows leave their slot as it is
        if memory.draft_columns:
            behind = torch.where(rows.drafting, self._pass(rows, start, drafted), behind)
        state.drafter.length[rows.slot] = behind.int()
        return self._logged(rows) if memory.checks else start[:0]

    def _verify(self, rows: StepRows, start: torch.Tensor) -> None:
        """Target cells: content up to what is committed, drafts behind it."""
        if not self.memory.spells:
            return
        column_of = torch.arange(rows.widest, device=self.memory.device)
        position = start[:, None] + column_of
        given, final = column_of < rows.width[:, None], column_of < rows.taken[:, None]
        self._store(self.memory.target_columns, rows.slot, position, final, given)

    def _store(
        self,
        columns: Sequence[DeviceColumn],
        slot: torch.Tensor,
        position: torch.Tensor,
        final: torch.Tensor,
        given: torch.Tensor,
        lag: torch.Tensor | None = None,
    ) -> None:
        """Store ``[rows, cells]`` of every column; the content of a cell is that of the token ``lag`` behind it."""
        memory = self.memory
        rows = slot[:, None].expand_as(position).reshape(-1)
        flat, token = position.reshape(-1), position if lag is None else position + lag[:, None]
        for column in columns:
            tag = column.expected[slot[:, None], token.clamp(0, column.tokens - 1)]
            table = self._write_table(column)
            cells = cells_of(final.reshape(-1), tag.reshape(-1), memory)
            memory.store(column, rows, flat, cells, given.reshape(-1), table)

    def _write_table(self, column: DeviceColumn) -> torch.Tensor:
        if column.draft and self.memory.rules.rebase is Rebase.READS:
            return column.shifted(self.memory.rows.drafter.base)
        return column.table

    # -- the drafter's pass --------------------------------------------------------------------------------------

    def _pass(self, rows: StepRows, start: torch.Tensor, drafted: torch.Tensor) -> torch.Tensor:
        """Fold the accepted tokens into the drafter's context, then draft; returns the drafter's new lengths.

        Rows that are not drafting store nothing.
        """
        memory, state, taken = self.memory, self.memory.rows, rows.taken
        own = self.kind.slot or memory.rules.trim is not Trim.ACCEPTED
        length = drafted if own else start
        lag, after = start - length, length + taken
        final = state.final[rows.place]
        drafts = rows.width - 1
        if memory.spells:
            for column in memory.draft_columns:
                self._fold(column, rows, (length, after, lag), final)
            self._draft(rows, after, length, drafts)
        kept = after
        if not self.kind.slot and memory.rules.trim is Trim.REJECTED:
            rejected = drafts - (taken - 1)
            kept = after - (taken - (drafts - torch.minimum(rejected + 1, drafts)))
        state.final[rows.place] = torch.where(rows.drafting, after + lag - max(0, self.tag_span - 1), final)
        return kept

    def _fold(
        self,
        column: DeviceColumn,
        rows: StepRows,
        lengths: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        settled: torch.Tensor,
    ) -> None:
        """Cells of tokens from the drafter's length on up to that behind the step; ``lengths``: both, and the lag."""
        memory, span = self.memory, column.life.lookahead
        length, after, lag = lengths
        begin = torch.minimum(length, settled - lag) if span > 1 else length
        end = after - max(0, span - 1)
        step = torch.arange(rows.widest + max(0, span - 1), device=memory.device)
        position = begin[:, None] + step
        given = (position < end[:, None]) & rows.drafting[:, None]
        final = torch.ones_like(given)
        if memory.rules.provisional is Provisional.KEPT:
            first = (step == 0).expand_as(position)
            final = fold_rows(Provisional.KEPT, rows.slot[:, None].expand_as(position).int(), first) >= 0
        self._store([column], rows.slot, position, final, given, lag)

    def _draft(self, rows: StepRows, after: torch.Tensor, length: torch.Tensor, drafts: torch.Tensor) -> None:
        """Cells that the pass leaves behind its context."""
        memory = self.memory
        block = self.kind.writes is Pass.BLOCK
        reach = after + (drafts if block else (drafts - 1).clamp(min=0))
        for column in memory.draft_columns:
            if self.kind.slot:
                table = self._write_table(column)
                told = column.buffer.table if table is column.table else table  # before unbacked entries resolve
                view = table, self._bounds(column, told)
                self._fixed(column, rows, after, (length + drafts + 1, CellState.MASKED), view)
                self._fixed(column, rows, after, (reach, CellState.PROVISIONAL), view)
                continue
            final = after - max(0, column.life.lookahead - 1)
            position = final[:, None] + torch.arange(rows.widest + column.life.lookahead, device=memory.device)
            given = (position < reach[:, None]) & rows.drafting[:, None]
            self._store([column], rows.slot, position, torch.zeros_like(given), given)

    def _fixed(
        self,
        column: DeviceColumn,
        rows: StepRows,
        after: torch.Tensor,
        what: tuple[torch.Tensor, CellState],
        view: tuple[torch.Tensor, torch.Tensor],
    ) -> None:
        """Columns from ``after`` up to an end, clamped to the last cell that the row may address."""
        memory, (end, state) = self.memory, what
        table, bound = view[0], view[1][rows.slot][:, None]
        position = after[:, None] + torch.arange(rows.widest, device=memory.device)
        given = (position < end[:, None]) & (bound > 0) & rows.drafting[:, None]
        position = torch.minimum(position, bound - 1).reshape(-1)
        slot = rows.slot[:, None].expand_as(given).reshape(-1)
        memory.store(column, slot, position, memory.fill(state, position), given.reshape(-1), table)

    def _bounds(self, column: DeviceColumn, table: torch.Tensor) -> torch.Tensor:
        """Positions that each row of a table may address, int64 ``[rows]``; the same kernel as for a rebased view."""
        rules, origin = self.memory.rules, self.memory.origin
        view = ConvertCall(
            table, origin, torch.empty_like(table), torch.empty_like(origin), 1, rules.extent, rules.unbacked
        )
        self.memory.kernels.convert(view)
        return view.extent.long() * column.page_size

    # -- the log -------------------------------------------------------------------------------------------------

    def _logged(self, rows: StepRows) -> torch.Tensor:
        memory, state, slot = self.memory, self.memory.rows, rows.slot
        length, drafted = state.length[slot].long(), state.drafter.length[slot].long()
        fields = [state.owner[slot], length, rows.taken, state.drafter.base[slot].long(), drafted]
        page, tag = memory.target_columns[0].cell_at(slot, length - 1)
        fields += [page, logged(tag)]
        if self.drafter is None:
            fields += [torch.full_like(slot, -1), torch.zeros_like(slot)]
        else:
            page, tag = self.drafter.cell_at(slot, drafted - max(1, self.tag_span))
            fields += [page, logged(tag)]
        return torch.stack(fields, 1)
