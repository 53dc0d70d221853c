"""A scenario on one rank of several: first by itself on whole modules, then with the others on its share."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gpu_backend.answers import NotCarriedOut
from gpu_backend.device import DeviceMemoryError
from gpu_backend.modules.layers import alone
from gpu_backend.parallel.follower import ModelWorld
from gpu_backend.parallel.meeting import Absent, Meeting
from gpu_backend.parallel.outputs import beside
from gpu_backend.parallel.plants import Plant
from gpu_backend.parallel.report import RankReport
from gpu_backend.parallel.share import share_of, whole_configs
from gpu_backend.parallel.sizes import agreed_config, differing_sizes
from gpu_backend.parallel.worlds import RankWorld
from model.builds import Build
from model.config import EngineConfig
from model.invariants.base import Violation
from scenarios.errors import InputError
from scenarios.schema import Scenario
from sim.run import run_scenario


@dataclass(frozen=True, slots=True)
class Served:
    """One run of a scenario: its world, the device behind it and the expectations that it missed."""

    world: RankWorld
    device: ModelWorld
    missed: tuple[str, ...]


def configs_of(scenario: Scenario, build: Build, ranks: int) -> tuple[EngineConfig, ...]:
    """What each rank has before it meets the others. Raises InputError unless the scenario is for ``ranks`` of them."""
    topology = scenario.topology(build)
    if topology is None:
        configs = (scenario.engine_config(build),) * ranks
    elif topology.kind != "tensor_parallel":
        raise InputError(scenario.name, 0, "workers.kind", f"expected tensor_parallel, found {topology.kind}")
    elif len(topology.configs) != ranks:
        problem = f"expected as many as there are processes, {ranks}, found {len(topology.configs)}"
        raise InputError(scenario.name, 0, "workers.count", problem)
    else:
        configs = topology.configs
    if any(config.asynchronous_copies for config in configs):
        raise InputError(scenario.name, 0, "host_link", "expected none: copies that take time have one worker")
    return configs


def run_rank(
    scenario: Scenario,
    build: Build,
    meeting: Meeting,
    device: torch.device,
    plant: Plant | None = None,
    dtype: torch.dtype = torch.float32,
) -> RankReport:
    """Run ``scenario`` as the rank of ``meeting``, with modules in ``dtype``.

    Raises InputError for what cannot be run, the same on every rank.
    """
    own = configs_of(scenario, build, meeting.ranks)[meeting.rank]
    mine = plant if plant is not None and plant.rank == meeting.rank else None
    try:
        config = agreed_config(meeting, build, own)
        single = serve(scenario, build, config, device, meeting, dtype, together=False)
        given = config if mine is None else mine.sizes(config)
        sizes = differing_sizes(meeting, given)
        meeting.sum(torch.zeros(1, device=device))  # a device's group is made by its first collective
        found = serve(scenario, build, given, device, meeting, dtype, together=True, plant=mine)
    except Absent as absent:
        places = ", ".join(f"rank {rank}: {place or 'nowhere'}" for rank, place in absent.seen.items())
        violation = Violation("RANK", str(absent), found=f"they wait at {places}")
        return RankReport(meeting.rank, str(device), stopped=True, violations=(violation,))
    except NotCarriedOut as error:
        raise InputError("build", 0, "", str(error)) from error
    except DeviceMemoryError as error:
        raise InputError("device", 0, "", str(error)) from error
    return _report(found, single, sizes, meeting, device)


def serve(
    scenario: Scenario,
    build: Build,
    config: EngineConfig,
    device: torch.device,
    meeting: Meeting,
    dtype: torch.dtype,
    *,
    together: bool,
    plant: Plant | None = None,
) -> Served:
    """One run on pools of ``config``; ``together`` with the other ranks or alone."""
    whole = whole_configs(config, meeting.ranks, dtype)
    reduce = meeting.sum if together else alone
    if plant is not None:
        reduce = plant.sums(reduce)
    rank, ranks = (meeting.rank, meeting.ranks) if together else (0, 1)
    models = share_of(whole, scenario.seed, rank, ranks, reduce, device)
    world = RankWorld(config, build, meeting.rank, meeting if together else None)
    follower = ModelWorld(world, device, models, meeting if together else None)
    if plant is not None:
        plant.put(world)
    try:
        result = run_scenario(scenario, build, world=world)
    except InputError as error:
        if world.refuse(error.problem):
            raise
        return Served(world, follower, ())
    world.leave(follower.digest)
    return Served(world, follower, () if world.hung else tuple(result.missed))


def _report(
    found: Served, single: Served, sizes: tuple[int, str, str] | None, meeting: Meeting, device: torch.device
) -> RankReport:
    world, counts = found.world, found.device.counts
    outputs = beside(found.device.said, single.device.said, found.device.dtype)
    violations = [*world.violations, *counts.findings]
    if sizes is not None:
        odd, first, other = sizes
        text = "the ranks build engines of different pools"
        violations.insert(0, Violation("RANK", text, expected=f"rank 0: {first}", found=f"rank {odd}: {other}"))
    if outputs.wrong and not world.hung:
        violations.append(Violation("RANK", outputs.wrong, step=outputs.step))
    return RankReport(
        rank=meeting.rank,
        device=str(device),
        steps=counts.steps,
        rows=counts.rows,
        events=counts.events,
        rounds=meeting.rounds,
        plans=world.compared,
        sums=meeting.sums,
        digest=found.device.digest,
        memory_digest=world.memory_digest(),
        alone=single.device.digest,
        stopped=world.hung,
        outputs=outputs,
        violations=tuple(violations),
        missed=found.missed,
    )
