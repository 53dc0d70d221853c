"""Generation steps of one batch size and more rows than are there: one captured graph for each size.

Everything that a step is told lies in one array that the host fills and copies: its rows, padded by rows of the
dummies' slot, the entries of its tables that change, the pages that are granted and published before it. What is read
back lies in one array too. On a GPU the second step of a size is captured and replayed from then on; elsewhere the same
function runs every time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_backend.layout import UNBACKED
from gpu_backend.replay.journal import Part
from gpu_backend.replay.memory import DeviceMemory
from gpu_backend.replay.page_batch import PageBatch, PoolBatch, Room, carry_out, size
from gpu_backend.replay.reads import ReadCheck
from gpu_backend.replay.records import RecordRunner
from gpu_backend.replay.rows import VerifyRows
from gpu_backend.replay.segments import slots_state
from gpu_backend.replay.step_rows import FIELDS, StepRows
from model.events import Kind
from model.rules.device import DeviceRules, Padding, TableUpload, Unbacked

ROOM: Room = (64, 64, 64)  # of a pool's grants and publications in one step; what is more runs ahead of the graph
ENTRIES = 128  # of a table that change in one step; likewise
LOGGED = 9  # numbers of a row in the log
STAGES = 4  # host arrays that are filled in turn


@dataclass(slots=True)
class Size:
    """What belongs to one batch size: the arrays, and the graph once it is captured."""

    rows: int
    longest: int
    told: torch.Tensor
    stages: list[torch.Tensor]
    copied: list[torch.cuda.Event]
    out: torch.Tensor | None = None
    graph: torch.cuda.CUDAGraph | None = None
    runs: int = 0
    views: list[NDArray[np.int64]] = field(default_factory=list)
    blank: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # a step that changes nothing


class GenerationSteps:
    """Runs steps that have verify rows only. ``batches`` are the sizes to pad to, powers of two without any."""

    def __init__(
        self,
        memory: DeviceMemory,
        records: RecordRunner,
        reads: ReadCheck,
        verify: VerifyRows,
        batches: tuple[int, ...] = (),
    ) -> None:
        self.memory, self.records, self.reads, self.verify = memory, records, reads, verify
        self.batches = sorted(batches)
        self.steps = self.captured = self.replayed = 0
        self._sizes: dict[tuple[object, ...], Size] = {}
        # Sets of rules that came up, by the order in which they did: to hash one takes longer than to recognise it.
        self._rules: dict[DeviceRules, int] = {}
        self._current: tuple[DeviceRules | None, int] = (None, -1)
        self._pool: Any = None  # memory that the graphs share: what one leaves is read before the next runs

    def serves(self, rules: DeviceRules) -> bool:
        """Whether a graph carries out these rules: tables stay in place, and padding behind it changes no row."""
        in_place = rules.table is TableUpload.PER_STEP and rules.unbacked is Unbacked.GUARD
        return in_place and rules.padding in (Padding.SCRATCH, Padding.STALE_ROW)

    def run(
        self,
        packed: NDArray[np.int64],
        longest: int,
        count: int,
        batch: PageBatch,
        changes: list[NDArray[np.int64] | None],
        iteration: int,
    ) -> bool:
        """Carry out a batch of records, changes of tables and the verify rows behind; whether their log has it all.

        ``packed`` int64 ``[FIELDS, padded(count)]`` are ``count`` rows that read positions below ``longest``.
        """
        memory = self.memory
        step = self._size(packed.shape[1], longest)
        place = step.runs % len(step.stages)
        if step.copied and step.runs >= len(step.stages):
            step.copied[place].synchronize()
        self._fill(step.views[place], step, packed, batch, changes)
        if step.told.is_cuda:
            step.told.copy_(step.stages[place], non_blocking=True)
            step.copied[place].record()
        step.runs += 1
        self.steps += 1
        if step.graph is not None:
            step.graph.replay()
            self.replayed += 1
        elif step.told.is_cuda and step.runs > 1:
            self._capture(step)
        else:
            step.out = self._carry_out(step)
        if memory.checks:
            assert step.out is not None
            self._note(step, batch, count, iteration)
        return memory.checks

    # -- sizes ---------------------------------------------------------------------------------------------------

    def padded(self, rows: int) -> int:
        """The batch size by which ``rows`` verify rows run."""
        return next((size for size in self.batches if size >= rows), 0) or 1 << (rows - 1).bit_length()

    def _size(self, wanted: int, longest: int) -> Size:
        memory = self.memory
        if self._current[0] is not memory.rules:
            self._current = memory.rules, self._rules.setdefault(memory.rules, len(self._rules))
        key = (wanted, longest, self._current[1], memory.rows.final.data_ptr(), id(memory.kernels))
        found = self._sizes.get(key)
        if found is None:
            numbers = FIELDS * wanted + len(memory.columns) * 3 * ENTRIES + len(memory.planes) * size(ROOM)
            on_gpu = memory.device.type == "cuda"
            count = STAGES if on_gpu else 1
            stages = [torch.zeros(numbers, dtype=torch.int64, pin_memory=on_gpu) for _ in range(count)]
            told = torch.zeros(numbers, dtype=torch.int64, device=memory.device) if on_gpu else stages[0]
            copied = [torch.cuda.Event() for _ in stages] if on_gpu else []
            found = self._sizes[key] = Size(wanted, longest, told, stages, copied)
            found.views = [stage.numpy() for stage in stages]
            found.blank = self._blank(wanted, numbers)
        return found

    def _blank(self, rows: int, numbers: int) -> NDArray[np.int64]:
        """What a step of ``rows`` rows is told that changes no table, no page and no row."""
        blank, at = np.zeros(numbers, dtype=np.int64), FIELDS * rows
        for _ in self.memory.columns:
            block = blank[at : at + 3 * ENTRIES].reshape(3, ENTRIES)
            block[0] = self.memory.dummy_slot  # whose row stays unbacked
            block[2] = UNBACKED
            at += 3 * ENTRIES
        for planes in self.memory.planes:
            blank[at : at + size(ROOM)] = PoolBatch().pack(ROOM, planes.nobody)
            at += size(ROOM)
        return blank

    def _fill(
        self,
        stage: NDArray[np.int64],
        step: Size,
        told: NDArray[np.int64],
        batch: PageBatch,
        changes: list[NDArray[np.int64] | None],
    ) -> None:
        at = FIELDS * step.rows
        stage[:at] = told.reshape(-1)
        stage[at:] = step.blank[at:]
        for changed in changes:
            if changed is not None:
                stage[at : at + 3 * ENTRIES].reshape(3, ENTRIES)[:, : changed.shape[1]] = changed
            at += 3 * ENTRIES
        for planes, pool in zip(self.memory.planes, batch.pools, strict=True):
            if any(pool.room):
                stage[at : at + size(ROOM)] = pool.pack(ROOM, planes.nobody)
            at += size(ROOM)

    # -- on the device -------------------------------------------------------------------------------------------

    def _capture(self, step: Size) -> None:
        """Capture the step, which ran once and so is compiled, and run it."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            step.out = self._carry_out(step)
        self._pool = graph.pool()
        step.graph = graph
        self.captured += 1
        graph.replay()

    def _carry_out(self, step: Size) -> torch.Tensor | None:
        """Everything that the step is told, in the order of an eager step; what is read back, int64."""
        memory, records, at = self.memory, self.records, FIELDS * step.rows
        for found in memory.findings:
            found.clear()
        pages = at + len(memory.columns) * 3 * ENTRIES
        parts = []
        for planes in memory.planes:
            parts.append(carry_out(memory, planes, step.told[pages : pages + size(ROOM)], ROOM, records.unfinished))
            pages += size(ROOM)
        for column in memory.columns:
            column.buffer.change(step.told[at : at + 3 * ENTRIES].view(3, ENTRIES))
            at += 3 * ENTRIES
        rows = StepRows.of(step.told[: FIELDS * step.rows].view(FIELDS, step.rows), memory.width, step.longest)
        if memory.checks:
            self.reads.run(rows)
        parts.append(self.verify.run(rows).reshape(-1))
        if not memory.checks:
            return None
        parts += [slots_state(memory, self.reads).reshape(-1).long(), records.unfinished]
        parts += [findings.tensors() for findings in memory.findings]
        out = torch.cat(parts)
        records.unfinished.zero_()
        return out

    def _note(self, step: Size, batch: PageBatch, count: int, iteration: int) -> None:
        """Write the step's events into the journal, from the one array that is read back."""
        memory, journal = self.memory, self.memory.journal
        assert step.out is not None
        whole, at = journal.keep(step.out), 0
        kept: list[tuple[Part, Room]] = []
        for _ in memory.planes:
            kept.append((Part(whole.tensor, at, ANSWERS), ROOM))
            at += ANSWERS
        batch.refer(journal, iteration, kept)
        journal.refer(Kind.MEM_STEP, (iteration,), Part(whole.tensor, at, LOGGED * count))
        at += LOGGED * step.rows
        for numbers in (4 * len(memory.rows.length), 1, *(9 for _ in memory.findings)):
            journal.behind(Part(whole.tensor, at, numbers))
            at += numbers


ANSWERS = 2 * ROOM[0] + ROOM[1] + 2 * ROOM[2]  # numbers that carry_out returns


def fits(batch: PageBatch, changes: list[NDArray[np.int64] | None]) -> tuple[bool, list[bool]]:
    """Whether a graph has room for a batch, and for the changes of each table."""
    room = batch.empty or all(
        have <= most for pool in batch.pools for have, most in zip(pool.room, ROOM, strict=True)
    )  # fmt: skip
    return room, [changed is None or changed.shape[1] <= ENTRIES for changed in changes]
