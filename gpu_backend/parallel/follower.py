"""A device that follows a rank's stream and runs a target over the same pages, tables and lengths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from gpu_backend.backend import kernels_for
from gpu_backend.modules.target import Target
from gpu_backend.modules.views import Lane, StepShape
from gpu_backend.parallel.meeting import Meeting
from gpu_backend.parallel.outputs import Said
from gpu_backend.parallel.share import content_of
from gpu_backend.replay.executor import DeviceWorld
from gpu_backend.replay.memory import DeviceMemory
from gpu_backend.replay.page_batch import PageBatch
from gpu_backend.replay.planes import sent, upload
from gpu_backend.replay.records import RecordRunner
from gpu_backend.replay.stepper import Stepper
from model.ops import World
from model.plan import ContextRow, GenerationRow, StepPlan

Live = tuple[list[ContextRow], list[GenerationRow], list[int]]


class ModelSteps(Stepper):
    """Steps that the target runs over as well; ``said`` is what it gave for each of them.

    The replay writes and judges tags; the target's K/V takes the place of the synthetic rows, and goes wherever the
    pages go. Accepted counts are forced: of a verify row so many tokens are the stream's, and the others are not.
    """

    def __init__(self, memory: DeviceMemory, records: RecordRunner, target: Target, meeting: Meeting | None) -> None:
        super().__init__(memory, records, None, graphs=False)
        self.target, self.meeting = target, meeting
        self.said: list[Said] = []
        columns = memory.target_columns
        self._columns = [
            next(column for column in columns if column.life.window == group.window) for group in target.config.groups
        ]
        rows, longest = self._columns[0].expected.shape
        self._tokens = torch.zeros((rows, longest), dtype=torch.int64, device=memory.device)
        self._owner_of = [-1] * rows  # whose tokens a row slot has
        self._own: Live = ([], [], [])
        self._length = memory.rows.length

    def run(self, plan: StepPlan, accepted: Sequence[int], batch: PageBatch) -> bool:
        told = super().run(plan, accepted, batch)
        context, generation, taken = self._own
        if context or generation:
            logits = self._forward(context, generation, taken)
            if self.meeting is not None:
                self.meeting.finished(self.memory.device, lambda: f"a sum of step {plan.iteration}")
            self.said.append(Said.of(plan.iteration, logits))
        return told

    def _live(self, plan: StepPlan, accepted: Sequence[int]) -> Live:
        self._own = super()._live(plan, accepted)
        self._length = self.memory.rows.length.clone()  # before the step moves it on
        for row in (*self._own[0], *self._own[1]):
            self._load(row.slot, row.owner)
        return self._own

    def _forward(
        self, context: Sequence[ContextRow], generation: Sequence[GenerationRow], taken: Sequence[int]
    ) -> torch.Tensor:
        """Logits behind every chunk and of all tokens of every verify row."""
        device, chunks, rows = self.memory.device, len(context), (*context, *generation)
        shape = StepShape(
            [row.end - row.start for row in context] + [row.width for row in generation], device, chunks=chunks
        )
        numbers = [row.slot for row in rows] + [row.start for row in context] + [0] * len(generation)
        numbers += [0] * chunks + list(taken)
        slot, start, count = upload(numbers, device).view(3, len(rows))
        chunk = torch.arange(len(rows), device=device) < chunks
        start = torch.where(chunk, start, self._length[slot].long())
        place = shape.positions(start)
        token = self._tokens[slot[shape.row], place.clamp(max=self._tokens.shape[1] - 1)]
        rejected = ~chunk[shape.row] & (place >= (start + count)[shape.row])
        token = torch.where(rejected, (token + 1) % self.target.config.vocabulary, token)
        base = torch.zeros_like(slot, dtype=torch.int32)
        lanes = [Lane(column.planes.pool.kv, column.table[slot], base) for column in self._columns]
        last = shape.last()
        wanted = torch.cat([last[:chunks], torch.arange(sum(shape.widths[:chunks]), len(shape.row), device=device)])
        return self.target(shape.step(token, start, lanes), wanted).logits

    def _load(self, slot: int, owner: int) -> None:
        """The rows of a slot are now ``owner``'s: its tokens go to the device."""
        if self._owner_of[slot] == owner:
            return
        stream = self.memory.known[owner].stream
        ids = stream.tokens(0, min(stream.length, self._tokens.shape[1])).astype(np.int64)
        self._tokens[slot, : len(ids)] = sent(torch.from_numpy(ids % self.target.config.vocabulary), self.memory.device)
        self._owner_of[slot] = owner


class ModelWorld(DeviceWorld):
    """Follows ``world`` with a ``target``, which may be a share whose layers sum over the ranks of a ``meeting``."""

    def __init__(self, world: World, device: torch.device, target: Target, meeting: Meeting | None) -> None:
        super().__init__(world, device, kernels_for(device), content_of(target.config))
        self.steps = self.model = ModelSteps(self.memory, self.records, target, meeting)
