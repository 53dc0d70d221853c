"""A replay on a GPU: a step is queued without waiting for the device, and copies between the tiers have a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from gpu_backend.backend import kernels_for
from gpu_backend.replay.content import Synthetic
from gpu_backend.replay.drills import NAMES, drill
from gpu_backend.replay.executor import DeviceWorld
from gpu_backend.replay.result import NATURAL, ReplayOrder
from gpu_backend.replay.session import replay
from model.plan import StepPlan
from property_tests.gpu_room.replaying import assert_equal, follow
from property_tests.gpu_room.test_replay_natural import PADDED, PAIR, RANKS, scenario_of
from sim.rulespec import find


def watched(followers: list[DeviceWorld]) -> None:
    """From the third step on, let any wait for the device within a step be an error."""
    for follower in followers:
        run = follower._step

        def step(plan: StepPlan, accepted: Sequence[int], run=run) -> None:
            if plan.iteration >= 2:
                torch.cuda.set_sync_debug_mode("error")
            try:
                run(plan, accepted)
            finally:
                torch.cuda.set_sync_debug_mode("default")

        follower._step = step  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("name", ["smoke/hello", "smoke/conversation", "smoke/mtp_chain", "smoke/disturbed"])
def test_no_step_waits_for_the_device(device: torch.device, name: str) -> None:
    _, followers = follow(name, device, prepare=watched)
    assert_equal(followers)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("name", ["smoke/hello", "smoke/conversation", "smoke/mtp_chain", "smoke/pressure"])
def test_captured_steps_wait_for_nothing_and_leave_the_memory_of_eager_ones(device: torch.device, name: str) -> None:
    _, eager = follow(name, device)
    _, followers = follow(name, device, prepare=watched, graphs=True)
    assert_equal(followers)
    assert [follower.digest for follower in followers] == [follower.digest for follower in eager]
    graphs = followers[0].steps.graphs
    assert graphs is not None and graphs.captured > 0 and graphs.replayed > 0


@pytest.mark.parametrize("sampling", ["greedy", "token", "block", "match"])
@pytest.mark.parametrize(
    "text",
    [PADDED, PAIR, RANKS, PADDED + "drafter: {kind: dspark}\n"],
    ids=["padded", "pair", "attention-DP", "dspark"],
)
def test_modules_in_captured_steps_agree_on_what_eager_ones_do(device: torch.device, text: str, sampling: str) -> None:
    scenario, worlds = scenario_of(text), list[DeviceWorld]()
    order = ReplayOrder(device.type, NATURAL, exact=True, sampling=sampling)
    runs = [
        replay(scenario, find(scenario.build), replace(order, graphs=graphs), prepare=worlds.append)
        for graphs in (False, True)
    ]
    assert [run.exit_code for run in runs] == [0, 0]
    eager, captured = (run.trace for run in runs)
    assert eager is not None and captured is not None and captured.ops == eager.ops
    replayed = [world.steps.graphs.replayed for world in worlds if world.steps.graphs is not None]
    assert len(replayed) >= 2 and sum(replayed) > 4


@pytest.mark.parametrize("name", ["smoke/hello", "smoke/host_tier", "reports/o67"])
def test_exact_kernels_and_wider_rows_leave_an_equal_memory(device: torch.device, name: str) -> None:
    content = Synthetic(2, 2, 64, torch.bfloat16)
    assert_equal(follow(name, device, kernels=kernels_for(device, exact=True), content=content)[1])


@pytest.mark.parametrize("name", ["smoke/host_tier", "smoke/host_link", "reports/o62"])
def test_copies_between_the_tiers_run_beside_compute(device: torch.device, name: str) -> None:
    _, followers = follow(name, device)
    assert_equal(followers)
    assert any(planes.copies._stream is not None for planes in followers[0].memory.planes)


def test_the_whole_drill_is_caught_on_a_gpu(device: torch.device) -> None:
    rows, interrupted = drill([], device.type)
    assert not interrupted and len(rows) == len(NAMES)
    assert {row.name: row.verdict for row in rows if row.verdict != "caught"} == {}
