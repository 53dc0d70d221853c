"""A device that follows a rank's stream and runs target and drafter over the same pages, tables and lengths.

Tags are written and judged as in any replay; K/V of the modules lies in layers of its own, and goes wherever the pages
go. Accepted counts are forced: of a verify row so many tokens are the stream's, and the others are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gpu_backend.backend import kernels_for
from gpu_backend.modules.views import StepShape
from gpu_backend.parallel.meeting import Meeting
from gpu_backend.parallel.outputs import Said
from gpu_backend.parallel.share import drafts
from gpu_backend.replay.executor import DeviceWorld
from gpu_backend.replay.modelled import ModelRows, Models, Ran
from gpu_backend.replay.planes import upload
from model.ops import World
from model.plan import ContextRow, GenerationRow


class ForcedRows(ModelRows):
    """Rows whose tokens are the streams', whatever the target chooses; ids are taken modulo its vocabulary."""

    drafting = True

    def bind(self, slot: int, owner: int) -> None:
        if self.bound[slot] != owner:
            super().bind(slot, owner)
            self.slots.stream[slot] %= self.models.target.config.vocabulary

    def chunk(self, row: ContextRow) -> int | None:
        return super().chunk(row if self.drafting else row._replace(drafts=False))

    def verify(self, rows: Sequence[GenerationRow], counts: Sequence[int] | None) -> list[Ran]:
        """Verify rows, of which ``counts`` tokens are committed; rows that draft alike run together."""
        assert counts is not None
        for width, draws in sorted({(row.width, row.drafts) for row in rows}):
            own = [place for place, row in enumerate(rows) if (row.width, row.drafts) == (width, draws)]
            self._commit([rows[place] for place in own], width, [counts[place] for place in own])
        return []

    def _commit(self, rows: Sequence[GenerationRow], width: int, counts: Sequence[int]) -> None:
        memory, slots = self.memory, self.slots
        for row in rows:
            self.bind(row.slot, row.owner)
        shape = StepShape([width] * len(rows), memory.device)
        slot, taken = upload([row.slot for row in rows] + list(counts), memory.device).view(2, len(rows))
        start = memory.rows.length[slot].long()
        place = shape.positions(start)
        token = slots.stream[slot[shape.row], place]
        known = place < (start + taken)[shape.row]
        token = torch.where(known, token, (token + 1) % self.models.target.config.vocabulary)
        lanes = [self._target_lane(column, slot, place, shape) for column in memory.target_columns]
        output = slots.target(shape.step(token, start, lanes))
        if self.drafting and rows[0].drafts and memory.draft_columns:
            self._pass(slot, start, taken, (shape, output.features))


class ModelWorld(DeviceWorld):
    """Follows ``world`` with ``models``, which may be shares whose layers sum over the ranks of a ``meeting``.

    ``said``: logits of every step, of the target and then of the drafter.
    """

    def __init__(self, world: World, device: torch.device, models: Models, meeting: Meeting | None) -> None:
        super().__init__(world, device, kernels_for(device), models.content)
        self.meeting, self.dtype = meeting, models.content.dtype
        self.said: list[Said] = []
        self._logits: list[torch.Tensor] = []
        models.target.register_forward_hook(self._heard)
        models.drafter.register_forward_hook(self._heard)
        self.rows = ForcedRows(self.memory, models, self.steps.verify)
        self.rows.drafting = drafts(world.config)
        self.steps.modules = self._modelled
        for planes in self.memory.planes:  # what nobody wrote must show
            planes.pool.debug = True
            planes.pool.kv.fill_(float("nan"))

    def _heard(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        logits = output if isinstance(output, torch.Tensor) else output.logits
        self._logits.append(logits.flatten(0, -2))

    def _modelled(
        self, context: list[ContextRow], generation: list[GenerationRow], taken: list[int], iteration: int
    ) -> list[int]:
        for row in context:
            self.rows.chunk(row)
        self.rows.verify(generation, taken)
        if self.meeting is not None:
            self.meeting.finished(self.memory.device, lambda: f"a sum of step {iteration}")
        self.said.append(Said.of(iteration, torch.cat(self._logits)))
        self._logits.clear()
        return taken
