"""The naive oracle by itself, on examples computed by hand: what is live, what is covered, what is publishable.

Pages of 4 tokens, token i of a prompt is i unless said.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from property_tests.fuzz import oracle
from property_tests.fuzz.oracle_examples import TARGET, both, claim, deepest, pages, promise, prompt, world
from property_tests.fuzz.oracle_records import (
    RULES,
    Advanced,
    Claimed,
    Dropped,
    Freed,
    Granted,
    Group,
    Policy,
    Published,
    Record,
    World,
)

# Windows and sinks (semantics: section 1)


@pytest.mark.parametrize(
    ("window", "history", "released"),
    [
        (4, 7, [0]),  # (7 + 1 - 4) // 4 = 1
        (8, 7, []),  # (7 + 1 - 8) // 4 = 0
        (1, 8, [0, 1]),  # (8 + 1 - 1) // 4 = 2
        (None, 100, []),
    ],
)
def test_a_window_releases_the_blocks_below_history_plus_one_minus_window(window, history, released):
    group = Group("g", "target", window)
    assert list(oracle.stale(4, group, history, window)) == released


def test_sinks_stay_below_a_window():
    group = Group("g", "target", window=4, sinks=4)
    # (15 + 1 - 4) // 4 = 3, and cdiv(4, 4) = 1 block of sinks
    assert list(oracle.stale(4, group, 15, 4)) == [1, 2]
    assert oracle.reads(group, 15) == [0, 1, 2, 3, 12, 13, 14]


def test_at_eight_tokens_full_attention_needs_both_pages_and_windows_of_two_and_four_the_second():
    kind = World(4, (TARGET, Group("four", "draft", 4), Group("two", "draft", 2)))
    assert [oracle.live(kind, group, 8) for group in kind.groups] == [[*range(8)], [*range(4, 8)], [*range(4, 8)]]
    # but the query at 8 reads [8 + 1 - W, 8)
    assert [oracle.reads(group, 8) for group in kind.groups[1:]] == [[5, 6, 7], [7]]


def test_a_sink_page_that_is_lost_ends_every_claim_behind_it():
    kind = World(4, (Group("target", "target", window=4, sinks=4),))
    history = pages(kind.groups[0], prompt(16), 0, 16)
    assert deepest(kind, RULES["target-only"], history, prompt(18)) == 16
    lost = [*history, Dropped("target", 65000, 0)]
    assert deepest(kind, RULES["target-only"], lost, prompt(18)) == 0


# Content


def test_a_target_cell_is_there_as_far_as_the_tokens_agree():
    history = pages(TARGET, prompt(12), 0, 12)
    seen = oracle.view(World(4, (TARGET,)), history, claim(prompt(14, shared=10), 0))
    assert seen.there["target"] == set(range(10))


def test_a_scope_sees_no_page_of_another():
    kind = world()
    history = both(kind, prompt(12), 12)
    assert oracle.claimable(kind, RULES["joint-minimum"], history, prompt(14), "adapter 7") == [0]


@pytest.mark.parametrize("lookahead", [0, 1, 2, 3])
def test_a_common_prefix_of_eight_serves_eight_less_the_lookahead(lookahead):
    kind = world(None, lookahead=lookahead)
    history = both(kind, prompt(16), 12)
    tokens = prompt(16, shared=8)
    # draft cell i is made of the tokens up to i + D, of which those up to 7 are common: i <= 7 - D
    assert deepest(kind, RULES["joint-minimum"], history, tokens) == 8 - lookahead
    assert promise(kind, RULES["joint-minimum"], history, tokens) == 8 - lookahead


@pytest.mark.parametrize(("lookahead", "depth"), [(0, 11), (1, 11), (2, 10), (3, 9)])
def test_a_repeat_computes_its_last_token_or_as_many_as_the_lookahead(lookahead, depth):
    kind = world(None, lookahead=lookahead)
    history = both(kind, prompt(12), 12)
    assert deepest(kind, RULES["joint-minimum"], history, prompt(12)) == depth
    assert promise(kind, RULES["joint-minimum"], history, prompt(12)) == depth


def test_raw_keys_that_ignore_the_lookahead_are_unsound_at_the_last_common_position():
    kind = world(None, lookahead=1)
    history = both(kind, prompt(16), 12)
    said = oracle.sound(kind, RULES["joint-minimum"], history, claim(prompt(16, shared=8), 8))
    assert said == (
        "request B claims 8 of 16 tokens, but 'draft' reads position 7, which no published page holds for this prompt; "
        "the deepest legal depth is 7"
    )


@pytest.mark.parametrize(
    ("lookahead", "fed", "first_wrong"),
    [(1, (10, 11, 12, 13, 99), 3), (2, (10, 11, 12, 13, 99, 98), 2)],
)
def test_a_placeholder_at_the_end_of_a_chunk_spoils_the_cells_that_look_at_it(lookahead, fed, first_wrong):
    kind = world(None, lookahead=lookahead)
    true = tuple(range(10, 18))
    page = Published("A", "draft", 1, 0, 0, 4, fed, "base")
    history = [*pages(TARGET, true, 0, 8), page]
    said = oracle.sound(kind, RULES["joint-minimum"], history, claim(true, 4))
    assert said is not None and f"'draft' reads position {first_wrong}," in said
    computed = [Claimed("A", true, "base", 0, 0), Advanced("A", 4)]
    said = oracle.published(kind, "all_reusable", computed, page)
    assert said == "request A publishes [0, 4) of 'draft' with content of other tokens than its prompt's"


def test_a_generated_token_that_happens_to_agree_is_legal_but_not_promised():
    kind = world(None, lookahead=1)
    history = both(kind, prompt(9), 8)  # a prompt of 8; token 8 was generated, draft cell 7 looked at it
    assert deepest(kind, RULES["joint-minimum"], history, prompt(12)) == 8
    assert promise(kind, RULES["joint-minimum"], history, prompt(12)) == 7  # 8 matched, D = 1 given back


def test_shifted_keys_need_no_evidence_behind_their_own_items():
    kind = replace(world(None, lookahead=1), shifted=True)
    tokens = prompt(9)
    history: list[Record] = []
    for group in kind.groups:
        history += [Published("A", group.name, i, 0, 4 * i, 4, tokens[: 4 * i + 5], "base") for i in range(2)]
    # 9 tokens give 8 items, in two whole pages
    assert promise(kind, RULES["joint-minimum"], history, prompt(12)) == 8


# What is live


def test_a_table_leads_to_the_positions_of_the_pages_that_its_owner_holds():
    history = [Granted("A", "target", 0, 7, 0), Granted("A", "target", 1, 8, 0), Granted("B", "target", 0, 7, 0)]
    history += [Freed("A", "target", 7, 0)]
    assert oracle.table(world(), history, "A", "target") == {4, 5, 6, 7}
    assert oracle.table(world(), history, "B", "target") == {0, 1, 2, 3}


def test_a_page_released_too_early_is_named_when_its_window_reads_it():
    kind = World(4, (Group("target", "target", 4),))
    history = [claim(prompt(8), 0), *(Granted("B", "target", i, i, 0) for i in range(2)), Freed("B", "target", 0, 0)]
    assert oracle.retained(kind, history, "B", 7) is None  # reads [4, 7)
    said = oracle.retained(kind, history, "B", 6)  # reads [3, 6)
    assert said == "request B at 6 reads position 3 of 'target', gone from its table"


def test_a_page_granted_twice_is_held_until_it_is_freed_twice():
    twice = [Granted("A", "target", 0, 7, 0), Granted("A", "target", 0, 7, 0), Freed("A", "target", 7, 0)]
    assert oracle.holders(twice) == [Granted("A", "target", 0, 7, 0)]


def test_a_page_shared_in_one_life_is_not_recycled():
    assert oracle.recycled([Granted("A", "target", 0, 7, 3), Granted("B", "target", 0, 7, 3)]) is None


def test_a_fresh_mirror_does_not_read_below_its_base():
    kind = world(8)
    history = [claim(prompt(20), 12, draft=0), *(Granted("B", "target", i, i, 0) for i in range(5))]
    history += [Granted("B", "draft", i, i, 0) for i in (3, 4)]
    assert oracle.retained(kind, history, "B", 16) is None  # [9, 16), of which [9, 12) is hidden


def test_a_page_that_lives_again_while_somebody_holds_it_is_named():
    first = Granted("A", "target", 0, 7, 0)
    said = oracle.recycled([first, Granted("B", "target", 0, 7, 1)])
    assert said is not None and said.startswith("page 7 of 'target' went to request B while Granted(owner='A'")
    assert oracle.recycled([first, Freed("A", "target", 7, 0), Granted("B", "target", 0, 7, 1)]) is None
    published = Published("A", "target", 7, 0, 0, 4, prompt(4), "base")
    assert oracle.recycled([published, Granted("B", "target", 0, 7, 1)]) is not None


@pytest.mark.parametrize("record", [Freed("A", "target", 7, 0), Dropped("target", 7, 0)])
def test_a_history_that_contradicts_itself_is_refused(record):
    with pytest.raises(ValueError, match="expected a"):
        oracle.recycled([record, Granted("B", "target", 0, 7, 0)])


def test_a_request_without_admission_is_refused():
    with pytest.raises(ValueError, match="request A: expected an admission"):
        oracle.publishable(world(), "all_reusable", [], "A")


# What is publishable


def computed(tokens: tuple[int, ...], *chunks: int, depth: int = 0, draft: int = 0) -> list[Record]:
    """Request A claims ``depth`` and computes ``tokens`` up to each of ``chunks``."""
    return [Claimed("A", tokens, "base", depth, draft), *(Advanced("A", chunk) for chunk in chunks)]


def entries(kind: World, policy: Policy, history: list[Record], *branches: int) -> dict[str, dict[int, int]]:
    """Group name -> block -> cells that may enter."""
    may = oracle.publishable(kind, policy, history, "A", branches)
    return {group.name: {b: n for (b, name), n in may.items() if name == group.name} for group in kind.groups}


def test_with_all_reusable_whole_pages_enter_after_each_chunk_and_the_last_page_at_the_end():
    kind = world(4)
    first = entries(kind, "all_reusable", computed(prompt(10), 6))
    assert first == {"target": {0: 4}, "draft": {0: 4}}
    done = entries(kind, "all_reusable", computed(prompt(10), 6, 10))
    assert done == {"target": {0: 4, 1: 4, 2: 2}, "draft": {0: 4, 1: 4, 2: 2}}


@pytest.mark.parametrize("policy", ["per_request", "per_conversation"])
def test_otherwise_nothing_enters_before_the_end_and_of_a_window_only_what_is_live_there(policy):
    kind = world(4)
    assert entries(kind, policy, computed(prompt(12), 8)) == {"target": {}, "draft": {}}
    done = entries(kind, policy, computed(prompt(12), 8, 12))
    # (12 + 1 - 4) // 4 = 2: the drafter's blocks 0 and 1 are stale
    assert done == {"target": {0: 4, 1: 4, 2: 4}, "draft": {2: 4}}


def test_a_trailing_page_is_published_with_its_window():
    kind = world(4)
    kind = replace(kind, groups=(TARGET, replace(kind.groups[1], stored=8)))
    # (12 + 1 - 8) // 4 = 1
    assert entries(kind, "per_request", computed(prompt(12), 12))["draft"] == {1: 4, 2: 4}


def test_generated_tokens_never_enter():
    kind = world(4)
    assert entries(kind, "all_reusable", computed(prompt(6), 6, 9))["target"] == {0: 4, 1: 2}


def test_a_fresh_mirror_publishes_no_page_that_begins_below_its_start():
    done = entries(world(4), "all_reusable", computed(prompt(14), 14, depth=6))
    # the drafter computed [6, 14): page 1 lacks the positions 4 and 5
    assert done["draft"] == {2: 4, 3: 2}
    assert done["target"] == {0: 4, 1: 4, 2: 4, 3: 2}


def test_a_reused_window_and_what_follows_it_may_be_published():
    done = entries(world(4), "all_reusable", computed(prompt(14), 14, depth=6, draft=6))
    # live at 6: [4, 6) behind (6 + 1 - 4) // 4 = 0, so page 0 as well
    assert done["draft"] == {0: 4, 1: 4, 2: 4, 3: 2}


def test_shifted_keys_publish_no_page_of_the_last_positions():
    raw = world(None, lookahead=2)
    shifted = replace(raw, shifted=True)
    assert entries(raw, "all_reusable", computed(prompt(9), 9))["draft"] == {0: 4, 1: 4, 2: 1}
    assert entries(shifted, "all_reusable", computed(prompt(9), 9))["draft"] == {0: 4, 1: 3}  # 9 - 2 = 7 items


def test_a_branch_point_publishes_the_window_below_it_once_it_is_passed():
    kind = world(4)
    assert entries(kind, "per_request", computed(prompt(30), 8), 18)["draft"] == {}
    done = entries(kind, "per_request", computed(prompt(30), 30), 18)["draft"]
    # at 18: (18 + 1 - 4) // 4 = 3, pages 3 and 4 (two cells); at 30: (30 + 1 - 4) // 4 = 6, pages 6 and 7 (two cells)
    assert done == {3: 4, 4: 2, 6: 4, 7: 2}


def test_a_page_that_a_branch_ends_in_enters_whole_once_it_is_full():
    assert entries(world(4), "all_reusable", computed(prompt(12), 12), 10)["target"] == {0: 4, 1: 4, 2: 4}


def test_only_its_last_admission_and_its_own_chunks_speak_for_a_request():
    again = [*computed(prompt(12), 12), *computed(prompt(16), 4, depth=4), Advanced("B", 16)]
    assert oracle.claim_of(again, "A").depth == 4
    assert entries(world(4), "all_reusable", again)["target"] == {0: 4}


@pytest.mark.parametrize(
    ("policy", "chunk", "cells", "said"),
    [
        ("all_reusable", 8, 4, None),
        ("per_request", 8, 4, "0 cells of that page may enter under per_request"),  # early
        ("per_conversation", 12, 4, "0 cells of that page may enter under per_conversation"),  # stale at 12
        ("all_reusable", 6, 2, "0 cells of that page may enter under all_reusable"),  # half a page inside the context
    ],
)
def test_a_publication_that_its_policy_forbids_is_named(policy, chunk, cells, said):
    page = Published("A", "draft", 1, 0, 4, cells, prompt(4 + cells), "base")
    found = oracle.published(world(4), policy, computed(prompt(12), chunk), page)
    assert found == (said and f"request A publishes [4, {4 + cells}) of 'draft', but {said}")


def test_a_page_that_the_drafter_never_wrote_must_not_be_published():
    page = Published("A", "draft", 1, 0, 4, 4, prompt(8), "base")
    found = oracle.published(world(4), "all_reusable", computed(prompt(12), 12, depth=8), page)
    assert found == "request A publishes [4, 8) of 'draft', but 0 cells of that page may enter under all_reusable"
