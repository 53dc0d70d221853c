"""Matching a prompt: full blocks by key, one block in part, then the endpoint that every lifecycle covers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.config import Scope
from model.geometry import Lifecycle
from model.tree import Match
from property_tests.model_core.forest import Forest
from property_tests.model_core.helpers import lifecycle, view

PROMPT = list(range(10, 30))

# -- match ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("common", range(21))
def test_a_prompt_matches_exactly_as_far_as_it_is_equal(common: int) -> None:
    forest = Forest(lifecycle())
    forest.publish(PROMPT)
    assert forest.matched([*PROMPT[:common], 1, 2, 3]) == common


def test_a_partial_last_block_matches_as_far_as_it_goes() -> None:
    forest = Forest(lifecycle())
    forest.publish(PROMPT[:6])
    assert forest.matched(PROMPT) == 6
    assert forest.matched(PROMPT[:5]) == 5


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    forest = Forest(lifecycle())
    forest.publish(PROMPT)
    assert forest.match(PROMPT).tokens == len(PROMPT) - 1
    assert forest.match(PROMPT[:8]).tokens == 7


def test_a_limit_shortens_the_lookup_before_the_match() -> None:
    forest = Forest(lifecycle())
    nodes = [node for node in forest.publish(PROMPT) if node is not None]
    assert forest.match(PROMPT, 6) == Match(nodes[:2], 6)
    assert forest.match(PROMPT, 0) == Match([], 0)


def test_of_several_continuations_the_longest_common_one_is_taken() -> None:
    forest = Forest(lifecycle())
    for tail in ([1, 2, 3, 4], [1, 2, 5, 6], [7, 8, 9, 9]):
        forest.publish([*PROMPT[:4], *tail])
    assert forest.match([*PROMPT[:4], 1, 2, 5, 9, 9]).tokens == 7
    assert forest.match([*PROMPT[:4], 7, 1, 1, 1, 1]).tokens == 5


def test_of_two_equal_continuations_the_one_with_more_of_it_in_its_pages_is_taken() -> None:
    forest = Forest(lifecycle(), lifecycle("draft"))
    poor = forest.publish([1, 2, 3, 4], {1: [0]})[0]
    rich = forest.publish([1, 2, 3, 5])[0]
    assert poor is not rich
    assert forest.match([1, 2, 3, 9, 9]).nodes == [rich]


@pytest.mark.parametrize(("children", "matched"), [(1, 6), (31, 6), (32, 4), (40, 4)])
def test_with_32_continuations_or_more_no_block_is_matched_in_part(children: int, matched: int) -> None:
    forest = Forest(lifecycle())
    for child in range(children):
        forest.publish([*PROMPT[:4], 50, 51, 100 + child, 1])
    assert forest.matched([*PROMPT[:4], 50, 51, 9, 9]) == matched
    assert forest.matched([*PROMPT[:4], 50, 51, 100, 1]) == 8  # whole blocks are found by key


def test_the_limit_of_partial_matching_is_a_setting() -> None:
    forest = Forest(lifecycle(), partial_children=2)
    forest.publish([1, 2, 3, 4])
    assert forest.matched([1, 2, 9, 9]) == 2
    forest.publish([5, 6, 7, 8])
    assert forest.matched([1, 2, 9, 9]) == 0


def test_equal_tokens_of_another_scope_share_nothing() -> None:
    forest = Forest(lifecycle())
    forest.publish(PROMPT)
    for scope in (Scope(adapter="a"), Scope(salt="a"), Scope(target_weights=1), Scope(draft_weights=1)):
        keys = view(PROMPT, scope=scope)
        assert forest.tree.match(keys.seed, keys.keys, keys.items, keys.lookup(None)) == Match([], 0)


def test_a_probe_leaves_the_tree_as_it_was() -> None:
    forest = Forest(lifecycle())
    forest.publish(PROMPT)
    before = dict(forest.tree.index)
    assert forest.matched([*PROMPT[:7], 1]) == 7
    assert forest.tree.index == before
    assert forest.cached_pages() == 5


# -- trim, then prune to the fixed point ------------------------------------------------------------------------------


def test_a_window_that_is_not_cached_cuts_the_match_where_it_is_still_whole() -> None:
    forest = Forest(lifecycle(window=4))
    forest.publish(PROMPT, {0: [4, 4, 0, 0, 4]})
    assert forest.deepest([*PROMPT, 1]) == 20  # the window at 20 starts at 17
    assert forest.deepest([*PROMPT[:18], 1]) == 8  # the window at 18 starts at 15, in a block without a page


def test_one_pass_of_pruning_is_not_enough() -> None:
    """Cutting at one hole moves the window down onto the next one."""
    forest = Forest(lifecycle(), lifecycle("draft", 6))
    forest.publish(PROMPT, {1: [4, 4, 0, 4, 0]})
    assert forest.deepest([*PROMPT, 1]) == 8
    assert forest.deepest([*PROMPT, 1], 0) == 20


def test_a_page_counts_for_the_tokens_that_it_covers() -> None:
    forest = Forest(lifecycle(), lifecycle("draft", 4))
    forest.publish(PROMPT, {1: [4, 4, 4, 4, 2]})
    assert forest.deepest([*PROMPT, 1]) == 18
    forest = Forest(lifecycle())
    forest.publish(PROMPT, {0: [4, 3, 4, 4, 4]})
    assert forest.deepest([*PROMPT, 1]) == 7


def test_sinks_are_read_wherever_the_window_stands() -> None:
    for sinks, endpoint in ((0, 20), (1, 0), (4, 0)):
        forest = Forest(lifecycle(window=4, sinks=sinks))
        forest.publish(PROMPT, {0: [0, 0, 0, 4, 4]})
        assert forest.deepest([*PROMPT, 1]) == endpoint
    forest = Forest(lifecycle(window=4, sinks=8))
    forest.publish(PROMPT, {0: [4, 3, 0, 4, 4]})
    assert forest.deepest([*PROMPT, 1]) == 7


def test_the_lookahead_is_trimmed_before_the_window_is_checked() -> None:
    """Which pages are needed depends on the endpoint: pruning first would look at the window of another one."""
    forest = Forest(lifecycle("draft", 4, lookahead=2))
    forest.publish(PROMPT, {0: [4, 4, 0, 4, 4]})
    # 17 tokens match and 15 may be claimed: that window starts at 12, while the one at 17 would start at 14.
    assert forest.match([*PROMPT[:17], 1, 1]).tokens == 17
    assert forest.deepest([*PROMPT[:17], 1, 1]) == 15
    # 15 match and 13 may be claimed: that window starts at 10, in the block without a page.
    assert forest.deepest([*PROMPT[:15], 1, 1]) == 8


def test_an_endpoint_may_be_held_to_page_boundaries() -> None:
    forest = Forest(lifecycle(window=4))
    forest.publish(PROMPT[:18])
    assert forest.deepest(PROMPT) == 18
    assert forest.deepest(PROMPT, boundary=True) == 16


@st.composite
def cached_prompts(draw: st.DrawFn) -> tuple[list[Lifecycle], list[list[int]], int, bool]:
    """Lifecycles, the tokens that each block's page covers in each of them, an endpoint to stay below, and boundary."""
    blocks = draw(st.integers(1, 7))
    window = st.none() | st.integers(1, 12)
    lives = [
        lifecycle(
            f"pool-{place}", draw(window), sinks=draw(st.sampled_from([0, 1, 4, 6])), trail=draw(st.integers(0, 4))
        )
        for place in range(draw(st.integers(1, 3)))
    ]
    page = st.sampled_from([4, 4, 4, 3, 1, 0])
    covered = [[draw(page) for _ in range(blocks)] for _ in lives]
    return lives, covered, draw(st.integers(0, 4 * blocks)), draw(st.booleans())


def covers(life: Lifecycle, covered: list[int], end: int) -> bool:
    """By definition: every block that is not stale at ``end`` covers its tokens below it (the trail is not read)."""
    bare = lifecycle(window=life.window, sinks=life.sinks)
    begin, stale = bare.stale_range(end, 4)
    live = [block for block in range(-(-end // 4)) if not begin <= block < stale]
    return all(covered[block] >= min(4, end - 4 * block) for block in live)


@given(case=cached_prompts())
def test_the_endpoint_is_the_deepest_one_that_every_lifecycle_covers(
    case: tuple[list[Lifecycle], list[list[int]], int, bool],
) -> None:
    lives, covered, end, boundary = case
    forest = Forest(*lives)
    prompt = list(range(4 * len(covered[0])))
    nodes = forest.publish(prompt, dict(enumerate(covered)))
    keys = forest.view([*prompt, 1])
    match = Match([node for node in nodes if node is not None], len(prompt))
    expected = max(
        candidate
        for candidate in range(end + 1)
        if all(covers(life, row, candidate) for life, row in zip(lives, covered, strict=True))
        and not (boundary and candidate % 4)
    )
    assert forest.tree.deepest(match, end, tuple(range(len(lives))), keys, boundary) == expected


# -- evidence ---------------------------------------------------------------------------------------------------------


def test_a_branch_on_a_page_end_is_seen_in_what_stands_behind_the_page() -> None:
    """D = 1: the last drafter cell of a page depends on the next token, which the page's own key does not hold."""
    forest = Forest(lifecycle(), lifecycle("draft", lookahead=1))
    first, second = [*PROMPT[:8], 1, 2, 3, 4, 5], [*PROMPT[:8], 6, 7, 8, 9, 5]
    forest.publish(first[:12])
    forest.publish(second[:12])  # finds the two shared blocks, whose pages stay the first one's
    assert forest.deepest(first) == 11
    assert forest.deepest(second, 0) == 11
    assert forest.deepest(second, 1) == 7  # cell 7 was computed with the token 1


@pytest.mark.parametrize(("agreed", "endpoint"), [(0, 5), (1, 6), (2, 7), (3, 13)])
def test_cells_count_as_far_as_the_reader_goes_on_like_the_publisher(agreed: int, endpoint: int) -> None:
    """D = 3: two prompts share two blocks; one cell of the second is lost for each of the next tokens that differs."""
    forest = Forest(lifecycle(), lifecycle("draft", lookahead=3))
    first = [*PROMPT[:8], 1, 2, 3, 4]
    other = [*PROMPT[:8], *first[8 : 8 + agreed], 50, 51, 52, 53, 54, 55, 56, 57][:16]
    forest.publish(first)
    forest.publish(other)
    assert forest.deepest(other, 0) == 13
    assert forest.deepest(other, 1) == endpoint


def test_without_a_lookahead_there_is_nothing_behind_a_page() -> None:
    forest = Forest(lifecycle(), lifecycle("draft"))
    node = forest.publish(PROMPT[:8])[1]
    assert node is not None
    assert node.behind == [b"", b""]
