"""References by request: what the pools' own books must say, kept up to date from the tables that an op changed.

An op changes the tables of one request at most; whom it evicts nobody holds. So the references of all others stand,
and a pool whose books equal the sums over all requests is sound. The full pass of :class:`ReferenceLaw` recounts
every table every so often and says whether that was so.
"""

from __future__ import annotations

from array import array
from itertools import compress

from model.eviction import DROPPABLE, FREE, HELD, LOCKED
from model.joint import Twin
from model.pages import PagePool
from model.sequence import ACTIVE, SequenceCache
from model.tree import Node

Holding = tuple[bool, bytes, bytes, tuple[tuple[int, int], ...]]  # locked, pages and sinks as int32, stale blocks


class PoolBook:
    """The books of one pool: references by page from the tables, and the pool as it was when it was found sound."""

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool
        self.locks = array("i", bytes(4 * pool.total))
        self.holds = array("i", bytes(4 * pool.total))
        self.turned = set(range(pool.total))  # pages whose references changed since it was found sound
        self.wanted = bytearray(pool.total)  # state of each page as references and index make it
        self.nodes: list[Node | None] = [None] * pool.total
        self.cached: list[tuple[int, Node]] = []  # pages that ``nodes`` are behind
        self.slots = array("i")
        self.all_slots = list(range(pool.total))
        self.entered: list[int] = []  # pages that came under a node in the last look

    def replaced(self, was: Holding | None, now: Holding | None) -> None:
        """One table changed: count its references anew, or only those at its end where nothing else did."""
        if was is not None and now is not None and was[0] == now[0] and was[2:] == now[2:]:
            locked, before, after = was[0], was[1], now[1]
            if after.startswith(before):
                self._count(locked, after[len(before) :], 1)
                return
            if before.startswith(after):
                self._count(locked, before[len(after) :], -1)
                return
        for holding, sign in ((was, -1), (now, 1)):
            if holding is not None:
                locked, pages, sinks, stale = holding
                self._count(locked, pages + sinks, sign)
                for _, page in stale:
                    self.holds[page] += sign
                    self.turned.add(page)

    def _count(self, locked: bool, pages: bytes, sign: int) -> None:
        counts, ids = self.locks if locked else self.holds, memoryview(pages).cast("i")
        for page in ids:
            counts[page] += sign
        self.turned.update(ids)

    def sound(self) -> bool:
        """Whether states, lists, counters and the evictor's rings are what the references and the index make them."""
        pool = self.pool
        if self.entered:
            self.entered = []
        if pool.locks != self.locks or pool.holds != self.holds:
            return False
        node, state, locks, holds = pool.node, pool.state, self.locks, self.holds
        known = node == self.nodes
        if known and not self.turned and state == self.wanted and pool.slot == self.slots:
            return True
        wanted, turned = self.wanted, self.turned
        if not known:
            turned = turned.union(
                [page for page, one, other in zip(self.all_slots, node, self.nodes, strict=True) if one is not other]
            )
        for page in turned:
            cached = node[page]
            wanted[page] = LOCKED if locks[page] else HELD if holds[page] else FREE if cached is None else DROPPABLE
        if state != wanted or not self._listed(wanted) or not self._reachable(wanted):
            return False
        if not known and not self._cached():
            return False
        if not known:
            self.nodes = node[:]
            self.cached = [(page, behind) for page, behind in enumerate(node) if behind is not None]
        if pool.slot != self.slots:
            self.slots = pool.slot[:]
        self.turned = set()
        return True

    def _listed(self, wanted: bytearray) -> bool:
        """Whether each free page stands once on the free list, and slots and counters agree with the states."""
        pool, free = self.pool, self.pool.free_ids
        if len(free) != wanted.count(FREE) or any(map(wanted.__getitem__, free)):
            return False
        if len(set(free)) != len(free):
            return False
        if not pool.host_pages:
            return pool.droppable == wanted.count(DROPPABLE) and pool.demotable == wanted.count(HELD)
        taken = [*compress(pool.slot, wanted)]  # FREE is 0
        edge, host = pool.device_pages, [0, 0, 0, 0]
        if taken and max(taken) >= edge:
            for slot, state in zip(pool.slot, wanted, strict=True):
                host[state] += state != FREE and slot >= edge
        if sorted([*taken, *pool.free_slots, *pool.free_host]) != self.all_slots:
            return False
        counted = (wanted.count(DROPPABLE) - host[DROPPABLE], wanted.count(HELD) - host[HELD], host[DROPPABLE])
        return host[LOCKED] == 0 and counted == (pool.droppable, pool.demotable, pool.host_droppable)

    def _reachable(self, wanted: bytearray) -> bool:
        """Whether the evictor would come across every droppable page of the device."""
        pool = self.pool
        rings, stamps, edge = pool.rings.rings, pool.rings.stamp, pool.device_pages
        page = wanted.find(DROPPABLE)
        while page >= 0:
            if pool.slot[page] < edge or not pool.host_pages:
                ring = rings.get((False, pool.priority[page]))
                place = stamps[page] - ring.dropped if ring is not None else -1
                if ring is None or not ring.head <= place < len(ring.pages) or ring.pages[place] != page:
                    return False
            page = wanted.find(DROPPABLE, page + 1)
        return True

    def _cached(self) -> bool:
        """Whether the nodes that came to cache a page since it was seen last know it, and their key finds them."""
        pool = self.pool
        known = self.nodes
        self.entered = [page for page, node in enumerate(pool.node) if node is not None and node is not known[page]]
        for page in self.entered:
            node = pool.node[page]
            assert node is not None
            tree, parent = pool.tree, node.parent
            if tree is None or not node.alive or tree.index.get(node.key) is not node:
                return False
            if node.pages[pool.column[page]] != page or parent is None or parent.children.get(node.key) is not node:
                return False
        for page, node in enumerate(self.nodes):
            if node is not None and pool.node[page] is not node and node.alive and self._claims(node, page):
                return False
        return True

    def _claims(self, node: Node, page: int) -> bool:
        """Whether a node still names a page of this pool that is not cached under it any more."""
        tree = self.pool.tree
        return tree is not None and any(
            other == page and pool is self.pool for other, pool in zip(node.pages, tree.pools, strict=True)
        )


class Books:
    """The books of every pool of one engine, by the owner of each reference."""

    def __init__(self, twin: Twin) -> None:
        self.twin = twin
        self.pools = {pool.name: PoolBook(pool) for pool in twin.pools.values()}
        self._all = list(self.pools.values())
        self._held: dict[int, list[list[Holding]]] = {}  # owner -> manager -> column

    def touched(self, owner: int) -> None:
        """Take up what the tables of ``owner`` say now."""
        before = self._held.get(owner)
        now = [self._holdings(manager.sequences.get(owner)) for manager in self.twin.managers]
        if before == now:
            return
        nothing: list[Holding] = []
        for place, manager in enumerate(self.twin.managers):
            old, new = before[place] if before else nothing, now[place]
            for column, pool in enumerate(manager.pools):
                was, is_now = old[column] if old else None, new[column] if new else None
                if was != is_now:
                    self.pools[pool.name].replaced(was, is_now)
        if any(now):
            self._held[owner] = now
        else:
            self._held.pop(owner, None)

    @staticmethod
    def _holdings(sequence: SequenceCache | None) -> list[Holding]:
        if sequence is None:
            return []
        locked = sequence.status is ACTIVE
        return [
            (locked, table.pages.tobytes(), table.sinks.tobytes(), tuple(stale) if stale else ())
            for table, stale in zip(sequence.tables, sequence.stale, strict=True)
        ]

    def sound(self) -> bool:
        """Whether every pool is."""
        return all(book.sound() for book in self._all)
