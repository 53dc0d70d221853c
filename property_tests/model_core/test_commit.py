"""Publication: which pages enter the prefix tree, when equal ones become one, and what ends it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model.eviction import PageState
from model.geometry import ReusePolicy
from model.manager import Manager
from model.plan import Record
from model.rules.base import Rules
from model.rules.publish import Publish
from model.sequence import Publication, SequenceCache
from model.table import NO_PAGE
from model.tree import Node
from property_tests.model_core.helpers import NOTHING, claimed, lifecycle, manager, opened, published, view

PROMPT = list(range(10, 30))
WINDOW = lifecycle(window=4)


def written(target: Manager, owner: int, ids: list[int], **keys: object) -> SequenceCache:
    """A sequence whose whole prompt was computed and that published nothing yet."""
    sequence = opened(target, owner, ids, **keys)
    sequence.wrote(len(ids))
    return sequence


def publishing(**answers: object) -> Rules:
    return replace(Rules(), publish=Publish(**answers))  # pyright: ignore[reportArgumentType]


def path(target: Manager, ids: list[int]) -> list[Node]:
    """The nodes of a prompt's blocks, the partial last one included."""
    return target.probe(view([*ids, 4095])).match.nodes


# -- commit -----------------------------------------------------------------------------------------------------------


def test_full_blocks_are_published_and_the_rest_waits() -> None:
    target = manager()
    sequence = written(target, 1, PROMPT)
    target.commit(sequence, 11)
    assert (sequence.committed, sequence.next_block) == (8, 2)
    assert target.probe(view([*PROMPT, 1])).tokens == 8
    target.commit(sequence, 11)
    target.commit(sequence, 20)
    assert sequence.committed == 20


def test_the_end_of_a_context_publishes_its_partial_page() -> None:
    target = manager()
    sequence = written(target, 1, PROMPT[:10])
    target.commit(sequence, 10, final=True)
    assert sequence.committed == 8  # the partial block is a leaf; the owner goes on writing behind it
    assert [node.length for node in path(target, PROMPT)] == [4, 4, 2]
    assert sequence.publication is Publication.STOPPED


def test_after_the_end_of_a_context_nothing_more_is_published() -> None:
    target = manager()
    sequence = written(target, 1, PROMPT)
    target.stop_committing(sequence)
    target.commit(sequence, 20, final=True)
    assert target.tree.index == {}
    assert sequence.committed == 0


def test_a_published_page_stays_its_owners() -> None:
    target = manager()
    sequence = written(target, 1, PROMPT)
    target.commit(sequence, 20)
    pool = target.pools[0]
    assert [pool.state[page] for page in sequence.tables[0].pages] == [PageState.LOCKED] * 5
    assert [node.pages[0] for node in path(target, PROMPT)] == sequence.tables[0].pages.tolist()


def test_pages_of_one_run_are_told_to_the_memory_as_one() -> None:
    target = manager()
    sequence = written(target, 1, PROMPT[:18])
    target.commit(sequence, 8)
    target.commit(sequence, 18, final=True)
    told = [record for record in target.recorder.records if record[0] == Record.PUBLISH]
    pages = sequence.tables[0].pages
    assert told == [(Record.PUBLISH, 0, pages[:4], 4, 1, 0, 0), (Record.PUBLISH, 0, pages[4:], 2, 1, 0, 4)]


def test_a_suspended_sequence_publishes_nothing_until_it_is_back() -> None:
    target = manager()
    sequence = written(target, 1, PROMPT)
    sequence.suspend()
    target.commit(sequence, 20)
    assert sequence.committed == 0
    assert sequence.resume()
    target.commit(sequence, 20)
    assert sequence.committed == 20


def test_a_sequence_whose_branch_was_evicted_stops_publishing() -> None:
    """Its next block would hang on a node that no match can reach."""
    target = manager(lifecycle(), lifecycle("draft", 4))
    sequence = written(target, 1, PROMPT)
    target.commit(sequence, 12)
    target.tree.lose(path(target, PROMPT)[0], 0)
    target.commit(sequence, 20)
    assert sequence.publication is Publication.CONFLICT
    assert target.tree.index == {}
    target.commit(sequence, 20, final=True)  # accepted, and silent
    target.free(1)
    assert [pool.free_count() for pool in target.pools] == [16, 16]


# -- equal blocks become one ------------------------------------------------------------------------------------------


def test_a_block_that_somebody_else_published_first_is_shared() -> None:
    target = manager()
    first, second = written(target, 1, PROMPT), written(target, 2, PROMPT)
    target.commit(first, 20)
    own = second.tables[0].pages.tolist()
    target.commit(second, 20)
    pool = target.pools[0]
    assert second.tables[0].pages == first.tables[0].pages
    assert {pool.locks[page] for page in first.tables[0].pages} == {2}
    assert {pool.state[page] for page in own} == {PageState.FREE}
    assert second.committed == 20


def test_a_partial_page_is_never_shared_by_two_writers() -> None:
    target = manager()
    first, second = written(target, 1, PROMPT[:6]), written(target, 2, PROMPT[:6])
    target.commit(first, 6, final=True)
    target.commit(second, 6, final=True)
    assert second.tables[0].pages[0] == first.tables[0].pages[0]
    assert second.tables[0].pages[1] != first.tables[0].pages[1]


def test_cells_that_depend_on_tokens_behind_the_prompt_keep_a_page_apart() -> None:
    """D = 1: the drafter's last cell of a prompt that ends on a page is rewritten when the next token is known."""
    for length, shared in ((8, [True, False]), (9, [True, True])):
        target = manager(lifecycle("draft", lookahead=1))
        first = written(target, 1, PROMPT[:length], lookahead=1)
        second = written(target, 2, PROMPT[:length], lookahead=1)
        target.commit(first, length)
        target.commit(second, length)
        pages = zip(first.tables[0].pages[:2], second.tables[0].pages[:2], strict=True)
        assert [one == other for one, other in pages] == shared


def test_pages_with_other_tokens_behind_them_are_kept_apart() -> None:
    target = manager(lifecycle("draft", lookahead=1))
    first = written(target, 1, PROMPT[:12], lookahead=1)
    second = written(target, 2, [*PROMPT[:8], 1, 2, 3, 4], lookahead=1)
    target.commit(first, 12)
    target.commit(second, 12)
    assert second.tables[0].pages[0] == first.tables[0].pages[0]
    assert second.tables[0].pages[1] != first.tables[0].pages[1]
    assert len(target.tree.index) == 4


def test_a_sink_page_is_shared_like_any_other() -> None:
    target = manager(lifecycle(window=4, sinks=4))
    first, second = written(target, 1, PROMPT), written(target, 2, PROMPT)
    target.commit(first, 20)
    second.settle(20)
    own = second.tables[0].sinks[0]
    target.commit(second, 20)
    assert second.tables[0].sinks == first.tables[0].pages[:1]
    assert target.pools[0].state[own] == PageState.FREE


# -- holes ------------------------------------------------------------------------------------------------------------


def holed(rules: Rules | None = None) -> Manager:
    """Blocks 0..4 of the prompt are cached; the windowed drafter lost its page of block 1."""
    target = manager(lifecycle(), lifecycle("draft", 4), rules=rules)
    published(target, 1, PROMPT)
    target.tree.lose(path(target, PROMPT)[1], 1)
    return target


@pytest.mark.parametrize(
    ("rules", "fill_until", "filled"),
    [
        (publishing(), 0, False),
        (publishing(), 4, False),
        (publishing(), 5, True),
        (publishing(fill_holes=True), 0, True),
    ],
)
def test_a_hole_is_filled_only_below_a_branch_point_or_where_the_rule_says_so(
    rules: Rules, fill_until: int, filled: bool
) -> None:
    target = holed(rules)
    sequence = written(target, 2, PROMPT)
    target.commit(sequence, 20, fill_until=fill_until)
    node = path(target, PROMPT)[1]
    assert (node.pages[1] != NO_PAGE) == filled
    assert (sequence.tables[1].page(1) == node.pages[1]) == filled
    assert target.pools[0].node[sequence.tables[0].page(1)] is node  # the full page was shared in any case


def test_what_a_request_skipped_cannot_fill_a_hole() -> None:
    target = holed(publishing(fill_holes=True))
    keys = view([*PROMPT, 1])
    sequence = target.create(2, keys, target.probe(keys).match, 12, frozenset({1}))
    assert sequence.resume()
    assert sequence.resize(21, 12)
    sequence.wrote(21)
    target.commit(sequence, 21, final=True)
    assert path(target, PROMPT)[1].pages[1] == NO_PAGE


# -- what was written -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("only_written", "coverage"), [(True, [0, 0, 0, 4, 4]), (False, [4, 4, 4, 4, 4])])
def test_a_mirror_that_starts_late_publishes_only_what_it_wrote(only_written: bool, coverage: list[int]) -> None:
    """The context starts at 10: the cells below it, and so the page that holds them, were never written."""
    target = manager(lifecycle("draft", 40), rules=publishing(only_written=only_written))
    sequence = opened(target, 1, PROMPT)
    sequence.starts_at(10)
    sequence.wrote(20)
    target.commit(sequence, 20)
    assert [node.coverage[0] for node in path(target, PROMPT)] == coverage
    assert target.probe(view([*PROMPT, 1])).tokens == (0 if only_written else 20)


def test_a_page_covers_what_was_written_of_it() -> None:
    target = manager()
    sequence = opened(target, 1, PROMPT)
    sequence.wrote(10)
    target.commit(sequence, 20)
    assert [node.coverage[0] for node in path(target, PROMPT)][:3] == [4, 4, 2]
    assert target.probe(view([*PROMPT, 1])).tokens == 10


# -- late commits -----------------------------------------------------------------------------------------------------


def test_a_late_commit_finds_only_what_is_live_at_the_endpoint() -> None:
    """per_request: the windowed pool publishes its window at the end of the context and nothing else."""
    target = manager(lifecycle(), lifecycle("draft", 4))
    sequence = written(target, 1, PROMPT)
    sequence.settle(20)
    target.commit(sequence, 20, final=True)
    assert [node.coverage for node in path(target, PROMPT)] == [[4, 0], [4, 0], [4, 0], [4, 0], [4, 4]]


def test_by_rule_stale_pages_are_held_for_a_late_commit() -> None:
    target = manager(lifecycle("draft", 4), rules=publishing(keep_stale=True))
    sequence = written(target, 1, PROMPT)
    sequence.settle(20)
    pool = target.pools[0]
    assert (pool.used(), pool.demotable) == (5, 4)  # released by the window, held for the tree
    target.commit(sequence, 20, final=True)
    assert [node.coverage[0] for node in path(target, PROMPT)] == [4] * 5
    assert (pool.used(), pool.droppable) == (1, 4)


def test_pages_held_for_a_late_commit_do_not_count_as_released() -> None:
    rules = publishing(keep_stale=True)
    for keeps, grows in ((rules, False), (None, True)):
        target = manager(WINDOW, pages=5, rules=keeps)
        sequence = written(target, 1, PROMPT)
        assert sequence.resize(24, 20) == grows


@pytest.mark.parametrize("end", ["stop", "close"])
def test_what_was_held_for_a_late_commit_goes_when_none_can_come(end: str) -> None:
    target = manager(WINDOW, rules=publishing(keep_stale=True))
    sequence = written(target, 1, PROMPT)
    sequence.settle(20)
    if end == "stop":
        target.stop_committing(sequence)
        assert target.pools[0].used() == 1
    target.free(1)
    assert target.pools[0].free_count() == 16


# -- policies of lifecycles -------------------------------------------------------------------------------------------


def test_a_private_lifecycle_is_never_published_and_never_matched() -> None:
    target = manager(lifecycle(), lifecycle("own", policy=ReusePolicy.PRIVATE))
    published(target, 1, PROMPT)
    assert [node.coverage for node in path(target, PROMPT)] == [[4, 0]] * 5
    sequence = claimed(target, 2, [*PROMPT, 1])
    assert (sequence.claimed, sequence.tables[0].count(), sequence.tables[1].count()) == (20, 5, 0)
    assert sequence.resume()
    assert sequence.tables[1].count() == 5  # fresh pages for all that the claim counts as capacity
    assert sequence.resize(21, 20)


def test_a_private_page_stays_its_own_where_equal_blocks_become_one() -> None:
    target = manager(lifecycle(), lifecycle("own", policy=ReusePolicy.PRIVATE))
    first, second = written(target, 1, PROMPT), written(target, 2, PROMPT)
    target.commit(first, 20)
    target.commit(second, 20)
    assert first.tables[0].pages == second.tables[0].pages
    assert not set(first.tables[1].pages) & set(second.tables[1].pages)


def test_an_optional_lifecycle_does_not_shorten_a_match() -> None:
    target = manager(lifecycle(), lifecycle("draft", 8, policy=ReusePolicy.OPTIONAL))
    published(target, 1, PROMPT)
    for node in path(target, PROMPT)[1:4]:
        target.tree.lose(node, 1)
    keys = view([*PROMPT, 1])
    probe = target.probe(keys)
    assert probe.tokens == 20
    assert target.deepest(probe.match, 20, target.optional, keys) == 4  # its own window is complete only there


def test_an_optional_lifecycle_left_out_gets_fresh_pages_and_hides_its_candidates() -> None:
    target = manager(lifecycle(), lifecycle("draft", 8, policy=ReusePolicy.OPTIONAL))
    published(target, 1, PROMPT)
    keys = view([*PROMPT[:18], 1])
    probe = target.probe(keys)
    sequence = target.create(2, keys, probe.match, probe.tokens, frozenset({1}))
    assert [pool.used() for pool in target.pools] == [5, 0]
    assert sequence.resume()
    assert sequence.tables[1].base == 2  # the window at 18 starts at 11
    assert target.pools[1].droppable == 5
    copies = [record for record in target.recorder.records if record[0] == Record.COPY]
    assert [record[1] for record in copies] == [0]  # nothing of the drafter's page is copied
    sequence.suspend()
    assert sequence.resume()
    assert target.pools[1].used() == 3  # the choice survives a suspension


def test_left_out_candidates_are_free_to_be_taken_by_the_very_request() -> None:
    """A full pool admits a request that declines what fills it; the same request cannot have both."""
    target = manager(lifecycle(), lifecycle("draft", policy=ReusePolicy.OPTIONAL), pages=9)
    published(target, 1, PROMPT)
    drafts = target.pools[1]
    drafts.grant(4)  # the rest of the drafter's pool belongs to somebody
    keys = view([*PROMPT, 1, 2, 3, 4])
    probe = target.probe(keys)
    both = target.create(2, keys, probe.match, 20)
    assert both.resume()
    assert not both.resize(24, 20)
    target.free(2)
    alone = target.create(3, keys, probe.match, 20, frozenset({1}))
    assert alone.resume()  # 5 fresh pages: its candidates were evicted for them
    assert (drafts.used(), drafts.droppable) == (9, 0)


def test_a_claim_keeps_its_pages_when_the_tree_loses_them() -> None:
    target = manager()
    published(target, 1, PROMPT)
    sequence = claimed(target, 2, [*PROMPT[:12], 1])
    pages = sequence.tables[0].pages.tolist()
    target.tree.lose(path(target, PROMPT)[0], 0)
    assert target.tree.index == {}
    assert sequence.resume()
    assert sequence.resize(16, 12)
    assert sequence.tables[0].pages.tolist()[:3] == pages
    target.free(2)
    assert target.pools[0].free_count() == 16


def test_an_empty_prompt_matches_nothing() -> None:
    target = manager()
    sequence = target.create(1, view([]), NOTHING, 0)
    assert sequence.resume()
    target.commit(sequence, 0, final=True)
    assert target.tree.index == {}
