"""What a replay is asked and what it leaves, as plain values: nothing here needs a device."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu_backend.acceptance.metrics import Measured
from model.invariants import Violation
from sim.optrace import Trace
from sim.result import RunResult

FINE, BROKEN, NOTHING_CHECKED = 0, 1, 3
OFF, TAGS, FULL = "off", "tags", "full"
NATURAL, FREE, GREEDY = "natural", "free", "greedy"


@dataclass(frozen=True, slots=True)
class ReplayOrder:
    """``device`` is ``cuda``, ``cpu`` or ``None`` for whatever there is; ``check`` one of ``off``, ``tags``, ``full``.

    ``acceptance`` is ``forced`` by the scenario or ``natural``, what target and drafter agree on; ``mode`` says whose
    clock orders events, the sim's (``equality``) or the device's (``free``); ``exact`` asks for kernels whose bits do
    not depend on the batch. ``launch`` says when a step runs: at its ``settle``, or at its ``dispatch``, ahead of the
    results of the one before, with counts that a first run of the sim made known.
    ``graphs``: steps of verify rows alone are padded to a batch size and captured as CUDA graphs, with modules those
    whose rows have one width; ``None`` for on a GPU. Where ``check`` is ``full`` none are. ``weights``: a folder with
    the pair that natural acceptance runs, instead of seeded random ones. ``sampling`` is the rule by which drafts are
    judged there (``greedy``, ``token``, ``block``, ``match``), but for greedy at ``temperature``.
    """

    device: str | None = None
    acceptance: str = "forced"
    mode: str = "equality"
    check: str = TAGS
    exact: bool = False
    launch: str = "settle"
    graphs: bool | None = None
    weights: str | None = None
    sampling: str = GREEDY
    temperature: float = 1.0

    def captures(self, device: str) -> bool:
        """Whether steps run in graphs on a device of this type."""
        return self.check != FULL and (device == "cuda" if self.graphs is None else self.graphs)


@dataclass(frozen=True, slots=True)
class WorkerReplay:
    """How one worker's stream ran on its device.

    ``events`` memory events were compared, ``slots`` rows' lengths and bases with the engine's, ``cells`` at the end
    cell by cell, ``outputs`` of attention with what the rows' tokens give. ``ahead`` is the most steps that had run
    and not settled. ``seconds`` is the time that the device's
    part of settles took, ``dispatch_seconds`` that of dispatches. ``in_graphs`` steps were padded to a batch size. With
    natural acceptance ``tokens`` were held to the greedy choice of a cold run (LOSSLESS), of which ``ties`` fell the
    other way, and ``context_rows`` of the drafter to those of a cold run (SHADOW), step by step.
    """

    device_digest: str
    memory_digest: str
    steps: int
    rows: int
    records: int
    events: int
    slots: int
    cells: int
    outputs: int
    failed_forwards: int
    ahead: int
    seconds: float
    dispatch_seconds: float
    in_graphs: int = 0
    tokens: int = 0
    ties: int = 0
    context_rows: int = 0

    @property
    def equal(self) -> bool:
        """Whether both memories have one digest."""
        return self.device_digest == self.memory_digest


@dataclass(frozen=True, slots=True)
class Replayed:
    """A scenario's run in the sim, the device that followed each worker, and what is wrong there.

    ``trace``: the ops and outputs that natural acceptance recorded, which the sim alone runs to the same digests;
    ``measured``: what they say about acceptance; ``confidence``: what the drafter's confidence head said beforehand,
    see :func:`gpu_backend.acceptance.confidence.table`.
    """

    result: RunResult
    device: str
    order: ReplayOrder
    workers: tuple[WorkerReplay, ...]
    findings: tuple[Violation, ...]
    trace: Trace | None = None
    measured: Measured | None = field(default=None, compare=False)
    confidence: dict[str, list[float | int]] | None = field(default=None, compare=False)

    @property
    def equal(self) -> bool:
        """Whether every worker's memories are equal; of a run that was cut nobody can say, and nothing is held against
        it."""
        return self.result.interrupted or all(worker.equal for worker in self.workers)

    @property
    def exit_code(self) -> int:
        """1 where anything differs or broke, 3 where nothing was compared."""
        if self.findings or self.result.missed or self.result.violations or not self.equal:
            return BROKEN
        compared = self.order.check != OFF and any(worker.events for worker in self.workers)
        if self.order.acceptance == NATURAL:
            compared = compared and any(worker.tokens and worker.context_rows for worker in self.workers)
        return FINE if compared else NOTHING_CHECKED

    @property
    def acceptance_length(self) -> float | None:
        """Tokens committed by a verify step of real drafts, pooled; ``None`` where nobody measured it."""
        totals = self.result.totals
        if self.order.acceptance != NATURAL or not totals.spec_steps:
            return None
        return 1 + totals.accepted_drafts / totals.spec_steps


@dataclass(frozen=True, slots=True)
class DeviceDrilled:
    """How one fault fared on a device: ``found`` are the codes, first first, ``sound`` those of a sound replay.

    ``wanted``: codes one of which has to come first; ``equal``: the memories still agreed, as they do where a rule is
    wrong and both carry it out.
    """

    name: str
    where: str  # "rule" or "device"
    wanted: tuple[str, ...]
    found: tuple[str, ...]
    equal: bool
    sound: tuple[str, ...]
    scenario: str
    message: str

    @property
    def verdict(self) -> str:
        """One of the drill's words."""
        if self.sound:
            return "false alarm"
        if not self.found:
            return "missed"
        return "caught" if self.found[0] in self.wanted else "wrong invariant"
