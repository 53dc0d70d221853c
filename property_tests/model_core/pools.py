"""Page pools with something in them: cached blocks, traffic of claims, and what a device is told of moves."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from hypothesis import strategies as st

from model.eviction import PageState
from model.geometry import Lifecycle
from model.pages import PagePool
from model.rules.layout import Index
from model.tree import PrefixTree

FULL = Lifecycle("target", "target", "target")
WINDOWED = Lifecycle("target", "target", "target", window=4)


def ids(*pages: int) -> array[int]:
    return array("i", pages)


def tree_on(pool: PagePool, lifecycle: Lifecycle = FULL) -> PrefixTree:
    return PrefixTree(4, (lifecycle,), (pool,), 32, Index())


def cached(tree: PrefixTree, count: int, first_key: int = 1) -> list[int]:
    """A chain of ``count`` cached blocks below the root, dropped by its writer; its pages, first block first."""
    pool, parent = tree.pools[0], tree.root(0)
    pages = pool.grant(count)
    for place, page in enumerate(pages):
        items = array("q", [first_key, place, 0, 0]).tobytes()
        node = tree.insert(parent, first_key + place, items, 4)
        assert node is not None
        assert tree.set_page(node, 0, page, 4)
        parent = node
    pool.release_locked(pages)
    return pages.tolist()


def lone(tree: PrefixTree, count: int) -> list[int]:
    """``count`` cached blocks that share no prefix, dropped one after the other."""
    return [cached(tree, 1, first_key=100 * (place + 1))[0] for place in range(count)]


def use(pool: PagePool, *pages: int) -> None:
    """Each page in turn is claimed, locked and dropped again: it was used last."""
    for page in pages:
        pool.hold((page,))
        pool.lock_held((page,))
        pool.release_locked(ids(page))


def is_cached(pool: PagePool, *pages: int) -> list[bool]:
    return [pool.node[page] is not None for page in pages]


def states(pool: PagePool, pages: Sequence[int]) -> list[PageState]:
    return [PageState(pool.state[page]) for page in pages]


class Moves:
    """What the device is told of changes of tier."""

    def __init__(self, pool: PagePool) -> None:
        self.seen: list[tuple[int, int, int]] = []
        pool.moved = lambda _, page, source, target: self.seen.append((page, source, target))


def tiered(device: int, host: int, lifecycle: Lifecycle = FULL) -> tuple[PagePool, PrefixTree, Moves]:
    pool = PagePool("target", 0, device, host)
    return pool, tree_on(pool, lifecycle), Moves(pool)


holders = st.lists(
    st.tuples(st.sampled_from(["grant", "cache", "hold", "lock", "unlock", "release", "drop"]), st.integers(1, 12)),
    max_size=30,
)


def traffic(pool: PagePool, tree: PrefixTree, moves: list[tuple[str, int]]) -> None:
    """Requests come and go: pages are granted, cached, claimed, resumed, suspended and dropped."""
    locked: list[array[int]] = []
    held: list[array[int]] = []
    for turn, (move, size) in enumerate(moves):
        if move == "grant" and pool.obtainable() >= size:
            locked.append(pool.grant(size))
        elif move == "cache" and pool.obtainable() >= size:
            cached(tree, size, first_key=1000 * (turn + 1))
        elif move == "hold" and (found := pool.rings.order()[:size]):
            pool.hold(found)
            held.append(ids(*found))
        elif move == "lock" and held and pool.obtainable() >= pool.host_resident(held[0]):
            pool.lock_held([page for page in held[0] if not pool.on_host(page)])
            away = [page for page in held[0] if pool.on_host(page)]
            if pool.obtainable() >= len(away):
                pool.promote(away)
                pool.lock_held(away)
                locked.append(held.pop(0))
            else:
                pool.unlock_to_held([page for page in held[0] if page not in away])
        elif move == "unlock" and locked:
            pool.unlock_to_held(locked[0])
            held.append(locked.pop(0))
        elif move == "release" and locked:
            pool.release_locked(locked.pop(0))
        elif move == "drop" and held:
            pool.release_held(held.pop(0))
