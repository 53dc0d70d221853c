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
from gpu_backend.replay.planes import sent, upload
from model.drafter import Pass
from model.events import Kind
from model.plan import ContextRow, GenerationRow
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

    def _drafted(self, column: DeviceColumn, row: ContextRow, slot: torch.Tensor, position: torch.Tensor) -> None:
        """The drafter's cells of a chunk: the last of them need tokens that stand behind it."""
        memory, span = self.memory, column.life.lookahead
        known = memory.known[row.owner]
        place = memory.rows.place_of[row.owner]
        final = min(row.end, max(row.start, row.end + 1 - span)) if span and row.last else row.end
        if span:
            told = chunk_tags(
                memory.rules.lookahead, known.stream, row.start, row.end, last=row.last, span=span,
                seed=known.seeds[column.index], vocabulary=memory.vocabulary,
            )  # fmt: skip
            cells = sent(told[0], memory.device), sent(told[1], memory.device)
        else:
            tag = column.expected[row.slot, row.start : row.end]
            cells = cells_of(torch.ones_like(tag, dtype=torch.bool), tag, memory)
        table = column.table
        if memory.rules.rebase is Rebase.READS:
            table = column.shifted(memory.rows.drafter.base)
        memory.store(column, slot, position, cells, torch.ones_like(slot, dtype=torch.bool), table)
        memory.rows.final[place] = final

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

    def run(self, rows: Sequence[GenerationRow], accepted: Sequence[int], iteration: int) -> None:
        """Verify ``rows``, of which ``accepted`` tokens each are committed, let the drafter pass, log the frontiers."""
        memory = self.memory
        count = len(rows)
        if count:
            numbers = [row.slot for row in rows] + list(accepted) + [row.width for row in rows]
            slot, taken, width = upload(numbers, memory.device).view(3, count)
            start = memory.rows.length[slot].long()
            self._verify(slot, start, taken, width, max(row.width for row in rows))
            memory.rows.length[slot] = (start + taken).int()
            drafting = [place for place, row in enumerate(rows) if row.drafts and memory.draft_columns]
            if len(drafting) < count:
                memory.rows.drafter.length[slot] = (start + taken).int()
            if drafting:
                own = [rows[place] for place in drafting]
                if len(drafting) < count:
                    chosen = upload(drafting, memory.device)
                    slot, start, taken = slot[chosen], start[chosen], taken[chosen]
                places = upload([memory.rows.place_of[row.owner] for row in own], memory.device)
                self._pass(own, slot, start, taken, places)
        if memory.checks:
            self._log(rows, accepted, iteration)

    def _verify(
        self, slot: torch.Tensor, start: torch.Tensor, taken: torch.Tensor, width: torch.Tensor, widest: int
    ) -> None:
        """Target cells: content up to what is committed, drafts behind it."""
        column_of = torch.arange(widest, device=self.memory.device)
        position = start[:, None] + column_of
        given, final = column_of < width[:, None], column_of < taken[:, None]
        self._store(self.memory.target_columns, slot, position, final, given)

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

    def _pass(
        self,
        rows: Sequence[GenerationRow],
        slot: torch.Tensor,
        start: torch.Tensor,
        taken: torch.Tensor,
        places: torch.Tensor,
    ) -> None:
        """Fold the accepted tokens into the drafter's context, then draft."""
        memory, state = self.memory, self.memory.rows
        own = self.kind.slot or memory.rules.trim is not Trim.ACCEPTED
        length = state.drafter.length[slot].long() if own else start
        lag, after = start - length, length + taken
        width = max(row.width for row in rows)
        for column in memory.draft_columns:
            self._fold(column, slot, length, after, lag, state.final[places], width)
        drafts = upload([row.width - 1 for row in rows], memory.device)
        self._draft(slot, after, length, drafts, width)
        kept = after
        if not self.kind.slot and memory.rules.trim is Trim.REJECTED:
            rejected = drafts - (taken - 1)
            kept = after - (taken - (drafts - torch.minimum(rejected + 1, drafts)))
        state.drafter.length[slot] = kept.int()
        state.final[places] = after + lag - max(0, self.tag_span - 1)

    def _fold(
        self,
        column: DeviceColumn,
        slot: torch.Tensor,
        length: torch.Tensor,
        after: torch.Tensor,
        lag: torch.Tensor,
        final: torch.Tensor,
        width: int,
    ) -> None:
        memory, span = self.memory, column.life.lookahead
        begin = torch.minimum(length, final - lag) if span > 1 else length
        end = after - max(0, span - 1)
        step = torch.arange(width + max(0, span - 1), device=memory.device)
        position = begin[:, None] + step
        given = position < end[:, None]
        if memory.rules.provisional is Provisional.KEPT:
            first = (step == 0).expand_as(position)
            rows = fold_rows(Provisional.KEPT, slot[:, None].expand_as(position).int(), first)
            given = given & (rows >= 0)
        self._store([column], slot, position, torch.ones_like(given), given, lag)

    def _draft(
        self, slot: torch.Tensor, after: torch.Tensor, length: torch.Tensor, drafts: torch.Tensor, width: int
    ) -> None:
        """Cells that the pass leaves behind its context."""
        memory = self.memory
        block = self.kind.writes is Pass.BLOCK
        reach = after + (drafts if block else (drafts - 1).clamp(min=0))
        for column in memory.draft_columns:
            if self.kind.slot:
                table = self._write_table(column)
                told = column.buffer.table if table is column.table else table  # before unbacked entries resolve
                view = table, self._bounds(column, told)
                self._fixed(column, slot, after, (length + drafts + 1, CellState.MASKED, width), view)
                self._fixed(column, slot, after, (reach, CellState.PROVISIONAL, width), view)
                continue
            final = after - max(0, column.life.lookahead - 1)
            position = final[:, None] + torch.arange(width + column.life.lookahead, device=memory.device)
            given = position < reach[:, None]
            self._store([column], slot, position, torch.zeros_like(given), given)

    def _fixed(
        self,
        column: DeviceColumn,
        slot: torch.Tensor,
        after: torch.Tensor,
        what: tuple[torch.Tensor, CellState, int],
        view: tuple[torch.Tensor, torch.Tensor],
    ) -> None:
        """Columns from ``after`` up to an end, clamped to the last cell that the row may address."""
        memory, (end, state, width) = self.memory, what
        table, bound = view[0], view[1][slot][:, None]
        position = after[:, None] + torch.arange(width, device=memory.device)
        given = (position < end[:, None]) & (bound > 0)
        position = torch.minimum(position, bound - 1).reshape(-1)
        rows = slot[:, None].expand_as(given).reshape(-1)
        memory.store(column, rows, position, memory.fill(state, position), given.reshape(-1), table)

    def _bounds(self, column: DeviceColumn, table: torch.Tensor) -> torch.Tensor:
        """Positions that each row of a table may address, int64 ``[rows]``; the same kernel as for a rebased view."""
        rules, origin = self.memory.rules, self.memory.origin
        view = ConvertCall(
            table, origin, torch.empty_like(table), torch.empty_like(origin), 1, rules.extent, rules.unbacked
        )
        self.memory.kernels.convert(view)
        return view.extent.long() * column.page_size

    # -- the log -------------------------------------------------------------------------------------------------

    def _log(self, rows: Sequence[GenerationRow], accepted: Sequence[int], iteration: int) -> None:
        memory, state = self.memory, self.memory.rows
        if not rows:
            memory.journal.add(Kind.MEM_STEP, (iteration,))
            return
        slot, taken = upload([row.slot for row in rows] + list(accepted), memory.device).view(2, len(rows))
        length, drafted = state.length[slot].long(), state.drafter.length[slot].long()
        fields = [state.owner[slot], length, taken, state.drafter.base[slot].long(), drafted]
        page, tag = memory.target_columns[0].cell_at(slot, length - 1)
        fields += [page, logged(tag)]
        if self.drafter is None:
            fields += [torch.full_like(slot, -1), torch.zeros_like(slot)]
        else:
            page, tag = self.drafter.cell_at(slot, drafted - max(1, self.tag_span))
            fields += [page, logged(tag)]
        memory.journal.add(Kind.MEM_STEP, (iteration,), torch.stack(fields, 1))
