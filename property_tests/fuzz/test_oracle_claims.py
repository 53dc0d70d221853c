"""What the naive oracle says of claims, on examples computed by hand: pages of 4 tokens, token i of a prompt is i."""

from __future__ import annotations

from dataclasses import replace

import pytest

from property_tests.fuzz import oracle
from property_tests.fuzz.oracle_examples import TARGET, both, claim, deepest, pages, promise, prompt, world
from property_tests.fuzz.oracle_records import RULES, Group, World

# Claims of two pools


def test_the_joint_minimum_is_what_both_pools_hold():
    kind = world(None)
    history = [*pages(TARGET, prompt(12), 0, 12), *pages(kind.groups[1], prompt(12), 0, 8)]
    assert deepest(kind, RULES["joint-minimum"], history, prompt(14)) == 8
    assert deepest(kind, RULES["target-only"], history, prompt(14)) == 12
    assert oracle.sound(kind, RULES["target-only"], history, claim(prompt(14), 12, 0)) is None
    said = oracle.sound(kind, RULES["joint-minimum"], history, claim(prompt(14), 12))
    assert said is not None and "'draft' reads position 8," in said


def test_a_draft_frontier_between_nothing_and_the_claim_is_unsound():
    kind = world(None)
    said = oracle.sound(kind, RULES["joint-minimum"], both(kind, prompt(12), 12), claim(prompt(14), 12, draft=8))
    assert said is not None and "the draft frontier is 8" in said


def test_where_draft_pages_are_required_a_claim_without_them_is_unsound():
    kind = world(4)
    said = oracle.sound(kind, RULES["joint-minimum"], both(kind, prompt(12), 12), claim(prompt(24), 8, draft=0))
    assert said is not None and "no draft page is reused" in said  # although a fresh mirror could start at 8


@pytest.mark.parametrize(("length", "limit"), [(20, 13), (21, 14), (22, 15), (7, 0), (8, 1)])
def test_a_fresh_mirror_starts_a_window_below_the_first_draft_query(length, limit):
    assert oracle.fresh_limit(world(8), length) == limit  # L + 1 - 8, and 0 if W >= L + 1


def test_the_limit_of_the_seeds_long_prompt_is_twelve_thousand_four_hundred_and_sixteen():
    kind = World(128, (TARGET, Group("draft", "draft", 4096)))
    # 16,600 + 1 - 4,096 = 12,505, and 12,505 // 128 * 128 = 12,416
    assert oracle.fresh_limit(kind, 16_600) // 128 * 128 == 12_416


@pytest.mark.parametrize("depth", range(1, 20))
def test_one_token_beyond_the_limit_breaks_the_policy_and_two_break_the_read_bound(depth):
    kind, rule, history = world(8), RULES["windowed-pair"], pages(TARGET, prompt(19), 0, 19)
    attempt = claim(prompt(20), depth, draft=0)
    assert (oracle.sound(kind, rule, history, attempt) is None) == (depth <= 13)  # 20 + 1 - 8
    assert (oracle.sound(kind, rule, history, attempt, spare=1) is None) == (depth <= 14)  # first read at 20 + 2 - 8


@pytest.mark.parametrize(("length", "safe"), [(22, True), (21, False)])
def test_a_floored_claim_of_sixteen_for_twelve_is_safe_at_twenty_two_tokens_and_not_at_twenty_one(length, safe):
    # limit 22 + 1 - 8 = 15, read bound 16; limit 21 + 1 - 8 = 14, read bound 15: both claim 12 on pages
    kind, rule, history = world(8), RULES["windowed-pair-nobranch"], pages(TARGET, prompt(20), 0, 20)
    attempt = claim(prompt(length), 16, draft=0)
    assert promise(kind, rule, history, prompt(length)) == 12
    assert oracle.sound(kind, rule, history, attempt) is not None
    assert (oracle.sound(kind, rule, history, attempt, spare=1) is None) == safe


def test_a_match_at_or_below_the_limit_is_claimed_whole():
    kind, history = world(8), pages(TARGET, prompt(18), 0, 18)
    # limit 25 + 1 - 8 = 18, the match: no flooring to 16
    assert promise(kind, RULES["windowed-pair"], history, prompt(25)) == 18
    assert promise(kind, RULES["optional-at-page-boundary"], history, prompt(25)) == 18


def test_a_fresh_mirror_starts_where_the_targets_own_window_is_there():
    kind = World(4, (Group("target", "target", 4), Group("draft", "draft", 4)))
    history = [*pages(kind.groups[0], prompt(8), 0, 8), *pages(kind.groups[0], prompt(20), 16, 20)]
    # the target matches 20 by [17, 20); the limit is 21 + 1 - 4 = 18, on pages 16, whose [13, 16) is gone: 8 by [5, 8)
    assert promise(kind, RULES["windowed-pair-nobranch"], history, prompt(21)) == 8


def test_a_full_attention_drafter_starts_at_nothing_without_its_pages():
    kind, history = world(None), pages(TARGET, prompt(20), 0, 20)
    assert deepest(kind, RULES["windowed-pair"], history, prompt(40)) == 0


def test_a_branch_point_lets_a_fresh_mirror_start_one_window_below_the_shared_prefix():
    kind, tokens = world(8), prompt(26, shared=20)
    history = pages(TARGET, prompt(30), 0, 28)
    # P = 20, limit 26 + 1 - 8 = 19 < P: on pages 16 without a branch point, floor(20 - 8) = 12 with one
    assert promise(kind, RULES["windowed-pair-nobranch"], history, tokens) == 16
    assert promise(kind, RULES["windowed-pair"], history, tokens) == 12
    said = oracle.complete(kind, RULES["windowed-pair-nobranch"], history, claim(tokens, 12, draft=0))
    assert said == "request B claims 12 of 26 tokens, but published pages serve 16"


def test_once_the_branch_window_is_published_the_shared_prefix_is_claimed_whole():
    kind, tokens = world(8), prompt(25, shared=18, tail=300)
    history = [*pages(TARGET, prompt(30), 0, 28), *pages(kind.groups[1], prompt(18), 8, 18)]
    # P = 18 reads [18 + 1 - 8, 18) = [11, 18): pages 2, 3 and two cells of page 4
    assert promise(kind, RULES["windowed-pair"], history, tokens) == 18
    assert oracle.sound(kind, RULES["windowed-pair"], history, claim(tokens, 18)) is None
    assert oracle.complete(kind, RULES["windowed-pair"], history, claim(tokens, 18)) is None
    said = oracle.complete(kind, RULES["windowed-pair"], history, claim(tokens, 8, draft=0))
    assert said == "request B claims 8 of 25 tokens, but published pages serve 18"


def test_on_a_tie_the_draft_pages_are_reused():
    kind, history = world(4), both(world(4), prompt(8), 8)
    # 8 is legal either way: limit 14 + 1 - 4 = 11
    assert oracle.complete(kind, RULES["windowed-pair"], history, claim(prompt(14), 8)) is None
    said = oracle.complete(kind, RULES["windowed-pair"], history, claim(prompt(14), 8, draft=0))
    assert said == "request B claims 8 of 14 tokens without the draft pages that serve it"


def test_where_any_draft_match_wins_no_deeper_fresh_claim_is_promised():
    kind = world(4)
    history = [*pages(TARGET, prompt(20), 0, 20), *pages(kind.groups[1], prompt(20), 0, 8)]
    # a fresh mirror could start at floor(24 + 1 - 4) = 20; the draft pages serve 8
    assert promise(kind, RULES["windowed-pair"], history, prompt(24)) == 20
    assert promise(kind, RULES["windowed-pair-draft-first"], history, prompt(24)) == 8


def test_two_separate_trees_with_windows_on_both_sides_promise_no_joint_depth_and_one_tree_does():
    groups = (Group("target", "target", 8), Group("draft", "draft", 8))
    apart, one = World(4, groups), World(4, groups, one_tree=True)
    history = both(apart, prompt(12), 12)
    assert promise(apart, RULES["joint-minimum"], history, prompt(14)) == 0
    assert promise(one, RULES["joint-minimum"], history, prompt(14)) == 12


# Endpoints


def test_a_repeat_claims_all_but_one_token_at_any_endpoint_and_its_whole_pages_at_a_boundary():
    kind = world(8, one_tree=True)
    history = both(kind, prompt(11), 11)
    assert promise(kind, RULES["optional-at-any-endpoint"], history, prompt(11)) == 10  # L - 1
    assert promise(kind, RULES["optional-at-page-boundary"], history, prompt(11)) == 8  # floored: B - 1 at most
    said = oracle.complete(kind, RULES["optional-at-any-endpoint"], history, claim(prompt(11), 8))
    assert said == "request B claims 8 of 11 tokens, but published pages serve 10"
    said = oracle.sound(kind, RULES["optional-at-page-boundary"], history, claim(prompt(11), 10))
    assert said is not None and "draft pages serve only claims that end on a page" in said


def test_a_boundary_rule_may_lose_the_window_that_the_endpoint_still_has():
    kind = world(4, one_tree=True)
    history = [*pages(TARGET, prompt(11), 0, 11), *pages(kind.groups[1], prompt(11), 8, 11)]
    # at 11 the drafter reads [8, 11), at 8 it reads [5, 8), which is gone; a fresh mirror: floor(12 + 1 - 4) = 8
    assert promise(kind, RULES["optional-at-any-endpoint"], history, prompt(12)) == 11
    assert promise(kind, RULES["optional-at-page-boundary"], history, prompt(12)) == 8
    assert oracle.sound(kind, RULES["optional-at-page-boundary"], history, claim(prompt(12), 8)) is not None
    assert oracle.sound(kind, RULES["optional-at-page-boundary"], history, claim(prompt(12), 8, draft=0)) is None


def test_a_claim_below_the_deepest_is_unsound_where_its_own_window_is_gone():
    kind = world(4, one_tree=True)
    history = [*pages(TARGET, prompt(12), 0, 12), *pages(kind.groups[1], prompt(12), 8, 12)]
    assert oracle.sound(kind, RULES["optional-at-any-endpoint"], history, claim(prompt(14), 12)) is None
    assert oracle.sound(kind, RULES["optional-at-any-endpoint"], history, claim(prompt(14), 8)) is not None


def test_a_claim_without_the_window_asks_the_target_alone():
    kind, history = world(8, one_tree=True), pages(TARGET, prompt(12), 0, 12)
    attempt = claim(prompt(14), 12, draft=0)
    assert oracle.sound(kind, RULES["optional-without-window"], history, attempt) is None
    assert oracle.sound(kind, RULES["optional-at-any-endpoint"], history, attempt) is not None


def test_inside_a_page_the_first_tokens_are_matched_by_a_copy():
    kind = world(None)
    history = both(kind, prompt(12), 12)
    for common in range(8, 12):
        assert promise(kind, RULES["joint-minimum"], history, prompt(16, shared=common)) == common


def test_a_child_without_a_draft_page_that_agrees_further_takes_the_partial_match():
    kind = world(None, one_tree=True)
    long, short = prompt(12, shared=11, tail=200), prompt(12, shared=10, tail=300)
    history = [*both(kind, short, 12), *pages(TARGET, long, 0, 12, "C")]
    tokens = prompt(16)
    # the tree takes the child with 3 common tokens; it has no draft page, so the claim is cut before that page
    assert deepest(kind, RULES["joint-minimum"], history, tokens) == 10
    assert promise(kind, RULES["joint-minimum"], history, tokens) == 8


@pytest.mark.parametrize(("children", "depth"), [(31, 10), (32, 8)])
def test_at_thirty_two_children_only_whole_pages_are_matched(children, depth):
    kind = World(4, (TARGET,))
    history = pages(TARGET, prompt(8), 0, 8)
    for child in range(children):
        history += pages(TARGET, prompt(12, shared=10, tail=1000 + 10 * child), 8, 12, chr(200 + child))
    assert deepest(kind, RULES["target-only"], history, prompt(12)) == 10
    assert promise(kind, RULES["target-only"], history, prompt(12)) == depth


# Tails and last pages


@pytest.mark.parametrize(
    ("matched", "tail", "depth"),
    [
        (12, 6, 4),  # 13 - 12 < 6: floor(13 - 6) = 4
        (7, 6, 7),  # 13 - 7 >= 6: the match stands
        (12, 0, 12),
        (12, -1, 0),
        (12, 20, 0),
    ],
)
def test_a_recomputed_tail_rewinds_the_claim_to_a_page(matched, tail, depth):
    kind, rule = world(), replace(RULES["recompute-tail"], tail=tail)
    history = pages(TARGET, prompt(13), 0, matched)
    assert promise(kind, rule, history, prompt(13)) == depth
    assert oracle.sound(kind, rule, history, claim(prompt(13), depth, draft=0)) is None


def test_a_claim_inside_the_tail_is_unsound():
    rule = replace(RULES["recompute-tail"], tail=6)
    said = oracle.sound(world(), rule, pages(TARGET, prompt(13), 0, 12), claim(prompt(13), 8, draft=0))
    assert said is not None and "a tail of 6 tokens has to be computed" in said


def test_dropping_the_last_page_loses_one_page_and_no_more():
    kind = world(None, one_tree=True)
    history = both(kind, prompt(14), 14)
    # 13 tokens may match, three whole pages; the third is given back
    assert promise(kind, RULES["drop-last-page"], history, prompt(14)) == 8
    assert oracle.complete(kind, RULES["drop-last-page"], history, claim(prompt(14), 8)) is None
    said = oracle.complete(kind, RULES["drop-last-page"], history, claim(prompt(14), 4))
    assert said == "request B claims 4 of 14 tokens, but published pages serve 8"


def test_the_last_token_is_always_computed():
    kind = world(None)
    said = oracle.sound(kind, RULES["joint-minimum"], both(kind, prompt(12), 12), claim(prompt(12), 12))
    assert said is not None and "the last token is always computed" in said


def test_a_page_at_which_a_block_ended_is_promised_to_one_longer_block_at_most() -> None:
    """Found by a campaign: the longer block that came first took the draft page over, the claim met the other one."""
    kind, rule = world(window=2, one_tree=True), RULES["joint-minimum"]
    target, draft = kind.groups
    short = [*pages(target, prompt(4), 0, 4), *pages(draft, prompt(6), 4, 6)]
    first = pages(target, prompt(8, 6, 50), 4, 8, "C")
    second = pages(target, prompt(8, 6, 70), 4, 8, "D")
    reader = prompt(9, 6, 70)
    assert promise(kind, rule, [*short, *second], reader) == 6
    assert promise(kind, rule, [*short, *first, *second], reader) == 0


def test_no_more_is_promised_than_the_keys_span() -> None:
    """What was generated before a preemption is read again, but looked up by nobody."""
    kind, tokens = world(), prompt(12)
    history = both(kind, prompt(16), 12)
    made = claim(tokens, 6)
    rule = RULES["target-only"]
    assert oracle.complete(kind, rule, history, made) is not None
    assert oracle.complete(kind, rule, history, replace(made, keyed=6)) is None
    assert oracle.complete(kind, rule, history, replace(made, depth=4, keyed=6)) is not None
