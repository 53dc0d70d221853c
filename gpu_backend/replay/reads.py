"""What the rows of a step are about to read, checked on the device before any of them writes."""

from __future__ import annotations

import torch

from gpu_backend.calls import CheckCall
from gpu_backend.cells import ONLY_FINAL
from gpu_backend.replay.columns import DeviceColumn
from gpu_backend.replay.full import AttentionProbe, ReadRange
from gpu_backend.replay.memory import DeviceMemory
from gpu_backend.replay.step_rows import StepRows
from model.rules.device import Rebase


class ReadCheck:
    """Ranges follow from the slots' own lengths and bases; a row is judged in every column."""

    def __init__(self, memory: DeviceMemory, probe: AttentionProbe | None = None) -> None:
        self.memory, self.probe = memory, probe
        self.slotted = memory.twin.kind.slot
        # 1 for row slots whose base lay a page or more behind their length when they ran last, int32 [rows].
        self.strange = torch.zeros_like(memory.rows.length)
        self._longest = memory.tokens

    def run(self, rows: StepRows) -> None:
        """Check all rows of a step; the tokens taken of a verify row will be folded before its drafter reads."""
        memory, slot = self.memory, rows.slot
        self._longest = rows.longest
        drafter = memory.rows.drafter
        strange = drafter.base[slot] * memory.page_size >= drafter.length[slot] + memory.page_size
        self.strange[slot] = strange.int()
        position = torch.where(rows.chunk, rows.start, memory.rows.length[slot].long())
        for column in memory.target_columns:
            column.note_generations(memory.kernels, slot, memory.rows.owner)
            low = _read_from(column, position)
            self._check(column, slot, low, position)
            if column.life.sinks:
                self._check(column, slot, torch.zeros_like(low), torch.minimum(low, self._sinks(column, position)))
        for column in memory.draft_columns:
            column.note_generations(memory.kernels, slot, memory.rows.owner)
            if self.slotted:
                self._slotted(column, slot, rows.taken, rows.drafting & ~rows.chunk)
            else:
                self._plain(column, slot, position, memory.rows.final[rows.place], rows.drafting)

    def _sinks(self, column: DeviceColumn, high: torch.Tensor) -> torch.Tensor:
        sinks = column.life.sink_blocks(column.page_size) * column.page_size
        return high.clamp(max=sinks)

    def _plain(
        self,
        column: DeviceColumn,
        slot: torch.Tensor,
        position: torch.Tensor,
        final: torch.Tensor,
        reads: torch.Tensor,
    ) -> None:
        """A drafter without slots of its own reads its final cells up to where the request stands."""
        hidden = self.memory.rows.drafter.base[slot].long() * column.page_size
        high = torch.minimum(position, final)
        low = torch.maximum(hidden, _read_from(column, position))
        self._check(column, slot, low, torch.where(reads, high, low))
        if column.life.sinks:
            self._check(column, slot, hidden, torch.where(reads, torch.minimum(low, self._sinks(column, high)), hidden))

    def _slotted(
        self,
        column: DeviceColumn,
        slot: torch.Tensor,
        taken: torch.Tensor,
        reads: torch.Tensor,
    ) -> None:
        """A drafter's slot is read through its base, once the accepted tokens are folded."""
        memory = self.memory
        base = memory.rows.drafter.base
        hidden = base[slot].long() * column.page_size
        high = memory.rows.drafter.length[slot].long()
        low = torch.maximum(hidden, _read_from(column, high + taken))
        low, high = torch.where(reads, low, 0), torch.where(reads, high, 0)
        if memory.rules.rebase is Rebase.WRITES:
            self._check(column, slot, low, high, table=column.shifted(base), trailing=True)
            return
        shift = torch.where(reads, hidden, 0)
        self._check(column, slot, low - shift, high - shift, base, trailing=True)

    def _trailing(self, column: DeviceColumn) -> torch.Tensor:
        """Expected tags by cell where slots trail their requests: a cell holds the token that far behind it."""
        expected = column.expected.clone()
        lags = self.memory.rows.lag
        for slot, lag in enumerate(lags):
            if lag > 0:
                expected[slot, :-lag] = column.expected[slot, lag:]
            elif lag < 0:
                expected[slot, -lag:] = column.expected[slot, :lag]
        return expected

    def _check(
        self,
        column: DeviceColumn,
        slot: torch.Tensor,
        low: torch.Tensor,
        high: torch.Tensor,
        base: torch.Tensor | None = None,
        table: torch.Tensor | None = None,
        *,
        trailing: bool = False,
    ) -> None:
        """Check positions ``[low, high)`` of rows ``slot``, counted from ``base`` pages on.

        ``trailing``: the cells are of slots that may trail their requests.
        """
        memory, pool = self.memory, column.planes.pool
        reads = ReadRange(
            column, slot, low, torch.maximum(low, high), column.origin if base is None else base,
            self._trailing(column) if trailing and self.probe is not None else column.expected,
            column.table if table is None else table,
        )  # fmt: skip
        span = torch.zeros((2, len(column.origin)), dtype=torch.int32, device=memory.device)
        span[:, slot] = torch.stack([reads.low, reads.high]).int()
        memory.kernels.check(
            CheckCall(
                pool.cells,
                pool.generation,
                column.expected,
                column.seen_generation,
                reads.table,
                reads.base,
                span[0],
                span[1],
                memory.findings[column.index].reads,
                ONLY_FINAL,
                lag=memory.rows.trail if trailing else None,
            ),
            self._longest,
        )
        if self.probe is not None:
            self.probe.look(reads)


def _read_from(column: DeviceColumn, position: torch.Tensor) -> torch.Tensor:
    """First position that queries at ``position`` attend, sinks aside."""
    window = column.life.window
    return torch.zeros_like(position) if window is None else (position + 1 - window).clamp(min=0)
