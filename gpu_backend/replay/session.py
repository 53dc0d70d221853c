"""A scenario or a trace of ops replayed: the sim runs it, and a device follows every worker."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from gpu_backend.acceptance.recorded import measured
from gpu_backend.answers import NotCarriedOut
from gpu_backend.backend import Kernels, kernels_for
from gpu_backend.device import DeviceMemoryError, default_device
from gpu_backend.replay.content import Synthetic
from gpu_backend.replay.executor import DeviceWorld
from gpu_backend.replay.modelled_world import JudgedWorld
from gpu_backend.replay.natural import Recorded, record
from gpu_backend.replay.result import FREE, FULL, GREEDY, NATURAL, OFF, TAGS, Replayed, ReplayOrder, WorkerReplay
from gpu_backend.replay.supported import require_replayable
from model.builds import Build
from model.cluster import Cluster
from model.ops import At, Settle, World
from scenarios.errors import InputError
from scenarios.schema import Scenario
from sim.optrace import Trace
from sim.replay import replay_trace
from sim.result import RunResult
from sim.run import Progress, run_scenario

LEVELS = {OFF: "off", TAGS: "incremental", FULL: "exhaustive"}  # of the sim's own laws beside the device's checks
FULL_POSITIONS = 1 << 22  # rows x tokens whose K/V rows are spelled out at every read
Prepare = Callable[[DeviceWorld], None]


def replay(
    what: Scenario | Trace,
    build: Build,
    order: ReplayOrder,
    progress: Progress | None = None,
    *,
    prepare: Prepare | None = None,
) -> Replayed:
    """Run ``what`` on ``build`` with a device behind each worker, which ``prepare`` sees before its first step.

    Raises InputError, in one line, for an order or a build that the replay does not carry out, and for a device that
    is not there or has too little memory.
    """
    device = require_order(order)
    followers: list[DeviceWorld] = []
    try:
        require_replayable(build)
        kernels = kernels_for(device, exact=order.exact)
        recorded: Recorded | None = None
        if order.acceptance == NATURAL:
            recorded = record(_workload(what), build, order, (device, kernels), prepare)
            what = recorded.trace

        def opened(world: World | Cluster) -> None:
            for worker in world.workers:
                followers.append(follower_of(worker, device, kernels, order, recorded))
                if order.launch == "dispatch" and isinstance(what, Trace):
                    followers[-1].schedule = _counts(what, len(followers) - 1)
                if prepare is not None:
                    prepare(followers[-1])

        check = LEVELS[order.check]
        missed: list[str] = []
        if order.launch == "dispatch":
            what, missed = _known_counts(what, build, check)

        if isinstance(what, Trace):
            result = replay_trace(what, build, check=check, progress=progress, opened=opened)
        else:
            result = run_scenario(what, build, check=check, progress=progress, opened=opened)
    except NotCarriedOut as error:
        raise InputError("build", 0, "", str(error)) from error
    except DeviceMemoryError as error:
        raise InputError("device", 0, "", str(error)) from error
    numbered = len(followers) > 1
    findings = tuple(
        replace(finding, worker=place) if numbered else finding
        for place, follower in enumerate(followers)
        for finding in follower.counts.findings
    )
    notes = [] if recorded is None else recorded.notes
    result = replace(result, logs=[], ops=[], missed=[*missed, *result.missed], notes=[*notes, *result.notes])
    workers = tuple(map(_summary, followers))
    if recorded is None:
        return Replayed(result, str(device), order, workers, findings)
    trace = recorded.ended(result)
    result = as_served(result, recorded.served)
    return Replayed(result, str(device), order, workers, findings, trace, measured(trace, build), recorded.confidence)


def as_served(again: RunResult, first: RunResult) -> RunResult:
    """The judged run of the ops that ``first`` left, with the clock of ``first`` and how its counts came about.

    Nobody looked at the drafter's window while that was served, so its timings have no coverage.
    """
    return replace(
        again,
        acceptance=first.acceptance,
        acceptance_mode=first.acceptance_mode,
        timings=[timing.uncovered() for timing in first.timings],
        clocks=first.clocks,
        duration_ns=first.duration_ns,
        device_busy_ns=first.device_busy_ns,
    )


def _workload(what: Scenario | Trace) -> Scenario:
    """A scenario; InputError for a trace, which brings its counts along."""
    if isinstance(what, Trace):
        raise InputError("acceptance", 0, "", "expected a scenario for natural acceptance, found a trace")
    return what


def _known_counts(what: Scenario | Trace, build: Build, check: str) -> tuple[Trace, list[str]]:
    """The ops of a first run, which tell every accepted count ahead, and the expectations that it missed.

    Raises KeyboardInterrupt where Ctrl-C cut it: half a run tells nothing.
    """
    config = what.config if isinstance(what, Trace) else what.engine_config(build)
    workers = what.workers if isinstance(what, Trace) else what.topology(build)
    if config.asynchronous_copies or (workers is not None and workers.kind == "disaggregated"):
        problem = "expected settle, found dispatch: copies and transfers that take time land between steps"
        raise InputError("launch", 0, "", problem)
    if isinstance(what, Trace):
        return what, []
    first = run_scenario(what, build, check=check, record_ops=True).whole()
    digests = first.decision_digest, first.memory_digest
    return Trace(what.name, build.name, what.seed, check, config, tuple(first.ops), *digests, workers), first.missed


def _counts(trace: Trace, worker: int) -> Iterator[tuple[int, ...]]:
    """Accepted counts of one worker's steps, in order."""
    for op in trace.ops:
        inner = op.op if isinstance(op, At) else op
        if isinstance(inner, Settle) and (not isinstance(op, At) or op.worker == worker):
            yield inner.accepted


def follower_of(
    world: World, device: torch.device, kernels: Kernels, order: ReplayOrder, recorded: Recorded | None = None
) -> DeviceWorld:
    """A device behind one worker, with the checks of a level; with modules that run what was ``recorded``."""
    check = order.check
    limits = world.config.limits
    positions = (limits.max_batch + 1) * limits.max_seq_len
    if check == FULL and positions > FULL_POSITIONS:
        problem = f"expected tags, found full: it compares outputs over up to {FULL_POSITIONS:,} positions of all rows"
        raise InputError("check", 0, "", f"{problem}, here there are {positions:,}")
    if recorded is not None:
        return JudgedWorld(world, device, kernels, recorded.models, check, graphs=order.captures(device.type))
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    return DeviceWorld(
        world, device, kernels, Synthetic(dtype=dtype), checks=check != OFF, full=check == FULL,
        graphs=order.captures(device.type),
    )  # fmt: skip


def require_order(order: ReplayOrder) -> torch.device:
    """The device of ``order``; InputError for what a replay does not do."""
    if order.mode == FREE and order.acceptance != NATURAL:
        found = "forced counts come when the sim's clock settles a step, and the device is not asked for the order"
        raise InputError("mode", 0, "", f"expected equality, found free with forced acceptance: {found}")
    if order.weights is not None and order.acceptance != NATURAL:
        raise InputError("weights", 0, "", "expected natural acceptance beside weights, found forced: no module runs")
    if order.sampling != GREEDY and order.acceptance != NATURAL:
        problem = f"expected natural acceptance beside {order.sampling}, found forced: nobody samples"
        raise InputError("sampling", 0, "", problem)
    if not 0 < order.temperature < math.inf:
        raise InputError("temperature", 0, "", f"expected a number above 0, found {order.temperature:g}")
    if order.device is None:
        return default_device()
    if order.device == "cuda" and not torch.cuda.is_available():
        raise InputError("device", 0, "", "expected cpu, found cuda: torch sees no CUDA device here")
    return default_device() if order.device == "cuda" else torch.device("cpu")


def _summary(follower: DeviceWorld) -> WorkerReplay:
    counts, log = follower.counts, follower.world.log.memory
    judged = follower.judged if isinstance(follower, JudgedWorld) else Counter[str]()
    return WorkerReplay(
        device_digest=follower.digest,
        memory_digest=log.digest() if follower.world.watch is not None else "not computed",
        steps=counts.steps,
        rows=counts.rows,
        records=counts.records,
        events=counts.events,
        slots=counts.slots,
        cells=counts.cells,
        outputs=0 if follower.probe is None else follower.probe.outputs,
        failed_forwards=counts.failed,
        ahead=counts.ahead,
        seconds=counts.seconds,
        dispatch_seconds=counts.dispatch_seconds,
        in_graphs=0 if follower.steps.graphs is None else follower.steps.graphs.steps,
        tokens=judged["LOSSLESS"],
        ties=judged["tied"],
        context_rows=judged["SHADOW"],
    )
