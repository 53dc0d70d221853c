"""Page pools: who holds a page, where it lies, and which page goes next.

A page is an id. Without a host tier its id is its device slot; with one, ids outlive moves and ``slot`` tells where
a page lies: slots below ``device_pages`` are on the device, the rest in the host tier. States, strongest first:
LOCKED (an active sequence reads it), HELD (only suspended ones), DROPPABLE (only the prefix tree), FREE.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from model.eviction import DROPPABLE, FREE, HELD, LOCKED, EvictionRings
from model.pool_use import PoolUse
from model.rules.layout import Index

if TYPE_CHECKING:
    from model.tree import Node, PrefixTree

FEW = 6  # pages of a grant from which on numpy beats a loop
BULK = 24  # from this many pages on, numpy beats a loop
UNCACHED = 255  # column of a page that no node caches


class PagePool:
    """Pages of one pool group, with a prioritised LRU of what may be taken from it.

    ``drop(node, column)`` is told of each cached page that is about to be lost, ``moved(pool, page, source, target)``
    of each change of tier, both in the order in which the device will see them.
    """

    def __init__(
        self, name: str, index: int, device_pages: int, host_pages: int = 0, rule: Index | None = None
    ) -> None:
        total = device_pages + host_pages
        self.rule = rule or Index()
        self.name = name
        self.index = index
        self.device_pages = device_pages
        self.host_pages = host_pages
        self.total = total
        self.locks = array("i", bytes(4 * total))
        self.holds = array("i", bytes(4 * total))
        self.state = bytearray(total)
        self.tenancy = array("q", bytes(8 * total))  # grants of this page so far
        self.priority = array("i", bytes(4 * total))
        self.slot = array("i", range(total))
        self.node: list[Node | None] = [None] * total
        self.column = bytearray(bytes((UNCACHED,)) * total)  # lifecycle column of the node that caches the page
        self.rings = EvictionRings(self)
        self.free_ids = array("i", range(total - 1, -1, -1))
        self.free_slots = array("i", range(device_pages - 1, -1, -1)) if host_pages else self.free_ids
        self.free_host = array("i", range(total - 1, device_pages - 1, -1))
        self.droppable = 0  # device pages in state DROPPABLE
        self.demotable = 0  # device pages in state HELD
        self.host_droppable = 0
        self.granted = 0
        self.evicted = 0
        self.lost = array("i")  # pages evicted for good since the log last asked
        self.peak = 0
        self._locks = np.frombuffer(self.locks, dtype=np.int32)
        self._holds = np.frombuffer(self.holds, dtype=np.int32)
        self._state = np.frombuffer(self.state, dtype=np.uint8)
        self._tenancy = np.frombuffer(self.tenancy, dtype=np.int64)
        self._slots = np.frombuffer(self.slot, dtype=np.int32)
        self.tree: PrefixTree | None = None  # whose pages it holds
        self.lose: Callable[[Node, int], None] = _nobody_loses
        self.moved: Callable[[PagePool, int, int, int], None] = _nobody_moves

    # -- counts --------------------------------------------------------------------------------------------------

    def free_count(self) -> int:
        """Device pages that nobody holds or caches."""
        return len(self.free_slots)

    def used(self) -> int:
        """Device pages that sequences hold."""
        return self.device_pages - len(self.free_slots) - self.droppable

    def obtainable(self, returning: int = 0) -> int:
        """Device pages that a grant could get: free, droppable, and held ones that the host tier can take.

        Each of ``returning`` pages that are on their way back from the host tier leaves a place there, if there is a
        page on the device to begin with.
        """
        if not self.host_pages:
            return len(self.free_slots) + self.droppable
        room, cheap = len(self.free_host) + self.host_droppable, len(self.free_slots) + self.droppable
        if returning and cheap + min(self.demotable, room):
            room += returning
        return cheap + min(self.demotable, room)

    def utilization(self) -> float:
        """Share of device pages that active sequences lock; the resume gate compares it with its limit."""
        return (self.used() - self.demotable) / self.device_pages if self.device_pages else 1.0

    def on_host(self, page: int) -> bool:
        """Whether ``page`` lies in the host tier."""
        return self.slot[page] >= self.device_pages

    def host_resident(self, pages: array[int]) -> int:
        """How many of ``pages`` lie in the host tier."""
        if not self.host_pages or not len(pages):
            return 0
        return int((self._slots[np.frombuffer(pages, dtype=np.int32)] >= self.device_pages).sum())

    def device_slots(self, pages: array[int]) -> bytes:
        """Slots of ``pages`` as little-endian int32 bytes, in order."""
        if not self.host_pages:
            return pages.tobytes()
        return self._slots[np.frombuffer(pages, dtype=np.int32)].tobytes()

    def use(self) -> PoolUse:
        """Pages of this pool by state."""
        return PoolUse(
            name=self.name,
            device_pages=self.device_pages,
            free=self.free_count(),
            droppable=self.droppable,
            held=self.demotable,
            locked=self.used() - self.demotable,
            peak=self.peak,
            host_pages=self.host_pages,
            host_used=self.host_pages - len(self.free_host),
            granted=self.granted,
            evicted=self.evicted,
        )

    # -- grants --------------------------------------------------------------------------------------------------

    def grant(self, count: int) -> array[int]:
        """Take ``count`` device pages, locked once each; the caller has seen that they are obtainable."""
        if len(self.free_slots) < count:
            self._make_room(count)
        pages = self.free_ids[len(self.free_ids) - count :]
        pages.reverse()
        del self.free_ids[len(self.free_ids) - count :]
        if self.host_pages:
            for page in pages:
                self.slot[page] = self.free_slots.pop()
        if count < FEW:
            for page in pages:
                self.locks[page] = 1
                self.state[page] = LOCKED
                self.tenancy[page] += 1
        else:
            chosen = np.frombuffer(pages, dtype=np.int32)
            self._locks[chosen] = 1
            self._state[chosen] = LOCKED
            self._tenancy[chosen] += 1
        self.granted += count
        used = self.device_pages - len(self.free_slots) - self.droppable
        if used > self.peak:
            self.peak = used
        return pages

    # -- holders -------------------------------------------------------------------------------------------------

    def hold(self, pages: Sequence[int]) -> None:
        """Add a suspended holder to each of ``pages`` (a claim)."""
        if len(pages) >= BULK and not self.host_pages:
            self._hold_many(np.asarray(pages, dtype=np.int32))
            return
        for page in pages:
            self.holds[page] += 1
            state = self.state[page]
            if state == DROPPABLE:
                self._count_state(page, HELD)
            elif state == FREE:
                raise AssertionError(f"{self.name}: page {page} is free and was claimed")

    def _hold_many(self, pages: NDArray[np.int32]) -> None:
        states = self._state[pages]
        if (states == FREE).any():
            raise AssertionError(f"{self.name}: a free page was claimed")
        cached = pages[states == DROPPABLE]
        self._holds[pages] += 1
        self._state[cached] = HELD
        self.droppable -= len(cached)
        self.demotable += len(cached)

    def lock_held(self, pages: Sequence[int]) -> None:
        """Turn one hold of each page into a lock (resume); the pages are on the device."""
        if len(pages) >= BULK and not self.host_pages:
            chosen = np.asarray(pages, dtype=np.int32)
            self._holds[chosen] -= 1
            self._locks[chosen] += 1
            self.demotable -= int((self._state[chosen] == HELD).sum())
            self._state[chosen] = LOCKED
            return
        for page in pages:
            self.holds[page] -= 1
            self.locks[page] += 1
            if self.state[page] != LOCKED:
                self._count_state(page, LOCKED)

    def unlock_to_held(self, pages: Sequence[int]) -> None:
        """Turn one lock of each page into a hold (suspend)."""
        for page in pages:
            self.locks[page] -= 1
            self.holds[page] += 1
            if not self.locks[page]:
                self._count_state(page, HELD)
                if self.host_pages:
                    self.rings.join(page)

    def release_locked(self, pages: array[int]) -> None:
        """Drop one lock of each page, last page first, so that the end of a prefix goes before its start."""
        if len(pages) >= BULK and not self.host_pages and self.rule.keeps and self.rule.joins:
            self._release_many(pages)
            return
        locks, holds = self.locks, self.holds
        for page in reversed(pages):
            left = locks[page] - 1
            locks[page] = left
            if not left:
                if holds[page]:
                    self._count_state(page, HELD)
                    if self.host_pages:
                        self.rings.join(page)
                elif self.node[page] is not None and self.rule.keeps:
                    self._count_state(page, DROPPABLE)
                    if self.rule.joins:
                        self.rings.join(page)
                else:
                    self._free(page)

    def release_held(self, pages: array[int]) -> None:
        """Drop one hold of each page, last page first."""
        for page in reversed(pages):
            self.holds[page] -= 1
            if not self.holds[page] and not self.locks[page]:
                if self.node[page] is not None and self.rule.keeps:
                    self._count_state(page, DROPPABLE)
                    if not self.host_pages and self.rule.joins:
                        self.rings.join(page)
                else:
                    self._free(page)

    def _release_many(self, pages: array[int]) -> None:
        chosen = np.frombuffer(pages, dtype=np.int32)[::-1]
        left = self._locks[chosen] - 1
        self._locks[chosen] = left
        idle = chosen[left == 0]
        held = self._holds[idle] > 0
        if held.any():
            for page in idle[held].tolist():
                self._count_state(page, HELD)
            idle = idle[~held]
        node = self.node
        ids = idle.tolist()
        cached = [page for page in ids if node[page] is not None]
        if cached:
            self.droppable += len(cached)
            self._state[np.asarray(cached, dtype=np.int32)] = DROPPABLE
            self.rings.join_many(cached)
        if len(cached) < len(ids):
            for page in ids:
                if node[page] is None:
                    self._free(page)

    def _count_state(self, page: int, new: int) -> None:
        old = self.state[page]
        self.state[page] = new
        if self.slot[page] >= self.device_pages:
            if self.host_pages:
                self.host_droppable += (new == DROPPABLE) - (old == DROPPABLE)
            return
        self.droppable += (new == DROPPABLE) - (old == DROPPABLE)
        self.demotable += (new == HELD) - (old == HELD)

    def _free(self, page: int) -> None:
        if self.state[page] != LOCKED:
            self._count_state(page, FREE)
        self.state[page] = FREE
        self.priority[page] = 0
        if self.host_pages:
            slot = self.slot[page]
            (self.free_host if slot >= self.device_pages else self.free_slots).append(slot)
        self.free_ids.append(page)

    def prioritise(self, page: int, priority: int) -> None:
        """Set when ``page`` goes among others: lower priorities first. A page that waits joins its new ring."""
        if priority != self.priority[page]:
            self.priority[page] = priority
            waits = self.state[page] == DROPPABLE or (self.host_pages and self.state[page] == HELD)
            if waits:
                self.rings.join(page)

    # -- cache membership ----------------------------------------------------------------------------------------

    def attach(self, page: int, node: Node, column: int) -> None:
        """Let ``node`` cache ``page`` as its page of lifecycle column ``column``."""
        self.node[page] = node
        self.column[page] = column

    def detach(self, page: int) -> None:
        """Take ``page`` out of the prefix tree; an unheld page becomes free."""
        self.node[page] = None
        self.column[page] = UNCACHED
        if not self.rule.counts and self.state[page] > DROPPABLE:
            self.locks[page] = self.holds[page] = 0
            self._count_state(page, DROPPABLE)
        if self.state[page] == DROPPABLE:
            self._free(page)

    # -- eviction ------------------------------------------------------------------------------------------------

    def _make_room(self, count: int) -> None:
        victims = self.rings.victims(host=False)
        while len(self.free_slots) < count:
            page = next(victims, None)
            if page is None:
                raise AssertionError(f"{self.name}: {count} pages were promised, {self.free_count()} can be had")
            self._evict(page)

    def _evict(self, page: int) -> None:
        room = self.host_pages > 0 and self._host_room()
        if self.state[page] == FREE:
            return  # making room in the host tier lost a page above this one
        if room:
            source, target = self.slot[page], self.free_host.pop()
            self._relocate(page, target)
            self.free_slots.append(source)
            self.rings.join(page)
            self.moved(self, page, source, target)
        elif self.state[page] == DROPPABLE:
            self._lose(page)

    def _host_room(self) -> bool:
        if self.free_host:
            return True
        for page in self.rings.victims(host=True):
            if self.state[page] == DROPPABLE:
                self._lose(page)
                return bool(self.free_host)
        return False

    def _lose(self, page: int) -> None:
        node = self.node[page]
        assert node is not None
        self.evicted += 1
        self.lost.append(page)
        self.lose(node, self.column[page])

    def promote(self, pages: Sequence[int]) -> None:
        """Bring held pages from the host tier back to the device; room for them is obtainable."""
        for page in pages:
            if not self.free_slots:
                self._make_room(1)
            source, target = self.slot[page], self.free_slots.pop()
            self._relocate(page, target)
            self.rings.leave(page)
            self.free_host.append(source)
            self.moved(self, page, source, target)
        self.peak = max(self.peak, self.used())

    def _relocate(self, page: int, slot: int) -> None:
        """Change where ``page`` lies; it is counted in its new tier."""
        state = self.state[page]
        self._count_state(page, LOCKED)
        self.slot[page] = slot
        self._count_state(page, state)

    def evict_down_to(self, cached: int) -> int:
        """Evict droppable device pages until at most ``cached`` are left; returns how many went."""
        before = self.droppable
        victims = self.rings.victims(host=False)
        while self.droppable > cached:
            page = next((p for p in victims if self.state[p] == DROPPABLE), None)
            if page is None:
                break
            self._evict(page)
        return before - self.droppable


def _nobody_loses(node: Node, column: int) -> None:
    raise AssertionError("a pool without a tree has nothing to lose")


def _nobody_moves(pool: PagePool, page: int, source: int, target: int) -> None:
    raise AssertionError("a pool without a host tier moves nothing")
