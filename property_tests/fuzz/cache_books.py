"""References by request: what the pools' own books must say, kept up to date from the tables that an op changed.

An op changes the tables of one request at most; whom it evicts nobody holds. So the references of all others stand,
and a pool whose books equal the sums over all requests is sound. The full pass of :class:`ReferenceLaw` recounts
every table every so often and says whether that was so.
"""

from __future__ import annotations

from array import array

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
        self.seen_locks, self.seen_holds, self.seen_state = array("i"), array("i"), b""
        self.nodes: list[Node | None] = []
        self.cached: list[tuple[int, Node]] = []  # pages that ``nodes`` are behind
        self.slots = array("i")
        self.all_slots = list(range(pool.total))
        self.entered: list[int] = []  # pages that came under a node in the last look

    def add(self, holding: Holding, sign: int) -> None:
        """Count the references of one table, or take them back with ``sign`` -1."""
        locked, pages, sinks, stale = holding
        counts = self.locks if locked else self.holds
        for page in memoryview(pages).cast("i"):
            counts[page] += sign
        if sinks:
            for page in memoryview(sinks).cast("i"):
                counts[page] += sign
        for _, page in stale:
            self.holds[page] += sign

    def sound(self) -> bool:
        """Whether states, lists, counters and the evictor's rings are what the references and the index make them."""
        pool = self.pool
        if self.entered:
            self.entered = []
        if pool.locks != self.locks or pool.holds != self.holds:
            return False
        node, state = pool.node, pool.state
        if (
            state == self.seen_state
            and node == self.nodes
            and pool.slot == self.slots
            and self.seen_locks == self.locks
            and self.seen_holds == self.holds
        ):
            return True
        wanted = bytearray(
            [
                LOCKED if locked else HELD if held else FREE if cached is None else DROPPABLE
                for locked, held, cached in zip(self.locks, self.holds, node, strict=True)
            ]
        )
        if state != wanted or not self._listed(wanted) or not self._reachable(wanted):
            return False
        if node != self.nodes and not self._cached():
            return False
        if self.entered or len(self.nodes) != len(node) or node != self.nodes:
            self.nodes = node[:]
            self.cached = [(page, behind) for page, behind in enumerate(node) if behind is not None]
        self.seen_state, self.slots = wanted, pool.slot[:]
        self.seen_locks, self.seen_holds = pool.locks[:], pool.holds[:]
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
        taken = [slot for slot, state in zip(pool.slot, wanted, strict=True) if state != FREE]
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
        known = self.nodes or [None] * pool.total
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
                    book = self.pools[pool.name]
                    if was is not None:
                        book.add(was, -1)
                    if is_now is not None:
                        book.add(is_now, 1)
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
            (locked, table.pages.tobytes(), table.sinks.tobytes(), tuple(stale))
            for table, stale in zip(sequence.tables, sequence.stale, strict=True)
        ]

    def sound(self) -> bool:
        """Whether every pool is."""
        return all(book.sound() for book in self._all)
