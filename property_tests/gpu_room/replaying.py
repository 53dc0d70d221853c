"""A scenario replayed on the device under test: what the sim found, and the device that followed each worker."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gpu_backend.backend import Kernels, kernels_for
from gpu_backend.replay.content import Synthetic
from gpu_backend.replay.executor import DeviceWorld
from model.cluster import Cluster
from model.ops import World
from scenarios import catalog
from sim.result import RunResult
from sim.rulespec import find
from sim.run import run_scenario

Prepare = Callable[[list[DeviceWorld]], None]


def follow(
    name: str,
    device: torch.device,
    *,
    build: str | None = None,
    kernels: Kernels | None = None,
    content: Synthetic | None = None,
    prepare: Prepare | None = None,
    graphs: bool = False,
) -> tuple[RunResult, list[DeviceWorld]]:
    """Run scenario ``name`` on ``build`` (its own) with a device behind every worker."""
    scenario = catalog.load(name)
    followers: list[DeviceWorld] = []
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32

    def opened(world: World | Cluster) -> None:
        for worker in world.workers:
            chosen = kernels or kernels_for(device)
            rows = content or Synthetic(dtype=dtype)
            followers.append(DeviceWorld(worker, device, chosen, rows, full=False, graphs=graphs))
        if prepare is not None:
            prepare(followers)

    result = run_scenario(scenario, find(build or scenario.build), opened=opened)
    return result, followers


def assert_equal(followers: list[DeviceWorld]) -> None:
    """Every device found the memory that the model keeps, and nothing wrong in it."""
    for follower in followers:
        assert follower.counts.findings == []
        assert follower.digest == follower.world.log.memory.digest()
        assert follower.counts.events > 0
