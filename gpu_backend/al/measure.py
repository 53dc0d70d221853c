"""One run of one condition on one build: engine plans and paged kernels, and what each hit accepted, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu_backend.acceptance.metrics import Measured, Steps
from gpu_backend.acceptance.rules import Sampling
from gpu_backend.al.pair import LoadedPair
from gpu_backend.al.predicted import HIT
from gpu_backend.backend import kernels_for
from gpu_backend.device import let_go, release
from gpu_backend.replay.modelled_world import RecordingWorld
from gpu_backend.replay.natural import Recorder
from gpu_backend.replay.supported import require_replayable
from model.builds import Build
from model.cluster import Cluster
from model.invariants import Violation
from model.ops import At, Op, World
from model.plan import GenerationRow, StepPlan
from model.request import RequestRecord
from scenarios.schema import Scenario
from sim.crashes import CRASH
from sim.result import RunResult
from sim.run import run_scenario

TARGET, DRAFTER = "target", "draft"


class RuleCrashed(RuntimeError):
    """A rule ended the run; the text says by which error, and where."""


@dataclass(slots=True)
class Seen:
    """What the steps of one request did: ``rows`` are anchor, committed tokens and whether drafts were real.

    ``hidden``: tokens of the drafter's window that its slot hid by its base at the first step of real drafts;
    ``shares``: of each such step, what its drafter had of its window, or of all context, that is neither hidden nor
    without a page.
    """

    rows: list[tuple[int, int, bool]] = field(default_factory=list)
    generated: int = 0
    hidden: int = 0
    shares: list[float] = field(default_factory=list)
    drafted: int = 0  # prompt tokens whose chunks the drafter folded


class Watching(RecordingWorld):
    """A recording worker that notes what its steps settled, in ``seen`` of all workers of a run."""

    seen: dict[int, Seen]

    def __init__(self, *told: Any, **more: Any) -> None:
        super().__init__(*told, **more)
        self._share: dict[int, float] = {}  # of the step that runs, by request

    def counts_of(self, plan: StepPlan) -> tuple[int, ...]:
        records = self.engine.records
        self._before = {
            row.request_id: records[row.request_id].output_tokens for row in (*plan.context, *plan.generation)
        }
        for row in plan.generation:
            seen = self.seen.setdefault(row.request_id, Seen())
            self._share.pop(row.request_id, None)
            if row.real_drafts and self.memory.draft_columns:
                if not seen.shares:
                    seen.hidden = self._hidden(row)
                self._share[row.request_id] = self._seen(row)
        return super().counts_of(plan)

    def settled(self, plan: StepPlan, accepted: tuple[int, ...]) -> None:
        super().settled(plan, accepted)
        for row in plan.context:
            self.seen.setdefault(row.request_id, Seen()).drafted += row.end - row.start if row.drafts else 0
        counts = (1,) * len(plan.context) + accepted
        for row, count in zip((*plan.context, *plan.generation), counts, strict=True):
            came = self.engine.records[row.request_id].output_tokens - self._before[row.request_id]
            if not came:  # a chunk that is not the last, or a request that ended or gave the step up in between
                continue
            seen = self.seen.setdefault(row.request_id, Seen())
            if isinstance(row, GenerationRow):
                seen.rows.append((seen.generated - 1, count, row.real_drafts))
                if row.request_id in self._share:
                    seen.shares.append(self._share.pop(row.request_id))
            seen.generated += came

    def _seen(self, row: GenerationRow) -> float:
        """Share of what the drafter's last pass reads that its slot does not hide and its table backs."""
        request, column = self.engine.owners.get(row.owner), self.memory.draft_columns[0]
        if request is None:
            return 1.0
        after = request.prompt_length + request.generated - 1
        begin, page = column.life.read_from(after), self.memory.page_size
        first = max(begin, page * max(self.engine.binder.base_of(row.owner), row.tables[column.index].base))
        return max(0, after - first) / (after - begin) if after > begin else 1.0

    def _hidden(self, row: GenerationRow) -> int:
        """Tokens of the window of the next pass that lie below the slot's base."""
        request = self.engine.owners.get(row.owner)
        if request is None:
            return 0
        at = request.prompt_length + request.generated
        base = self.engine.binder.base_of(row.owner) * self.memory.page_size
        return max(0, base - self.memory.draft_columns[0].life.read_from(at))


@dataclass(frozen=True, slots=True)
class Run:
    """The hits of one run, in the order of the condition: what was measured of each, and its request's record.

    ``hidden`` int64 ``[hits]``: see :class:`Seen`. ``seconds`` of everything, modules and engine.
    """

    scenario: str
    build: str
    measured: Measured
    records: tuple[RequestRecord, ...]
    hidden: np.ndarray
    seconds: float
    violations: tuple[Violation, ...]
    notes: tuple[str, ...]
    ops: tuple[At | Op, ...] = ()
    shares: tuple[tuple[float, ...], ...] = ()  # of each hit: see :class:`Seen`
    steps: int = 0
    device_seconds: float = 0.0  # of ``seconds``, those of the steps: what the host does for each of them is in it

    def trace(self, place: int) -> tuple[tuple[int, int], ...]:
        """Anchor and committed tokens of every step of real drafts of one hit."""
        steps = self.measured.steps
        own = (steps.request == place) & steps.real
        return tuple(zip(steps.anchor[own].tolist(), steps.committed[own].tolist(), strict=True))


def run(
    scenario: Scenario,
    build: Build,
    pair: LoadedPair,
    *,
    sampling: Sampling | None = None,
    graphs: bool | None = None,
    prepare: Callable[[Watching], None] | None = None,
) -> Run:
    """Serve ``scenario`` on ``build`` with ``pair`` behind every worker; the sim checks nothing meanwhile.

    Raises NotCarriedOut for a build that runs on the engine only. ``sampling`` judges drafts, greedily without any.
    ``graphs`` as in a replay's order; ``prepare`` sees every worker before its first step. Pools and graphs of the run
    are gone when it ends, be it by an error: the next one finds the device's memory free, and so do the other kinds'
    processes.
    """
    require_replayable(build)
    try:
        return _served(scenario, build, pair, sampling or Sampling(), graphs, prepare)
    except BaseException as error:
        let_go(error)
        raise
    finally:
        release(pair.device)


def _served(
    scenario: Scenario,
    build: Build,
    pair: LoadedPair,
    sampling: Sampling,
    graphs: bool | None,
    prepare: Callable[[Watching], None] | None,
) -> Run:
    begun = time.perf_counter()
    device, models = pair.device, pair.models(sampling)
    kernels = kernels_for(device, exact=pair.exact)
    recorder, seen = Recorder(free=False), dict[int, Seen]()

    def opened(world: World | Cluster) -> None:
        for worker in world.workers:
            wanted = device.type == "cuda" if graphs is None else graphs
            watching = Watching(worker, device, kernels, models, free=False, graphs=wanted)
            watching.seen = seen
            if prepare is not None:
                prepare(watching)
            recorder.devices.append(watching)

    result = run_scenario(scenario, build, check="off", record_ops=True, opened=opened, measured=recorder)
    if result.interrupted:
        raise KeyboardInterrupt
    for violation in result.violations:
        if violation.code == CRASH:
            raise RuleCrashed(violation.message)
    return _run_of(result, seen, recorder, time.perf_counter() - begun)


def _run_of(result: RunResult, seen: dict[int, Seen], recorder: Recorder, seconds: float) -> Run:
    """The hits of a finished run."""
    ids = {timing.session: timing.request_id for timing in result.timings}
    hits = [ids[f"{HIT} {place}"] for place in range(sum(name.startswith(f"{HIT} ") for name in ids))]
    records = {record.request_id: record for record in result.records}
    outputs: dict[int, tuple[int, ...]] = {}
    for device in recorder.devices:
        told = device.outputs()
        for place, (spec, _, _) in device.streams.items():
            if len(told[place]) > len(outputs.get(spec.request_id, ())):
                outputs[spec.request_id] = told[place]
    rows = [(place, *row) for place, number in enumerate(hits) for row in seen.get(number, Seen()).rows]
    known = [seen.get(number, Seen()) for number in hits]
    prefilled = {
        TARGET: np.array([records[number].prefilled_tokens for number in hits], dtype=np.int64),
        DRAFTER: np.array([one.drafted for one in known], dtype=np.int64),
    }
    ends = [one.generated for one in known]
    measured = Measured(
        Steps.of(rows),
        tuple(outputs.get(number, ())[:end] for number, end in zip(hits, ends, strict=True)),
        prefilled,
        tuple(hits),
        result.drafts,
    )
    return Run(
        result.scenario, result.build, measured, tuple(records[number] for number in hits),
        np.array([one.hidden for one in known], dtype=np.int64), seconds, tuple(result.violations),
        tuple(result.notes), tuple(result.ops), tuple(tuple(one.shares) for one in known),
        sum(len(device.took) for device in recorder.devices),
        sum(sum(device.took.values()) for device in recorder.devices) / 1e9,
    )  # fmt: skip
