"""What became of every page, plan by plan: who was granted it, what of it was published, which state it is in.

The event log says when pages are granted, published and evicted, not when a window or the end of a request gives them
up. A log that keeps its records has this journal beside them; no digest covers it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.pages import UNCACHED, PagePool

CACHED, ON_HOST = 4, 8  # added to the state of a page: it is in the prefix tree, it lies in the host tier
STATE = 3  # mask of the state, a :class:`model.eviction.PageState`
NOTE_FIELDS = ("pool", "page", "owner", "column", "block", "coverage")
COUNT_FIELDS = ("used", "reusable", "free", "peak", "host_used")


class PageJournal:
    """A look at all pools when a plan goes out, ahead of its contexts' publications, and one at the end.

    ``iterations[k]`` is the plan of look ``k``, one past the last plan for the look at the end. ``notes`` holds rows of
    :data:`NOTE_FIELDS`, a grant with coverage 0 and a publication with what it covers; ``noted[k]`` of them were made
    by look ``k``. ``counts`` holds a row of :data:`COUNT_FIELDS` for each pool at each look; ``peak`` is the most pages
    used at once up to then.
    """

    def __init__(self, pools: Iterable[PagePool]) -> None:
        self.pools = [PoolJournal(pool) for pool in pools]
        self.iterations = array("q")
        self.notes = array("q")
        self.noted = array("q")
        self.counts = array("q")
        self.closed = False

    def granted(self, pool: int, pages: array[int], owner: int, column: int, block: int) -> None:
        """Pages of a pool start a tenancy as consecutive blocks from ``block`` on."""
        rows: list[int] = []
        for place, page in enumerate(pages, block):
            rows += (pool, page, owner, column, place, 0)
        self.notes.fromlist(rows)

    def published(self, pool: int, page: int, coverage: int, owner: int, column: int, block: int) -> None:
        """A page enters the prefix tree with its first ``coverage`` tokens."""
        self.notes.fromlist([pool, page, owner, column, block, coverage])

    def look(self, iteration: int) -> None:
        """Note what changed since the last look; nothing is noted after the end."""
        if self.closed:
            return
        self.iterations.append(iteration)
        self.noted.append(len(self.notes) // len(NOTE_FIELDS))
        for pool in self.pools:
            self.counts.fromlist(pool.look())

    def close(self, iteration: int) -> None:
        """The last look; the pools are let go."""
        self.look(iteration)
        self.closed = True
        for pool in self.pools:
            pool.forget()


class PoolJournal:
    """Changes of one pool. Change ``i`` says that page ``pages[i]`` got ``codes[i]``; ``ends[k]`` of them came by look
    ``k``. All pages were free in the beginning."""

    def __init__(self, pool: PagePool) -> None:
        self.name, self.device_pages, self.host_pages = pool.name, pool.device_pages, pool.host_pages
        self.pages = array("i")
        self.codes = bytearray()
        self.ends = array("q")
        self._pool: PagePool | None = pool
        self._seen: list[NDArray[Any]] = [np.zeros(pool.total, np.uint8), np.full(pool.total, UNCACHED, np.uint8)]
        if pool.host_pages:
            self._seen.append(np.zeros(pool.total, dtype=np.bool_))

    def look(self) -> list[int]:
        """Note the pages that changed; a row of :data:`COUNT_FIELDS`."""
        pool = self._pool
        assert pool is not None
        now = _standing(pool)
        changed = now[0] != self._seen[0]
        for one, seen in zip(now[1:], self._seen[1:], strict=True):
            changed |= one != seen
        pages = np.flatnonzero(changed)
        if len(pages):
            for one, seen in zip(now, self._seen, strict=True):
                seen[pages] = one[pages]
            self.pages.frombytes(pages.astype(np.int32).tobytes())
            self.codes += _codes([one[pages] for one in now])
        self.ends.append(len(self.pages))
        host_used = pool.host_pages - len(pool.free_host)
        return [pool.used(), pool.droppable, pool.free_count(), pool.peak, host_used]

    def forget(self) -> None:
        """No look follows: the pool and what hangs on it may go."""
        self._pool = None
        self._seen = []


def _standing(pool: PagePool) -> list[NDArray[Any]]:
    """State and column of every page, and where there is a host tier whether the page lies there."""
    found: list[NDArray[Any]] = [np.frombuffer(pool.state, np.uint8), np.frombuffer(pool.column, np.uint8)]
    if pool.host_pages:
        found.append(np.frombuffer(pool.slot, np.int32) >= pool.device_pages)
    return found


def _codes(standing: list[NDArray[Any]]) -> bytes:
    """States of pages (:func:`_standing`) with :data:`CACHED` and :data:`ON_HOST`; a free page has no tier."""
    state, column, *on_host = standing
    code = state + CACHED * (column != UNCACHED)
    for away in on_host:
        code += ON_HOST * (away & (state > 0))
    return code.astype(np.uint8).tobytes()
