"""Scenarios replayed on the device: the memory digest from its own tensors is the tagged memory's."""

from __future__ import annotations

import pytest
import torch

from gpu_backend.replay.result import ReplayOrder
from gpu_backend.replay.session import replay
from model.builds import BUILDS
from property_tests.gpu_room.replaying import assert_equal, follow
from scenarios import catalog
from scenarios.errors import InputError
from sim.rulespec import find

SINGLE = [
    "smoke/hello", "smoke/conversation", "smoke/disturbed", "smoke/mtp_chain", "smoke/ops", "smoke/pressure",
    "smoke/subagents", "smoke/two_windows", "reports/o01", "reports/o04", "reports/o08", "reports/o09", "reports/o11",
    "reports/o12", "reports/o16_chain", "reports/o19", "reports/o24", "reports/o25", "reports/o39", "reports/o50",
    "reports/o56", "faults/count_not_extent", "faults/no_history", "faults/no_trail", "faults/release_early",
    "faults/store_at_zero",
]  # fmt: skip
DUMMIES = ["faults/dummy_no_hint", "faults/dummy_slot_shared", "reports/o39", "reports/o45"]
TIERS = ["smoke/host_tier", "smoke/host_link", "reports/o06", "reports/o28", "reports/o63", "reports/o66"]
WORKERS = ["reports/o17", "reports/o46", "reports/o58", "reports/o67", "reports/o31", "reports/o37", "reports/o81"]
CORRECT = [name for name, build in BUILDS.items() if build.correct]


@pytest.mark.parametrize("name", SINGLE)
def test_the_memory_of_one_worker_is_equal(device: torch.device, name: str) -> None:
    result, followers = follow(name, device)
    assert result.violations == []
    assert_equal(followers)
    assert followers[0].counts.slots > 0, "lengths and bases were compared with the engine's"


@pytest.mark.parametrize("name", DUMMIES)
def test_rows_without_a_request_leave_the_same_memory(device: torch.device, name: str) -> None:
    assert_equal(follow(name, device)[1])


@pytest.mark.parametrize("name", TIERS)
def test_pages_that_change_tiers_keep_their_content(device: torch.device, name: str) -> None:
    result, followers = follow(name, device)
    assert_equal(followers)
    assert any(planes.host is not None for planes in followers[0].memory.planes)
    assert result.totals.iterations == followers[0].counts.steps


@pytest.mark.parametrize("name", WORKERS)
def test_every_worker_has_a_device_and_each_memory_is_equal(device: torch.device, name: str) -> None:
    _, followers = follow(name, device)
    assert len(followers) > 1
    assert_equal(followers)


@pytest.mark.parametrize("build", CORRECT)
def test_every_correct_build_leaves_an_equal_memory(device: torch.device, build: str) -> None:
    """Separate, paired, unified, shared and fused pools, on turns of one conversation with partial claims."""
    result, followers = follow("smoke/conversation", device, build=build)
    assert_equal(followers)
    assert result.totals.cached_tokens > 0


@pytest.mark.parametrize("name", ["smoke/conversation", "smoke/disturbed", "smoke/ops", "reports/o08", "reports/o25",
                                  "reports/o31", "reports/o39", "reports/o80"])  # fmt: skip
def test_steps_that_run_ahead_of_results_leave_an_equal_memory(device: torch.device, name: str) -> None:
    """Each step runs at its dispatch, by the slots' own lengths: the step before it has not settled."""
    scenario = catalog.load(name)
    replayed = replay(scenario, find(scenario.build), ReplayOrder(device.type, check="full", launch="dispatch"))
    assert replayed.findings == () and replayed.exit_code == 0
    assert {worker.ahead for worker in replayed.workers} == {2}, "a step ran before the one before it had settled"


@pytest.mark.parametrize("name", ["smoke/host_link", "reports/o46"])
def test_what_lands_between_steps_is_not_run_ahead(device: torch.device, name: str) -> None:
    scenario = catalog.load(name)
    with pytest.raises(InputError, match="launch: expected settle, found dispatch"):
        replay(scenario, find(scenario.build), ReplayOrder(device.type, launch="dispatch"))


@pytest.mark.parametrize("build", ["target-only", "mirror-legacy", "unified-nowindow"])
def test_a_historical_build_breaks_laws_and_leaves_an_equal_memory_all_the_same(
    device: torch.device, build: str
) -> None:
    result, followers = follow("reports/o07", device, build=build)
    assert followers[0].digest == result.memory_digest


def test_a_failed_forward_leaves_the_slots_as_they_were(device: torch.device) -> None:
    _, followers = follow("faults/base_not_rolled_back", device)
    assert followers[0].counts.failed > 0
    assert_equal(followers)


@pytest.mark.parametrize("name", ["smoke/conversation", "smoke/mtp_chain", "smoke/pressure", "smoke/host_tier",
                                  "reports/o08", "reports/o39", "reports/o45", "reports/o67"])  # fmt: skip
def test_steps_padded_to_a_batch_size_leave_an_equal_memory(device: torch.device, name: str) -> None:
    """One array tells a step its rows, tables, grants and publications; on a GPU it is a captured graph."""
    result, followers = follow(name, device, graphs=True)
    assert result.violations == []
    assert_equal(followers)
    assert any(follower.steps.graphs is not None and follower.steps.graphs.steps > 0 for follower in followers)


@pytest.mark.parametrize("build", CORRECT)
def test_padded_steps_of_every_correct_build_leave_an_equal_memory(device: torch.device, build: str) -> None:
    assert_equal(follow("smoke/conversation", device, build=build, graphs=True)[1])
