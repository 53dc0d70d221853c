"""One step on the device: tables, what its rows read, what they write; by a graph, or kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_backend.replay.agreed import Agreed
from gpu_backend.replay.full import AttentionProbe
from gpu_backend.replay.graphs import GenerationSteps, fits
from gpu_backend.replay.memory import DeviceMemory
from gpu_backend.replay.page_batch import PageBatch
from gpu_backend.replay.planes import sent
from gpu_backend.replay.reads import ReadCheck
from gpu_backend.replay.records import RecordRunner
from gpu_backend.replay.rows import Chunks, VerifyRows
from gpu_backend.replay.standins import DeviceStandIns
from gpu_backend.replay.step_rows import StepRows, longest_read, pack
from model.events import Kind
from model.plan import ContextRow, GenerationRow, StepPlan
from model.rules.device import TableUpload

# Real modules compute the rows of a step ahead of their tags; given its chunks, its verify rows, the tokens of each to
# commit and its iteration, they say how many are committed. None where rows are synthetic.
Modules = Callable[[list[ContextRow], list[GenerationRow], list[int], int], list[int]]
# What they gave in a graph, for its verify rows, the tokens that each was to commit, and its iteration.
Heard = Callable[[Agreed, list[GenerationRow], list[int], int], None]


class Stepper:
    """Runs the rows of steps. ``graphs``: steps of verify rows alone are padded to a batch size and captured."""

    def __init__(
        self, memory: DeviceMemory, records: RecordRunner, probe: AttentionProbe | None, *, graphs: bool
    ) -> None:
        self.memory, self.records = memory, records
        self.chunks, self.verify = Chunks(memory), VerifyRows(memory)
        self.stand_ins, self.reads = DeviceStandIns(memory), ReadCheck(memory, probe)
        batches = memory.batches
        self.graphs = GenerationSteps(memory, records, self.reads, self.verify, batches) if graphs else None
        self.rows = 0
        # Owners, slots, widths and drafting of the last step of verify rows alone whose rows were all live, behind
        # which epoch of the memory; its rows as packed, and a bound of what they read. Few steps differ from the last.
        self._lined: tuple[tuple[tuple, ...], int] | None = None
        self._packed: tuple[NDArray[np.int64], int] | None = None
        self.modules: Modules | None = None
        self.heard: Heard | None = None  # told what modules gave in a graph, where they may run in one

    def run(self, plan: StepPlan, accepted: Sequence[int], batch: PageBatch) -> bool:
        """Run a step behind its records, of which ``batch`` is left to do; whether the journal has its state."""
        context, generation, taken = self._live(plan, accepted)
        self.rows += len(context) + len(generation)
        alone = not plan.context and not plan.dummies and bool(generation)
        if self.graphs is not None and alone and self._captures(self.graphs, plan, generation):
            told = self._replayed(self.graphs, plan, generation, taken, batch)
        else:
            for found in self.memory.findings:  # a graph does so itself
                found.clear()
            self.records.flush(batch)
            self._upload(plan)
            self._rows(context, generation, taken, plan.iteration)
            told = False
        self.stand_ins.run(plan, plan.iteration)
        return told

    def _captures(self, graphs: GenerationSteps, plan: StepPlan, generation: list[GenerationRow]) -> bool:
        """Whether verify rows run in a graph: its rules are served, and so are the modules' rows."""
        if not graphs.serves(plan.device):
            return False
        return self.modules is None or (graphs.modules is not None and graphs.modules.ready(generation))

    def _replayed(
        self, graphs: GenerationSteps, plan: StepPlan, generation: list[GenerationRow], taken: list[int],
        batch: PageBatch,
    ) -> bool:  # fmt: skip
        """Verify rows in a graph; what it has no room for is carried out ahead of it."""
        memory = self.memory
        _, _, slots, _, _, tables, _ = zip(*plan.generation, strict=True)
        told = list(zip(*tables, strict=True))
        changes = [column.changes(slots, told[column.index]) for column in memory.columns]
        room, small = fits(batch, changes)
        if not room:
            batch = self.records.flush(batch)
        for place, column in enumerate(memory.columns):
            changed = changes[place]
            if changed is not None and not small[place]:
                column.buffer.change(sent(torch.from_numpy(changed), memory.device))
                changes[place] = None
            column.table = column.buffer.table
        if self._packed is None:
            packed = pack(memory, [], generation, taken, graphs.padded(len(generation)))
            # Only checks of reads ask how far rows read: without them every length has the same graph.
            self._packed = packed, longest_read(memory, generation) if memory.checks else memory.tokens
        else:
            self._packed[0][2, : len(taken)] = taken
        complete = graphs.run(*self._packed, len(taken), batch, changes, plan.iteration)
        if self.heard is not None and graphs.agreed is not None:
            self.heard(graphs.agreed, generation, taken, plan.iteration)
        return complete

    def _rows(
        self, context: list[ContextRow], generation: list[GenerationRow], taken: list[int], iteration: int
    ) -> None:
        """What rows read is checked before any of them writes; chunks one after the other, then the verify rows."""
        memory = self.memory
        fields = []
        if context or generation:
            told = sent(torch.from_numpy(pack(memory, context, generation, taken)), memory.device)
            rows = StepRows.of(told, memory.width, longest_read(memory, (*context, *generation)))
            if memory.checks:
                self.reads.run(rows)
            if self.modules is not None:
                taken = self.modules(context, generation, taken, iteration)
                told = sent(torch.from_numpy(pack(memory, context, generation, taken)), memory.device)
                rows = StepRows.of(told, rows.widest, rows.longest)
            for row in context if memory.spells else ():
                self.chunks.run(row, iteration)
            if context and not memory.spells:
                self.chunks.move(context)
            if generation:
                fields.append(self.verify.run(rows.behind(len(context))))
        if memory.checks:
            memory.journal.add(Kind.MEM_STEP, (iteration,), *fields)

    def _live(self, plan: StepPlan, accepted: Sequence[int]) -> tuple[list[ContextRow], list[GenerationRow], list[int]]:
        """Rows whose requests have not ended; those of others run on, and nobody looks."""
        lined = None
        if plan.generation and not plan.context:
            _, owners, slots, widths, _, _, drafts = zip(*plan.generation, strict=True)
            lined = owners, slots, widths, drafts
            if self._lined == (lined, self.memory.epoch):
                return [], plan.generation, list(accepted)
        known, loaded = self.memory.known, self.memory.loaded
        context = [row for row in plan.context if row.owner in known]
        generation, taken = [], []
        for row, count in zip(plan.generation, accepted, strict=True):
            if row.owner in known:
                generation.append(row)
                taken.append(count)
        for row in (*context, *generation):
            if loaded[row.slot] != row.owner:
                self.memory.load(row.slot, row.owner)
        self._packed = self._lined = None
        if lined is not None and len(generation) == len(plan.generation):
            self._lined = lined, self.memory.epoch
        return context, generation, taken

    def _upload(self, plan: StepPlan) -> None:
        """Every row's table, those of ended requests too; a shared buffer keeps what a step leaves in it."""
        rows = (*plan.context, *plan.generation)
        if not rows and plan.device.table is not TableUpload.SHARED_BUFFER:
            return
        slots = [row.slot for row in rows]
        for column in self.memory.columns:
            column.upload(slots, [row.tables[column.index] for row in rows], plan.device.unbacked)
