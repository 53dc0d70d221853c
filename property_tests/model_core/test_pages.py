"""Page pools: in which order pages go out, who holds them, and which one is taken when pages are short."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from hypothesis import given

import model.pages
from model.eviction import PageState
from model.pages import PagePool
from property_tests.model_core.pools import (
    WINDOWED,
    cached,
    holders,
    ids,
    lone,
    states,
    traffic,
    tree_on,
    use,
)

# -- grants -----------------------------------------------------------------------------------------------------------


def test_pages_go_out_from_the_lowest_number_up() -> None:
    pool = PagePool("target", 0, 8)
    assert pool.grant(3).tolist() == [0, 1, 2]
    assert pool.grant(1).tolist() == [3]
    assert pool.free_count() == 4


def test_the_page_that_was_freed_last_is_granted_first() -> None:
    pool = PagePool("target", 0, 8)
    pages = pool.grant(4)
    pool.release_locked(pages[1:2])
    pool.release_locked(pages[3:4])
    assert pool.grant(3).tolist() == [3, 1, 4]


def test_every_grant_begins_a_tenancy() -> None:
    pool = PagePool("target", 0, 2)
    for tenancy in (1, 2, 3):
        pages = pool.grant(1)
        assert (pages[0], pool.tenancy[pages[0]]) == (0, tenancy)
        pool.release_locked(pages)
    assert pool.tenancy[1] == 0


def test_a_pool_that_promised_too_much_says_so() -> None:
    pool = PagePool("target", 0, 4)
    pool.grant(3)
    with pytest.raises(AssertionError, match="target: 2 pages were promised, 1 can be had"):
        pool.grant(2)


def test_the_peak_counts_what_sequences_hold_and_not_what_is_cached() -> None:
    pool = PagePool("target", 0, 8)
    cached(tree_on(pool), 5)
    pool.grant(2)
    assert (pool.peak, pool.used(), pool.droppable) == (5, 2, 5)


# -- states -----------------------------------------------------------------------------------------------------------


def test_a_page_is_locked_then_held_then_cached_then_gone() -> None:
    pool = PagePool("target", 0, 4)
    tree = tree_on(pool)
    page = ids(*cached(tree, 1))
    assert states(pool, page) == [PageState.DROPPABLE]
    pool.hold(page)
    assert states(pool, page) == [PageState.HELD]
    pool.lock_held(page)
    assert states(pool, page) == [PageState.LOCKED]
    pool.unlock_to_held(page)
    assert states(pool, page) == [PageState.HELD]
    pool.release_held(page)
    assert states(pool, page) == [PageState.DROPPABLE]
    tree.lose(tree.index[1], 0)
    assert states(pool, page) == [PageState.FREE]


@pytest.mark.parametrize("release", ["locked", "held"])
def test_a_page_that_no_node_caches_is_free_as_soon_as_nobody_holds_it(release: str) -> None:
    pool = PagePool("target", 0, 2)
    page = pool.grant(1)
    if release == "held":
        pool.unlock_to_held(page)
        pool.release_held(page)
    else:
        pool.release_locked(page)
    assert states(pool, page) == [PageState.FREE]
    assert pool.free_count() == 2


def test_the_strongest_of_several_holders_decides() -> None:
    pool = PagePool("target", 0, 2)
    page = ids(*cached(tree_on(pool), 1))
    pool.hold(page)
    pool.hold(page)
    pool.lock_held(page)
    assert states(pool, page) == [PageState.LOCKED]
    pool.release_locked(page)
    assert states(pool, page) == [PageState.HELD]
    pool.release_held(page)
    assert states(pool, page) == [PageState.DROPPABLE]


@pytest.mark.parametrize("count", [1, 40])
def test_a_free_page_cannot_be_claimed(count: int) -> None:
    pool = PagePool("target", 0, 64)
    pages = pool.grant(count)
    pool.release_locked(pages)
    with pytest.raises(AssertionError, match=r"free(?: page)?.* claimed"):
        pool.hold(pages)


def test_obtainable_pages_are_the_free_and_the_cached_ones() -> None:
    pool = PagePool("target", 0, 8)
    tree = tree_on(pool)
    kept = ids(*cached(tree, 4))
    pool.grant(2)
    pool.hold(kept[:1])
    assert (pool.free_count(), pool.droppable, pool.demotable, pool.obtainable()) == (2, 3, 1, 5)


def test_utilisation_counts_locked_pages_only() -> None:
    pool = PagePool("target", 0, 8)
    kept = ids(*cached(tree_on(pool), 4))
    pool.hold(kept[:2])
    assert pool.utilization() == 0
    pool.lock_held(kept[:2])
    pool.grant(2)
    assert pool.utilization() == 0.5
    assert PagePool("empty", 0, 0).utilization() == 1.0


# -- eviction ---------------------------------------------------------------------------------------------------------


def test_the_page_that_was_used_longest_ago_goes_first() -> None:
    pool = PagePool("target", 0, 4)
    pages = lone(tree_on(pool), 4)
    use(pool, pages[0])
    assert pool.rings.order() == [*pages[1:], pages[0]]
    assert pool.grant(2).tolist() == [pages[2], pages[1]]  # the one freed last is on top of the free list
    assert pool.evicted == 2
    assert states(pool, [pages[0]]) == [PageState.DROPPABLE]


def test_the_end_of_a_prefix_goes_before_its_start() -> None:
    pool = PagePool("target", 0, 4)
    tree = tree_on(pool, WINDOWED)
    pages = cached(tree, 4)
    assert pool.rings.order() == pages[::-1]
    pool.grant(1)
    assert states(pool, pages) == [PageState.DROPPABLE] * 3 + [PageState.LOCKED]
    assert [node.alive for node in tree.index.values()] == [True] * 3


def test_lower_priorities_go_first_however_late_they_were_used() -> None:
    pool = PagePool("target", 0, 3)
    tree = tree_on(pool)
    pages = []
    for priority in (2, 1, 0):
        page = pool.grant(1)
        pool.priority[page[0]] = priority
        node = tree.insert(tree.root(0), 10 + priority, array("q", [priority, 0, 0, 0]).tobytes(), 4)
        assert node is not None
        tree.set_page(node, 0, page[0], 4)
        pool.release_locked(page)
        pages.append(page[0])
    assert pool.rings.order() == pages[::-1]


def test_a_held_page_is_passed_over_without_a_host_tier() -> None:
    pool = PagePool("target", 0, 3)
    pages = lone(tree_on(pool), 3)
    pool.hold(pages[:1])
    assert sorted(pool.grant(2)) == sorted(pages[1:])
    with pytest.raises(AssertionError, match="promised"):
        pool.grant(1)


def test_a_lost_full_attention_page_takes_the_blocks_behind_it_along() -> None:
    pool = PagePool("target", 0, 4)
    tree = tree_on(pool)
    first = cached(tree, 3)
    use(pool, *first[1:])
    pool.grant(2)
    assert states(pool, first).count(PageState.DROPPABLE) == 0
    assert not tree.index
    assert pool.evicted == 1  # one was chosen; two fell with it


def test_shrinking_evicts_cached_pages_until_few_enough_stay() -> None:
    pool = PagePool("target", 0, 6)
    pages = lone(tree_on(pool), 5)
    assert pool.evict_down_to(2) == 3
    assert [page for page in pages if pool.state[page] == PageState.DROPPABLE] == pages[3:]
    assert pool.evict_down_to(2) == 0
    assert pool.evict_down_to(0) == 2
    assert pool.free_count() == 6


def test_a_ring_that_is_mostly_dead_is_cut_and_keeps_its_order() -> None:
    pool = PagePool("target", 0, 4)
    tree = tree_on(pool)
    pages = lone(tree, 4)
    for _ in range(200):  # every use leaves a dead entry
        use(pool, *pages[:2])
    assert pool.rings.order() == [*pages[2:], *pages[:2]]
    while pool.droppable:
        before = pool.rings.order()[0]
        pool.evict_down_to(pool.droppable - 1)
        assert pool.state[before] == PageState.FREE
    cached(tree, 1)
    pool.evict_down_to(0)
    assert len(pool.rings.ring(False, 0).pages) < 200


# -- many pages at once -----------------------------------------------------------------------------------------------


def played(moves: list[tuple[str, int]], bulk: int) -> tuple[object, ...]:
    """State of a pool after some traffic, with the bulk paths used from ``bulk`` pages on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model.pages, "BULK", bulk)
        pool = PagePool("target", 0, 24)
        traffic(pool, tree_on(pool, WINDOWED), moves)
    missed = pool.rings.missed(np.arange(pool.total))
    assert missed == [page for page in range(pool.total) if not pool.rings.hold_all([page])]
    return (
        pool.state.hex(),
        pool.locks.tolist(),
        pool.holds.tolist(),
        pool.tenancy.tolist(),
        pool.rings.order(),
        missed,
        (pool.free_ids.tolist(), pool.droppable, pool.demotable, pool.peak, pool.evicted),
    )


@given(moves=holders)
def test_many_pages_at_once_are_handled_like_one_after_the_other(moves: list[tuple[str, int]]) -> None:
    assert played(moves, bulk=2) == played(moves, bulk=1000)
