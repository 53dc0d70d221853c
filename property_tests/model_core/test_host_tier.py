"""The host tier of a pool: what falls into it, what it drops, and what comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.eviction import PageState
from model.geometry import Lifecycle
from model.pages import PagePool
from model.tree import Node
from property_tests.model_core.pools import (
    FULL,
    WINDOWED,
    cached,
    holders,
    ids,
    is_cached,
    lone,
    states,
    tiered,
    traffic,
    use,
)


def test_a_cached_page_falls_to_the_host_and_stays_cached() -> None:
    pool, tree, moves = tiered(2, 2)
    pages = lone(tree, 2)
    pool.grant(1)
    assert pool.on_host(pages[0])
    assert not pool.on_host(pages[1])
    assert states(pool, pages) == [PageState.DROPPABLE] * 2
    assert moves.seen == [(pages[0], 0, 2)]
    assert (pool.droppable, pool.host_droppable, pool.evicted) == (1, 1, 0)


def test_a_full_host_tier_drops_what_fell_into_it_first() -> None:
    pool, tree, moves = tiered(2, 1)
    pages = lone(tree, 2)
    pool.grant(2)
    assert [page for page, _, _ in moves.seen] == pages  # the newest fallen page wins the place
    assert is_cached(pool, *pages) == [False, True]
    assert (pool.evicted, pool.host_droppable) == (1, 1)


def test_a_held_page_may_fall_but_is_never_dropped() -> None:
    pool, tree, _ = tiered(2, 2)
    pages = lone(tree, 2)
    pool.hold(pages[:1])
    pool.lock_held(pages[:1])
    pool.unlock_to_held(pages[:1])  # a suspended sequence
    pool.grant(2)
    assert states(pool, pages) == [PageState.HELD, PageState.DROPPABLE]
    assert pool.on_host(pages[0])
    assert pool.obtainable() == 0


def test_what_the_host_cannot_take_is_not_promised() -> None:
    pool, tree, _ = tiered(2, 1)
    pages = lone(tree, 2)
    pool.hold(pages)
    pool.lock_held(pages)
    pool.unlock_to_held(pages)  # suspended sequences
    assert pool.obtainable() == 1  # two held pages, one place below
    pool.grant(1)
    assert pool.obtainable() == 0
    with pytest.raises(AssertionError, match="1 pages were promised, 0 can be had"):
        pool.grant(1)
    assert sorted(states(pool, pages)) == [PageState.HELD, PageState.HELD]


def test_a_page_on_its_way_back_leaves_a_place_for_a_held_one() -> None:
    pool, tree, _ = tiered(2, 1)
    away, stays = lone(tree, 2)
    pool.hold((away, stays))
    busy = pool.grant(1)  # pushes one of the two suspended pages into the only place below
    pool.release_locked(busy)
    assert pool.on_host(away)
    assert (pool.obtainable(), pool.obtainable(returning=1)) == (1, 2)
    pool.promote((away,))
    pool.grant(1)
    assert pool.free_count() == 0
    assert pool.on_host(away) != pool.on_host(stays)


def test_nothing_comes_back_where_no_page_can_be_had_to_begin_with() -> None:
    pool, tree, _ = tiered(2, 1)
    pages = lone(tree, 2)
    pool.hold(pages)
    pool.grant(1)
    assert (pool.obtainable(), pool.obtainable(returning=1)) == (0, 0)


def test_a_locked_page_never_leaves_the_device() -> None:
    pool, tree, _ = tiered(2, 4)
    locked = pool.grant(1)
    lone(tree, 1)
    pool.grant(1)
    assert not pool.on_host(locked[0])
    with pytest.raises(AssertionError, match="promised"):
        pool.grant(1)


def test_a_page_comes_back_from_the_host_with_its_holders() -> None:
    pool, tree, moves = tiered(2, 2)
    pages = lone(tree, 2)
    busy = pool.grant(2)
    pool.hold(pages)
    pool.release_locked(busy)
    pool.promote(pages)
    assert not any(pool.on_host(page) for page in pages)
    assert [(page, target) for page, _, target in moves.seen[2:]] == [(pages[0], 1), (pages[1], 0)]
    assert states(pool, pages) == [PageState.HELD] * 2
    assert (pool.demotable, len(pool.free_host), pool.free_count(), pool.used()) == (2, 2, 0, 2)


def test_a_page_that_comes_back_may_push_another_one_down() -> None:
    pool, tree, _ = tiered(1, 2)
    old, new = lone(tree, 2)
    assert (pool.on_host(old), pool.on_host(new)) == (True, False)
    pool.hold((old,))
    pool.promote((old,))
    assert (pool.on_host(old), pool.on_host(new)) == (False, True)


def test_what_has_just_come_back_is_not_pushed_down_again_before_it_is_locked() -> None:
    """Found by the cache layer's swarm: a page's place in the host's ring could equal its old one in the device's."""
    pool, _, _ = tiered(2, 3)
    first, second = pool.grant(2)
    for page in (first, second):
        pool.unlock_to_held((page,))
    waits, ends = pool.grant(2)  # both fall, and stand in the host's ring where they stood in the device's
    pool.unlock_to_held((waits,))
    pool.release_locked(ids(ends))
    pool.promote((second, first))
    pool.lock_held((second, first))
    assert [pool.on_host(page) for page in (first, second, waits)] == [False, False, True]


def test_the_start_of_a_prefix_takes_the_place_of_its_end_in_the_host() -> None:
    pool, tree, moves = tiered(2, 1)
    parent, child = cached(tree, 2)  # the end of the prefix is the next victim
    pool.grant(1)
    assert (pool.on_host(child), pool.on_host(parent)) == (True, False)
    pool.grant(1)  # the parent wants the child's place: the child goes, the parent falls
    assert is_cached(pool, parent, child) == [True, False]
    assert pool.on_host(parent)
    assert [page for page, _, _ in moves.seen] == [child, parent]


def test_a_subtree_may_be_lost_while_room_is_made_for_its_end() -> None:
    pool, tree, moves = tiered(3, 1)
    parent, child = cached(tree, 2)
    use(pool, parent, child)  # the parent is older and falls first
    pool.grant(2)
    assert pool.on_host(parent)
    pool.grant(1)  # the child wants the parent's place, and dies with it
    assert is_cached(pool, parent, child) == [False, False]
    assert not tree.index
    assert [page for page, _, _ in moves.seen] == [parent]


def test_slots_on_the_device_are_told_in_the_order_of_the_pages() -> None:
    pool, tree, _ = tiered(2, 2)
    pages = ids(*lone(tree, 2))
    pool.grant(1)
    assert memoryview(pool.device_slots(pages)).cast("i").tolist() == [2, 1]
    assert pool.host_resident(pages) == 1
    plain = PagePool("target", 0, 4)
    assert plain.device_slots(ids(3, 1)) == ids(3, 1).tobytes()
    assert plain.host_resident(ids(3, 1)) == 0


def test_a_pool_without_a_tree_or_a_host_has_nobody_to_tell() -> None:
    pool = PagePool("target", 0, 1)
    with pytest.raises(AssertionError, match="nothing to lose"):
        pool.lose(Node(1, None, b"", 0, 1), 0)
    with pytest.raises(AssertionError, match="moves nothing"):
        pool.moved(pool, 0, 0, 1)


@given(moves=holders, device=st.integers(4, 16), host=st.integers(0, 8), lifecycle=st.sampled_from([FULL, WINDOWED]))
def test_pages_are_conserved_over_both_tiers(
    moves: list[tuple[str, int]], device: int, host: int, lifecycle: Lifecycle
) -> None:
    pool, tree, _ = tiered(device, host, lifecycle)
    traffic(pool, tree, moves)
    pages = range(pool.total)
    free = {page for page in pages if pool.state[page] == PageState.FREE}
    assert sorted(pool.free_ids) == sorted(free)
    living = [pool.slot[page] for page in pages if page not in free]
    idle = [*pool.free_slots, *pool.free_host] if host else [pool.slot[page] for page in free]
    assert sorted(living + idle) == list(pages)
    on_device = [pool.state[page] for page in pages if page not in free and not pool.on_host(page)]
    assert on_device.count(PageState.DROPPABLE) == pool.droppable
    assert on_device.count(PageState.HELD) == pool.demotable
    assert pool.used() == len(on_device) - pool.droppable
    below = [pool.state[page] for page in pages if page not in free and pool.on_host(page)]
    assert PageState.LOCKED not in below
    assert below.count(PageState.DROPPABLE) == pool.host_droppable
    assert set(pool.rings.order()) == {
        page
        for page in pages
        if not pool.on_host(page)
        and (pool.state[page] == PageState.DROPPABLE or (host and pool.state[page] == PageState.HELD))
    }
