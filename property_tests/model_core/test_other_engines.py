"""Golden reuse of other engines on the common workload: 992 hits behind prefixes of 1,536 tokens, no eviction."""

from __future__ import annotations

import pytest

from model.builds import BUILDS
from model.config import Drafter, EngineConfig, Limits, PoolSize, RequestSpec
from model.geometry import Lifecycle
from model.ops import Dispatch, Settle, Submit, World
from model.tokens import Segment

GROUPS, REQUESTS, SHARED, PRIVATE = 8, 1000, 1536, 512


def reused(build: str, page: int) -> int:
    """Cached tokens when the 1,000 prompts come one by one; the first private tokens of a group differ."""
    drafter = Lifecycle("draft", "draft", "draft")
    limits = Limits(page, 64, 2048, 4096, page, extra_tokens=1, run_ahead=0)
    size = PoolSize((SHARED + PRIVATE * REQUESTS) * 3 // page)
    config = EngineConfig(
        (Lifecycle("target", "target", "target"),),
        (drafter,),
        Drafter("eagle3", 0),
        limits,
        {"target": size, "draft": size},
    )
    world = World(config, BUILDS[build], check="off")
    for number in range(REQUESTS):
        prompt = (Segment(number % GROUPS, SHARED), Segment(1000 + number, PRIVATE, first=number))
        spec = RequestSpec(number, prompt, max_new_tokens=1, output_seed=number)
        assert world.apply(Submit(spec)).applied
        while world.engine.has_work():
            assert world.apply(Dispatch()).applied
            world.apply(Settle(()))
    return world.engine.totals.cached_tokens


@pytest.mark.parametrize("page", [16, 64, 128])
def test_target_only_reuse_is_every_shared_prefix(page: int) -> None:
    assert reused("target-only", page) == 992 * SHARED == 1_523_712


def test_dropping_the_last_block_costs_a_page_a_hit() -> None:
    assert reused("vllm-drop-last", 16) == 1_507_840
    assert reused("vllm-drop-last", 64) == 1_460_224


def test_lookahead_hashes_cost_a_page_where_the_next_tokens_differ() -> None:
    assert reused("vllm-lookahead", 16) == 1_507_840
