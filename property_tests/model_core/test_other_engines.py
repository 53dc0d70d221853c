"""Golden reuse of other engines on the common workload: 992 hits behind prefixes of 1,536 tokens, no eviction."""

from __future__ import annotations

import pytest

from model.builds import BUILDS
from model.config import Drafter, EngineConfig, Limits, PoolSize, RequestSpec
from model.geometry import Lifecycle
from model.ops import Dispatch, Settle, Submit, World
from model.tokens import Segment

GROUPS, REQUESTS, SHARED, PRIVATE = 8, 1000, 1536, 512


def reused(build: str, page: int, alike: bool = False) -> int:
    """Cached tokens when the 1,000 prompts come one by one; the first private tokens of a group differ, but for those
    of one pair if ``alike`` (as in the draw that the other engines were measured on)."""
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
        first = number - GROUPS if alike and number == 500 else number
        prompt = (Segment(number % GROUPS, SHARED), Segment(1000 + number, PRIVATE, first=first))
        spec = RequestSpec(number, prompt, max_new_tokens=1, output_seed=number)
        assert world.apply(Submit(spec)).applied
        while world.engine.has_work():
            assert world.apply(Dispatch()).applied
            world.apply(Settle(()))
    return world.engine.totals.cached_tokens


@pytest.mark.parametrize("page", [16, 64, 128])
def test_target_only_reuse_is_every_shared_prefix(page: int) -> None:
    assert reused("target-only", page) == 992 * SHARED == 1_523_712


def test_vllm_drop_last_gives_up_a_page_a_hit() -> None:
    assert reused("vllm-drop-last", 16) == 992 * (SHARED - 16) == 1_507_840


def test_one_64_token_page_dropped_a_hit() -> None:
    assert reused("vllm-drop-last", 64) == 992 * (SHARED - 64) == 1_460_224


def test_vllm_lookahead_costs_a_page_where_next_tokens_are_unique() -> None:
    assert reused("vllm-lookahead", 16) == 1_507_840


def test_vllm_lookahead_keeps_the_page_of_the_one_hit_whose_next_token_is_alike() -> None:
    assert reused("vllm-lookahead", 16, alike=True) == 1_507_840 + 16 == 1_507_856
    assert reused("vllm-drop-last", 16, alike=True) == 1_507_840
