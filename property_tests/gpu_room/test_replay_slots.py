"""What a row slot holds of a request goes with it to another one: drafts, what they were drawn from, states, starts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gpu_backend.acceptance.rules import Rule, Sampling
from gpu_backend.backend import kernels_for
from gpu_backend.modules.config import DrafterConfig
from gpu_backend.modules.tier0 import TINY, chain_for, drafter_for, random_pair
from gpu_backend.replay.chained import ChainedRows
from gpu_backend.replay.memory import Known
from gpu_backend.replay.modelled import ModelRows, Models, content_of
from gpu_backend.replay.modelled_world import RecordingWorld
from model.config import RequestSpec
from model.ops import World
from model.tokens import TokenStream
from property_tests.gpu_room.test_replay_natural import FEW_WORDS, scenario_of
from sim.rulespec import find

CPU = torch.device("cpu")
WORDS = replace(TINY, vocabulary=5)
DSPARK = replace(drafter_for(WORDS, block=3, window=12, logits_start=0, markov_rank=4), confidence="markov")
CHAIN = chain_for(WORDS, "mtp", drafts=2, depth=2)


def rows_of(drafter: DrafterConfig, preset: str, more: str = "") -> ModelRows:
    """Row slots of one worker whose drafts are sampled; owners 1, 2 and 3 are there, and none has a slot."""
    scenario = scenario_of(FEW_WORDS.replace("preset: tiny,", f"preset: {preset},") + more)
    build = find(scenario.build)
    pair = random_pair(WORDS, drafter, 7, "cpu", exact=False)
    models = Models(*pair, content_of(WORDS, drafter), False, Sampling(Rule.BLOCK, 1.5, 0))
    world = World(scenario.engine_config(build), build, check="off")
    rows = RecordingWorld(world, CPU, kernels_for(CPU), models, free=False).rows
    for owner in (1, 2, 3):
        stream = TokenStream(np.arange(owner, dtype=np.uint32), lambda _, count: np.zeros(count, np.uint32))
        rows.memory.known[owner] = Known(owner, RequestSpec(owner, (), 4, 10 * owner), stream, [], [])
    return rows


def swap(rows: ModelRows, *held: torch.Tensor) -> None:
    """Owners 1 and 2 run in slots 0 and 1, where each ``held`` is filled with their numbers, and then each in the slot
    of the other."""
    for slot, owner in enumerate((1, 2)):
        rows.bind(slot, owner)
        for one in held:
            one[slot].fill_(owner)
    rows.bind(1, 1)
    rows.bind(0, 2)


@pytest.mark.parametrize(
    ("drafter", "preset", "more"),
    [(DSPARK, "tiny", "drafter: {kind: dspark}\n"), (CHAIN, "tiny-mtp", "")],
    ids=["dspark", "mtp"],
)
def test_drafts_go_with_what_they_were_drawn_from_to_a_slot_that_another_request_had(
    drafter: DrafterConfig, preset: str, more: str
) -> None:
    rows = rows_of(drafter, preset, more)
    drafts, proposal = rows.slots.drafts, rows.slots.proposal
    assert proposal is not None
    swap(rows, drafts, proposal)
    for slot, owner in enumerate((2, 1)):
        assert (drafts[slot] == owner).all() and (proposal[slot] == owner).all()
        assert rows.slots.key[slot] == 10 * owner, "draws are by request"
    rows.bind(0, 3)
    assert not drafts[0].any(), "nothing is drafted for a request that has not run"
    rows.bind(2, 2)
    assert (drafts[2] == 2).all() and (proposal[2] == 2).all(), "it was absent meanwhile"


def test_states_and_the_start_of_a_context_go_with_a_request_to_another_slot() -> None:
    rows = rows_of(CHAIN, "tiny-mtp")
    assert isinstance(rows, ChainedRows)
    rows.begun = {1: 4, 2: 8}
    swap(rows, rows.chain.tail)
    assert (rows.chain.tail[0] == 2).all() and (rows.chain.tail[1] == 1).all()
    assert rows.chain.begun[:2].tolist() == [8, 4]
    rows.bind(0, 3)
    rows.bind(2, 2)
    assert (rows.chain.tail[2] == 2).all() and rows.chain.begun[:3].tolist() == [0, 4, 8]


def test_chances_of_one_requests_drafts_are_not_those_of_the_next_one_in_its_slot() -> None:
    rows = rows_of(DSPARK, "tiny", "drafter: {kind: dspark}\n")
    confidence = rows.slots.confidence
    assert confidence is not None
    rows.bind(0, 1)
    confidence.hear(torch.tensor([0]), torch.full((1, 3), 0.5))
    rows.bind(0, 1)
    assert (confidence.told[0] == 0.5).all()
    rows.bind(0, 2)
    confidence.judge(torch.tensor([0]), torch.tensor([4]))
    assert not confidence.sums.any()
