"""Generation steps of one batch size and more rows than are there: one captured graph for each size.

Everything that a step is told lies in one array that the host fills and copies: its rows, padded by rows of the
dummies' slot, the entries of its tables that change, the pages that are granted and published before it. What is read
back lies in one array too. On a GPU the second step of a size is captured and replayed from then on; elsewhere the same
function runs every time. Real modules run in it, ahead of the tags; what they agree on never leaves the device before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_backend.device import uncollected
from gpu_backend.layout import UNBACKED
from gpu_backend.replay.agreed import Agreed
from gpu_backend.replay.journal import Journal, Landing, Part
from gpu_backend.replay.memory import DeviceMemory
from gpu_backend.replay.page_batch import PageBatch, PoolBatch, Room, carry_out, size
from gpu_backend.replay.reads import ReadCheck
from gpu_backend.replay.records import RecordRunner
from gpu_backend.replay.rows import VerifyRows
from gpu_backend.replay.segments import slots_state
from gpu_backend.replay.step_rows import FIELDS, StepRows
from model.events import Kind
from model.plan import GenerationRow
from model.rules.device import DeviceRules, Padding, TableUpload, Unbacked

ROOM: Room = (64, 64, 64)  # of a pool's grants and publications in one step; what is more runs ahead of the graph
ENTRIES = 128  # of a table that change in one step; likewise
LOGGED = 9  # numbers of a row in the log
STAGES = 2  # graphs of a size that take turns: one may be filled while the step before it runs


class CapturedModules(Protocol):
    """Real modules that run in a step, ahead of its tags."""

    shape: tuple[int, bool]  # what of the rows that are ready does not lie in the rows

    def ready(self, rows: Sequence[GenerationRow]) -> bool:
        """Whether one pass runs ``rows``; then they are ready to run."""
        ...

    def run(self, rows: StepRows) -> tuple[StepRows, Agreed]:
        """Rows with the tokens that they commit, and what the host is to hear of them; nothing is read back."""
        ...


@dataclass(slots=True)
class Stage:
    """One of the host arrays of a batch size, int64, and the graph that copies it to the device, once it is captured.

    ``journal`` is that of the last step that ran from here, ``landing`` where the graph leaves what is read back.
    """

    told: torch.Tensor
    view: NDArray[np.int64]
    graph: torch.cuda.CUDAGraph | None = None
    out: torch.Tensor | None = None
    agreed: Agreed | None = None  # what modules gave
    landing: Landing | None = None
    journal: Journal | None = None
    copied: torch.cuda.Event | None = None  # instead of a journal, where nothing is read back

    def free(self) -> None:
        """Wait until the last step from here has read what it was told, and what it left was read."""
        if self.journal is not None:
            self.journal.land()
            self.journal = None
        if self.copied is not None:
            self.copied.synchronize()
            self.copied = None


@dataclass(slots=True)
class Size:
    """What belongs to one batch size: what a step of it is told, on the device, and the stages that it comes from."""

    rows: int
    longest: int
    told: torch.Tensor
    stages: list[Stage]
    blank: NDArray[np.int64]  # a step that changes nothing
    runs: int = 0


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
        self.modules: CapturedModules | None = None
        self.agreed: Agreed | None = None  # what they gave in the last step, there until the next one runs
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
        stage = step.stages[step.runs % len(step.stages)]
        stage.free()
        self._fill(stage.view, step, packed, batch, changes)
        step.runs += 1
        self.steps += 1
        if stage.graph is not None:
            stage.graph.replay()
            self.replayed += 1
        elif step.told.is_cuda and step.runs > 1:
            self._capture(step, stage)
        else:
            stage.out = self._carry_out(step, stage)
        self.agreed = stage.agreed
        if memory.checks:
            self._note(step, stage, batch, count, iteration)
        elif step.told.is_cuda:
            stage.copied = torch.cuda.Event()
            stage.copied.record()
        return memory.checks

    # -- sizes ---------------------------------------------------------------------------------------------------

    def padded(self, rows: int) -> int:
        """The batch size by which ``rows`` verify rows run."""
        return next((size for size in self.batches if size >= rows), 0) or 1 << (rows - 1).bit_length()

    def _size(self, wanted: int, longest: int) -> Size:
        memory = self.memory
        if self._current[0] is not memory.rules:
            self._current = memory.rules, self._rules.setdefault(memory.rules, len(self._rules))
        shape = None if self.modules is None else self.modules.shape
        key = (wanted, longest, self._current[1], memory.rows.final.data_ptr(), id(memory.kernels), shape)
        found = self._sizes.get(key)
        if found is None:
            numbers = FIELDS * wanted + len(memory.columns) * 3 * ENTRIES + len(memory.planes) * size(ROOM)
            on_gpu = memory.device.type == "cuda"
            stages = [
                torch.zeros(numbers, dtype=torch.int64, pin_memory=on_gpu) for _ in range(STAGES if on_gpu else 1)
            ]
            told = torch.zeros(numbers, dtype=torch.int64, device=memory.device) if on_gpu else stages[0]
            blank = self._blank(wanted, numbers)
            found = Size(wanted, longest, told, [Stage(stage, stage.numpy()) for stage in stages], blank)
            self._sizes[key] = found
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

    def _capture(self, step: Size, stage: Stage) -> None:
        """Capture the step, which ran once and so is compiled, with its copies from and to ``stage``, and run it."""
        graph = torch.cuda.CUDAGraph()
        if self.memory.checks:
            stage.landing = Landing(self._left(step), pooled=False)
        with uncollected(), torch.cuda.graph(graph, pool=self._pool):
            stage.out = self._carry_out(step, stage)
            if stage.landing is not None:
                assert stage.out is not None
                stage.landing.host.copy_(stage.out, non_blocking=True)
        self._pool = graph.pool()
        stage.graph = graph
        self.captured += 1
        graph.replay()

    def _left(self, step: Size) -> int:
        """Numbers that a step leaves."""
        memory = self.memory
        return len(memory.planes) * ANSWERS + LOGGED * step.rows + sum(self._behind())

    def _behind(self) -> tuple[int, ...]:
        """Numbers of the state, the flag and the findings, behind the events of a step."""
        return 4 * len(self.memory.rows.length), 1, *(9 for _ in self.memory.findings)

    def _carry_out(self, step: Size, stage: Stage) -> torch.Tensor | None:
        """Everything that the step is told, in the order of an eager step; what is read back, int64."""
        if step.told.is_cuda:
            step.told.copy_(stage.told, non_blocking=True)
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
        if self.modules is not None:
            rows, stage.agreed = self.modules.run(rows)
        parts.append(self.verify.run(rows).reshape(-1))
        if not memory.checks:
            return None
        parts += [slots_state(memory, self.reads).reshape(-1).long(), records.unfinished]
        parts += [findings.tensors() for findings in memory.findings]
        out = torch.cat(parts)
        records.unfinished.zero_()
        return out

    def _note(self, step: Size, stage: Stage, batch: PageBatch, count: int, iteration: int) -> None:
        """Write the step's events into the journal, from the one array that is read back."""
        memory, journal = self.memory, self.memory.journal
        assert stage.out is not None
        whole, at = journal.keep(stage.out), 0
        if step.told.is_cuda:
            stage.journal = journal
            journal.landing = stage.landing  # of a captured step
        kept: list[tuple[Part, Room]] = []
        for _ in memory.planes:
            kept.append((Part(whole.tensor, at, ANSWERS), ROOM))
            at += ANSWERS
        batch.refer(journal, iteration, kept)
        journal.refer(Kind.MEM_STEP, (iteration,), Part(whole.tensor, at, LOGGED * count))
        at += LOGGED * step.rows
        for numbers in self._behind():
            journal.behind(Part(whole.tensor, at, numbers))
            at += numbers


ANSWERS = 2 * ROOM[0] + ROOM[1] + 2 * ROOM[2]  # numbers that carry_out returns


def fits(batch: PageBatch, changes: list[NDArray[np.int64] | None]) -> tuple[bool, list[bool]]:
    """Whether a graph has room for a batch, and for the changes of each table."""
    room = batch.empty or (not batch.copies and all(
        have <= most for pool in batch.pools for have, most in zip(pool.room, ROOM, strict=True)
    ))  # fmt: skip
    return room, [changed is None or changed.shape[1] <= ENTRIES for changed in changes]
