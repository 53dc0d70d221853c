"""Chain drafters on a GPU: captured passes draft what eager ones do, and cells are those of a cold run, in bf16 too."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpu_backend.replay.executor import DeviceWorld
from gpu_backend.replay.result import NATURAL, ReplayOrder
from gpu_backend.replay.session import replay
from model.faults import FAULTS
from property_tests.gpu_room.test_replay_chain import DEEP, EAGLE, EAGLE3, MTP, prefixed
from property_tests.gpu_room.test_replay_natural import PADDED, PAIR, codes, scenario_of
from scenarios import catalog
from sim.rulespec import find

CHAINS = {"eagle3": EAGLE3, "mtp-eagle": EAGLE, "mtp": MTP}


@pytest.mark.parametrize("sampling", ["greedy", "block"])
@pytest.mark.parametrize("text", [PADDED, PAIR], ids=["padded", "pair"])
@pytest.mark.parametrize("geometry", CHAINS.values(), ids=CHAINS)
def test_captured_passes_draft_what_eager_ones_do(
    device: torch.device, geometry: str, text: str, sampling: str
) -> None:
    scenario = scenario_of(text.replace("tiny, vocabulary: 3", geometry))
    order, worlds = ReplayOrder(device.type, NATURAL, exact=True, sampling=sampling), list[DeviceWorld]()
    eager, captured = (
        replay(scenario, find(scenario.build), replace(order, graphs=graphs), prepare=worlds.append)
        for graphs in (False, True)
    )
    assert [eager.exit_code, captured.exit_code] == [0, 0]
    assert eager.trace is not None and captured.trace is not None
    assert captured.trace.ops == eager.trace.ops and captured.trace.memory_digest == eager.trace.memory_digest
    assert sum(world.steps.graphs.replayed for world in worlds if world.steps.graphs is not None) > 2


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("geometry", "budget"), [(EAGLE3, 11), (EAGLE3, 5), (MTP, 11), (MTP, 7), (DEEP, 11)])
def test_cells_are_those_of_a_cold_run_whatever_the_chunks(
    device: torch.device, geometry: str, budget: int, exact: bool
) -> None:
    scenario = prefixed(geometry, budget)
    replayed = replay(scenario, find(scenario.build), ReplayOrder(device.type, NATURAL, exact=exact))
    assert replayed.findings == () and replayed.exit_code == 0


def test_placeholders_at_a_chunk_end_show_in_bf16_too(device: torch.device) -> None:
    fault = FAULTS["placeholder-lookahead"]
    replayed = replay(catalog.load(fault.scenario), fault.build, ReplayOrder(device.type, NATURAL))
    assert replayed.equal and codes(replayed) == {"SHADOW", "KEY"}
