"""Which page goes next: prioritised LRU rings, one per tier and priority.

A page joins the tail of its ring when its last lock (with a host tier) or its last holder goes. A claim only changes
the page's state, so rings hold dead entries; a stamp per page tells which entry is the living one.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from model.pages import PagePool


class PageState(enum.IntEnum):
    """State of one page, see the module text."""

    FREE = 0
    DROPPABLE = 1
    HELD = 2
    LOCKED = 3


# Plain integers for the hot paths: a member access costs ten times as much.
FREE, DROPPABLE, HELD, LOCKED = (int(state) for state in PageState)


class Ring:
    """Pages in order of last use; an entry is dead once its page moved on. ``dropped`` entries were cut off."""

    __slots__ = ("dropped", "head", "pages")

    def __init__(self) -> None:
        self.pages = array("i")
        self.head = 0
        self.dropped = 0

    def compact(self, beyond: int) -> None:
        """Cut the dead head off when it is longer than ``beyond``."""
        if self.head > beyond:
            del self.pages[: self.head]
            self.dropped += self.head
            self.head = 0


class EvictionRings:
    """Eviction order of one pool. ``(in the host tier, priority)`` names a ring; lower priorities go first."""

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool
        self.rings: dict[tuple[bool, int], Ring] = {}
        self.stamp = array("q", [-1]) * pool.total
        self._stamps = np.frombuffer(self.stamp, dtype=np.int64)

    def ring(self, host: bool, priority: int) -> Ring:
        """The ring of a tier and priority."""
        ring = self.rings.get((host, priority))
        if ring is None:
            ring = self.rings[host, priority] = Ring()
        return ring

    def join(self, page: int) -> None:
        """Put ``page`` at the tail of its ring."""
        ring = self.ring(self.pool.on_host(page), self.pool.priority[page])
        self.stamp[page] = len(ring.pages) + ring.dropped
        ring.pages.append(page)

    def leave(self, page: int) -> None:
        """Nothing stands for ``page`` any more: it changes its tier and waits in no ring of the new one yet."""
        self.stamp[page] = -1

    def join_many(self, pages: list[int]) -> None:
        """Put device pages at the tails of their rings, in order."""
        priority = self.pool.priority
        if any(priority[page] for page in pages):
            for page in pages:
                self.join(page)
            return
        ring = self.ring(False, 0)
        start = len(ring.pages) + ring.dropped
        ring.pages.extend(pages)
        self._stamps[np.asarray(pages, dtype=np.int32)] = np.arange(start, start + len(pages))

    def picture(self) -> tuple:
        """All that the order depends on but the pages' states, slots and priorities, as values (a view for checks)."""
        rings = [(key, ring.head, ring.dropped, ring.pages.tobytes()) for key, ring in self.rings.items()]
        return (self.stamp.tobytes(), rings)

    def hold_all(self, pages: list[int]) -> bool:
        """Whether the evictor would come across each device page of ``pages``.

        Its stamp names the only entry of a page that can be alive.
        """
        rings = {key[1]: (ring.pages, ring.head, ring.dropped) for key, ring in self.rings.items() if not key[0]}
        slots, last, priority, stamps = self.pool.slot, self.pool.device_pages, self.pool.priority, self.stamp
        for page in pages:
            if slots[page] >= last:
                continue
            entries, head, dropped = rings.get(priority[page], ((), 0, 0))
            place = stamps[page] - dropped
            if not head <= place < len(entries) or entries[place] != page:
                return False
        return True

    def missed(self, pages: NDArray[np.int64]) -> list[int]:
        """Those of ``pages`` on the device that the evictor would not come across; :meth:`hold_all` of many pages."""
        pool, found = self.pool, np.zeros(len(pages), dtype=np.bool_)
        device = np.frombuffer(pool.slot, dtype=np.int32)[pages] < pool.device_pages
        priorities, stamps = np.frombuffer(pool.priority, dtype=np.int32)[pages], self._stamps[pages]
        for (host, priority), ring in self.rings.items():
            if not host and len(ring.pages):
                places = stamps - ring.dropped
                inside = (priorities == priority) & (places >= ring.head) & (places < len(ring.pages))
                found |= inside & (np.frombuffer(ring.pages, dtype=np.int32)[np.where(inside, places, 0)] == pages)
        return pages[device & ~found].tolist()

    def order(self) -> list[int]:
        """Device pages the evictor would take, next first (a view for checks; nothing changes)."""
        found: list[int] = []
        for key in sorted(self.rings):
            ring = self.rings[key]
            if not key[0]:
                places = range(ring.head, len(ring.pages))
                found += [ring.pages[place] for place in places if self._living(ring, place, key)]
        return found

    def _living(self, ring: Ring, place: int, key: tuple[bool, int]) -> bool:
        """Whether a ring entry still stands for a page that may be taken."""
        pool, page = self.pool, ring.pages[place]
        state = pool.state[page]
        return (
            self.stamp[page] == place + ring.dropped
            and pool.on_host(page) == key[0]
            and pool.priority[page] == key[1]
            and (state == DROPPABLE or (state == HELD and pool.host_pages > 0))
        )

    def victims(self, host: bool) -> Iterator[int]:
        """Yield what may go from the device (or from the host tier), in eviction order."""
        for key in sorted(self.rings):
            if key[0] != host:
                continue
            ring = self.rings[key]
            ring.compact(4 * self.pool.total + 64)
            pages, stamps, dropped = ring.pages, self.stamp, ring.dropped
            place = ring.head
            gapless = True  # everything before ``place`` is dead
            while place < len(pages):
                page = pages[place]
                if stamps[page] == place + dropped and self._living(ring, place, key):
                    if gapless:
                        ring.head = place
                    yield page
                    gapless = gapless and not self._living(ring, place, key)
                place += 1
            if gapless:
                ring.head = place
