"""Natural acceptance: a first run records what target and drafter agree on, a second one re-runs and judges it.

The first run gives counts and ids to the world while it goes, so that its ops and outputs form a trace like any other.
In the second the sim knows all tokens ahead, keeps its tagged memory and is followed by a device that computes
everything anew. In free mode a step of the first run takes, on the scenario's clock, what the device needed for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_backend.acceptance.confidence import table
from gpu_backend.acceptance.rules import Rule, Sampling
from gpu_backend.acceptance.texts import Spoken, Texts, open_texts
from gpu_backend.acceptance.weights import fitted, kind_in, models_of, open_pair, replaced
from gpu_backend.backend import Kernels
from gpu_backend.replay.executor import DeviceWorld
from gpu_backend.replay.modelled import Models, models_for
from gpu_backend.replay.modelled_world import RecordingWorld
from gpu_backend.replay.result import FREE, ReplayOrder
from model.builds import Build
from model.cluster import Cluster
from model.config import RequestSpec
from model.ops import At, Op, Submit, World
from model.plan import StepPlan
from scenarios.errors import InputError
from scenarios.schema import Scenario
from sim.optrace import Trace
from sim.result import RunResult
from sim.run import run_scenario

WEIGHTS = 7  # seed of tier T0
Outputs = dict[int, tuple[int, ...]]  # by identity of a submitted spec
SERVED = ("attention_dp", "disaggregated")  # kinds of workers beside a single one


class Recorder:
    """What devices behind all workers committed, step by step; with ``texts`` prompts are real text, and outputs in
    those of later turns the ones that were written."""

    def __init__(self, *, free: bool, texts: Texts | None = None, speaks: bool = False) -> None:
        self.free = free
        self.devices: list[RecordingWorld] = []
        self.spoken = Spoken(texts, self.written) if speaks else None

    def told(self, spec: RequestSpec) -> RequestSpec:
        """See :class:`sim.server.Measured`."""
        return spec if self.spoken is None else self.spoken.told(spec)

    def written(self, seed: int) -> NDArray[np.int64] | None:
        """The output with this seed: of a request that moved to another worker the longer one."""
        found = [ids for device in self.devices if (ids := device.written(seed)) is not None]
        return max(found, key=len, default=None)

    def counts(self, worker: int, plan: StepPlan) -> tuple[int, ...]:
        """See :class:`sim.server.Measured`."""
        return self.devices[worker].counts_of(plan)

    def step_ns(self, worker: int, plan: StepPlan) -> int | None:
        """See :class:`sim.server.Measured`."""
        return self.devices[worker].took[plan.iteration] if self.free else None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A first run: its ops with the ids of every output, the modules that ran it, and what a reader must know.

    ``served`` is how it went by the clock, ``confidence`` what the drafter's confidence head foretold.
    """

    trace: Trace
    models: Models
    notes: list[str]
    served: RunResult
    confidence: dict[str, list[float | int]] | None = None

    def ended(self, again: RunResult) -> Trace:
        """The trace as the second run leaves it, which computed the memory digest."""
        return replace(self.trace, check=again.check, memory_digest=again.memory_digest)


def record(
    scenario: Scenario,
    build: Build,
    order: ReplayOrder,
    where: tuple[torch.device, Kernels],
    prepare: Callable[[DeviceWorld], None] | None = None,
) -> Recorded:
    """Run ``scenario`` with natural acceptance behind devices that ``prepare`` sees before their first step."""
    pair = None
    if order.weights is not None:
        folder = Path(order.weights)
        pair = open_pair(folder, kind_in(folder, scenario.engine_config().drafter.kind))
    asked = scenario
    if pair is not None:
        scenario = fitted(scenario, pair)
    config, workers = scenario.engine_config(build), scenario.topology(build)
    notes = [] if pair is None else replaced(asked, config)
    if order.mode == FREE and (scenario.ops() is not None or scenario.trace_path() is not None):
        raise InputError("mode", 0, "", "expected equality, found free: ops come in an order of their own")
    if config.asynchronous_copies and order.mode == FREE:
        problem = "expected equality, found free: a step is timed when it goes out, before the copies that it waits for"
        raise InputError("mode", 0, "", f"{problem} have landed")
    if workers is not None and workers.kind not in SERVED:
        problem = f"expected one worker, {' or '.join(SERVED)} for natural acceptance, found {workers.kind}"
        why = "ranks sum within every layer, which takes a process each (python -m gpu_backend.parallel, forced)"
        raise InputError("acceptance", 0, "", f"{problem}: {why}")
    if pair is None:
        models = models_for(config, WEIGHTS, where[0], exact=order.exact)
    else:
        models = models_of(config, pair, where[0], exact=order.exact)
    models.sampling = Sampling(Rule(order.sampling), order.temperature, scenario.seed)
    texts = None if pair is None else open_texts(pair.folder, config.vocabulary)
    if pair is not None:
        notes.append(
            "prompts are drawn ids: no text beside the weights"
            if texts is None
            else f"prompts are text of {Path(texts.source).name}, {len(texts.ids):,} tokens, content {texts.name}"
        )
    recorder = Recorder(free=order.mode == FREE, texts=texts, speaks=pair is not None)

    def opened(world: World | Cluster) -> None:
        for worker in world.workers:
            graphs = order.captures(where[0].type)
            recorder.devices.append(RecordingWorld(worker, *where, models, free=recorder.free, graphs=graphs))
            if prepare is not None:
                prepare(recorder.devices[-1])

    first = run_scenario(scenario, build, check="off", record_ops=True, opened=opened, measured=recorder)
    if first.interrupted:  # half a run has no ops worth judging
        raise KeyboardInterrupt
    outputs: Outputs = {}
    for one in recorder.devices:  # a request that went from one worker to another is longest on the last
        outputs |= {place: ids for place, ids in one.outputs().items() if len(ids) > len(outputs.get(place, ()))}
    ops = tuple(_told(op, outputs) for op in first.ops)
    trace = Trace(scenario.name, build.name, scenario.seed, "off", config, ops, first.decision_digest, "", workers)
    kept = (device.rows.slots.confidence for device in recorder.devices)
    return Recorded(trace, models, notes, first, table(one for one in kept if one is not None))


def _told(op: At | Op, outputs: Outputs) -> At | Op:
    """A submission names the output that was recorded."""
    if isinstance(op, At):
        return At(op.worker, _told(op.op, outputs))  # pyright: ignore[reportArgumentType]
    if isinstance(op, Submit) and id(op.spec) in outputs:
        return Submit(replace(op.spec, output=outputs[id(op.spec)]))
    return op
