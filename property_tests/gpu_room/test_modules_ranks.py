"""Tensor parallelism: the ranks' shares together are the whole, and every rank finds the same tokens."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest
import torch

from gpu_backend.modules.config import TargetConfig
from gpu_backend.modules.drafters import in_blocks
from gpu_backend.modules.own_pages import OwnPages
from gpu_backend.modules.ranks import drafter_of_rank, rank_config, rank_weights, target_of_rank
from gpu_backend.modules.tier0 import TINY, drafter_for, random_drafter, random_target
from property_tests.gpu_room.pairs import NEAR, distance, make_pair, prompt

FEW = replace(TINY, vocabulary=5)


class Meeting:
    """Sums over ranks that are threads of this process: everyone brings its part, everyone takes the sum."""

    def __init__(self, ranks: int) -> None:
        self.parts: list[torch.Tensor] = [torch.zeros(0)] * ranks
        self.barrier = Barrier(ranks, timeout=30)
        self.sums = [0] * ranks

    def reduce(self, rank: int, part: torch.Tensor) -> torch.Tensor:
        self.parts[rank] = part
        self.sums[rank] += 1
        self.barrier.wait()
        total = torch.stack(self.parts).sum(0)
        self.barrier.wait()
        return total


def served(rank: int, ranks: int, meeting: Meeting, config: TargetConfig, device: torch.device) -> dict[str, object]:
    """What one rank finds: logits of a prompt, drafts, speculated tokens, shape of its pools."""
    drafter = drafter_for(config, window=20)

    def reduce(part: torch.Tensor) -> torch.Tensor:
        return meeting.reduce(rank, part)

    target = target_of_rank(random_target(config, 7, drafter.taps), rank, ranks, reduce).ready(device)
    pair = target, drafter_of_rank(in_blocks(random_drafter(drafter, 7)), rank, ranks, reduce).ready(device)
    pages = OwnPages(*pair, 1, 96, 16)
    logits = pages.prefill(0, prompt(40, 1, config.vocabulary), chunk=23)
    tokens, steps = [int(logits.argmax())], []
    drafts = pages.draft([0], tokens)
    while len(tokens) < 24:
        verdict, _ = pages.speculate([0], tokens[-1:])
        steps.append(int(verdict.accepted))
        tokens += verdict.choice[0, : steps[-1]].tolist()
    heads = pages.of_target.pools[0].layout.kv_heads
    return {"logits": logits, "drafts": drafts, "tokens": tokens, "steps": steps, "heads": heads}


@pytest.mark.parametrize(
    ("config", "ranks", "heads"),
    [(FEW, 2, 1), (replace(FEW, kv_heads=4), 2, 2), (replace(FEW, kv_heads=1), 2, 1), (FEW, 4, 1)],
    ids=["a KV head a rank", "two KV heads a rank", "one KV head on both", "each KV head on two of four"],
)
def test_ranks_together_are_the_whole(device: torch.device, config: TargetConfig, ranks: int, heads: int) -> None:
    meeting = Meeting(ranks)
    with ThreadPoolExecutor(ranks) as pool:
        found = list(pool.map(lambda rank: served(rank, ranks, meeting, config, device), range(ranks)))
    pair = make_pair(device, config, drafter_for(config, window=20))
    whole = pair.pages(longest=96)
    logits = whole.prefill(0, prompt(40, 1, config.vocabulary), chunk=23)
    drafts = whole.draft([0], [int(logits.argmax())])
    for one in found:
        assert one["heads"] == heads
        assert isinstance(one["logits"], torch.Tensor) and isinstance(one["drafts"], torch.Tensor)
        assert distance(one["logits"], logits) < NEAR[torch.float32]
        assert distance(one["drafts"], drafts) < NEAR[torch.float32]
        assert (one["tokens"], one["steps"]) == (found[0]["tokens"], found[0]["steps"])
    assert len(set(meeting.sums)) == 1 and meeting.sums[0] > 0


def test_a_rank_that_leaves_its_part_out_is_seen(device: torch.device) -> None:
    """What the comparison rests on: without the sum a rank is far from the whole."""
    whole = make_pair(device).pages().prefill(0, prompt(20))
    alone = target_of_rank(random_target(TINY, 7, (1,)), 0, 2, lambda part: part).ready(device)
    assert distance(OwnPages(alone, None, 1, 32, 16).prefill(0, prompt(20)), whole) > 1000 * NEAR[torch.float32]


def test_shares_of_the_weights_are_disjoint_and_complete() -> None:
    state = random_target(TINY, 7).state_dict()
    shares = [rank_weights(state, TINY, rank, 2) for rank in range(2)]
    for name, tensor in state.items():
        parts = [share[name] for share in shares]
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            assert torch.equal(torch.cat(parts, 1), tensor)
        elif name.endswith("_proj.weight"):
            assert torch.equal(torch.cat(parts, 0), tensor)
        else:
            assert all(torch.equal(part, tensor) for part in parts)


@pytest.mark.parametrize(
    ("config", "ranks", "line"),
    [
        (TINY, 3, "4 query heads cannot be shared by 3 ranks evenly"),
        (replace(TINY, intermediate=97), 2, "97 MLP columns cannot be shared by 2 ranks evenly"),
        (replace(TINY, heads=12, kv_heads=3), 2, "3 KV heads cannot be shared by 2 ranks evenly"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(config: TargetConfig, ranks: int, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        rank_config(config, ranks)
