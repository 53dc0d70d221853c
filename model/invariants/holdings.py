"""What a memory holds of a prompt in published pages: read off the tags in its cells, not off the prefix trees."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from model.cells import CellStore
from model.geometry import cdiv
from model.manager import Manager
from model.reader import SENTINELS, Reader

if TYPE_CHECKING:
    from model.joint import Column

FEW = 16  # blocks that are looked at one by one faster than all at once

Snapshot = list[NDArray[np.bool_]]  # per pool, whether the prefix tree caches what lies in a slot


class PublishedPages:
    """Slots with published content by the tag of their first cell.

    A tag tells the whole prefix, so a page whose first and last cells carry a reader's tags is the reader's page. An
    entry is only a hint: memory says at each lookup whether the slot still holds that content.
    """

    def __init__(self, memory: CellStore) -> None:
        self.memory = memory
        self.slots: list[dict[int, int | tuple[int, ...]]] = [{} for _ in memory.pools]
        self.space = [np.zeros(pool.total, dtype=np.uint64) for pool in memory.pools]  # of each slot's publisher's keys
        # A manager takes one child in part, and no other once it took it. Its full-attention column has a page for
        # each child; where it has none, children without any page may stand in the tree, so that all count that the
        # target ever published.
        self.counted: dict[Manager, Column | None] = {}
        for column in memory.columns:
            known = self.counted.get(column.manager)
            self.counted[column.manager] = known or (column if column.lifecycle.window is None else None)
        full = [column for column in memory.target_columns if column.lifecycle.window is None]
        self.reference = full[0] if full and None in self.counted.values() else None
        # A node is told by the tokens that its key depends on, and by the keys' root (xor): prompts under other keys
        # have other nodes, whatever their pages hold.
        self.children: dict[tuple[int, int], dict[int, int]] = {}  # (column, parent node) -> slot -> first tag
        self.parent: dict[tuple[int, int], tuple[int, int]] = {}  # (pool, slot) -> key of ``children``
        self.ever: dict[int, int] = {}  # first tag in the reference column -> node, 0 once there were several
        self.ever_children: dict[int, int] = {}  # parent node -> children so far

    def publish(self, column: Column, slots: NDArray[np.int32], reader: Reader | None, block: int) -> None:
        """Pages from ``block`` on, computed or held by ``reader``, entered the tree."""
        memory, pool = self.memory, self.memory.pool_of[column.index]
        index, cells = self.slots[pool], memory.cells[pool]
        sealed, flat, page = memory.sealed[pool], memory.flat[pool], memory.page
        ids, firsts = slots.tolist(), cells[slots, 0].tolist()
        for slot, tag in zip(ids, firsts, strict=True):
            known = index.get(tag)
            if known is None or known == slot:
                index[tag] = slot
            elif tag not in SENTINELS:
                others = known if isinstance(known, tuple) else (known,)
                kept = [s for s in others if s != slot and sealed[s] and flat[s * page] == tag]
                index[tag] = (*kept, slot) if kept else slot
        if reader is not None:
            self.space[pool][slots] = reader.space
            self._note_children(column, (ids, firsts), reader, block)
        if len(index) > 8 * len(sealed) + 4096:
            self._forget_stale(pool)

    def _note_children(self, column: Column, pages: tuple[list[int], list[int]], reader: Reader, block: int) -> None:
        if column is not self.counted[column.manager]:
            return
        page, place = self.memory.page, column.index
        pool, sealed = self.memory.pool_of[place], self.memory.sealed[self.memory.pool_of[place]]
        parents = self._nodes(reader, max(block, 1) * page, (block + len(pages[0]) - 1) * page)
        if not block:
            parents.insert(0, reader.space)
        for number, (slot, first, parent) in enumerate(zip(*pages, parents, strict=True), block):
            self.children.setdefault((place, parent), {})[slot] = first
            self.parent[pool, slot] = (place, parent)
            if column is self.reference:
                tag = first ^ reader.space
                known, end = self.ever.get(tag), number * page + sealed[slot]
                last = self._nodes(reader, end, end)[0]
                self.ever[tag] = last if known is None or known == last else 0
                if known != last:
                    self.ever_children[parent] = self.ever_children.get(parent, 0) + 1

    def _nodes(self, reader: Reader, first: int, last: int) -> list[int]:
        """What tells the nodes of blocks that end behind the first ``first``, a page more, ``last`` tokens."""
        if first > last:
            return []
        ahead = self.memory.twin.ahead.get(reader.space, 0) - 1
        keys = reader.stream.sums(first + ahead, last + ahead + 1)[:: self.memory.page].tolist()
        return [key ^ reader.space for key in keys]

    def _forget_stale(self, pool: int) -> None:
        flat, sealed, page = self.memory.flat[pool], self.memory.sealed[pool], self.memory.page
        kept = {}
        for tag, known in self.slots[pool].items():
            slots = known if isinstance(known, tuple) else (known,)
            if any(sealed[slot] and flat[slot * page] == tag for slot in slots):
                kept[tag] = known
        self.slots[pool] = kept
        for key, pages in list(self.children.items()):
            if self.memory.pool_of[key[0]] == pool and not any(
                flat[slot * page] == first for slot, first in pages.items()
            ):
                del self.children[key]
        self.parent = {place: key for place, key in self.parent.items() if key in self.children}

    def moved(self, pool: int, source: int, slot: int) -> None:
        """A page went from slot ``source`` to ``slot`` with its content."""
        tag = self.memory.flat[pool][slot * self.memory.page]
        if self.memory.sealed[pool][slot]:
            self.space[pool][slot] = self.space[pool][source]
            known = self.slots[pool].get(tag, ())
            self.slots[pool][tag] = (*(known if isinstance(known, tuple) else (known,)), slot)
            key = self.parent.get((pool, source))
            if key is not None:
                self.parent[pool, slot] = key
                self.children[key][slot] = tag

    def one_child(self, manager: Manager, reader: Reader, block: int, cached: Snapshot, most: int) -> bool:
        """Whether a match of ``block`` in part can take one node only, below fewer than ``most`` siblings."""
        page = self.memory.page
        column = self.counted[manager] or self.reference
        if column is None:
            return False
        tags = reader.tags[column.index]
        parent = self._nodes(reader, block * page, block * page)[0] if block else reader.space
        if column.manager is not manager:
            known = self.ever.get(int(tags[block * page]) ^ reader.space)
            return known != 0 and self.ever_children.get(parent, 0) < most
        pool = self.memory.pool_of[column.index]
        flat, sealed = self.memory.flat[pool], self.memory.sealed[pool]
        pages = self.children.get((column.index, parent), {})
        there = [slot for slot, tag in pages.items() if not sealed[slot] or flat[slot * page] == tag]
        return sum(1 for slot in there if cached[pool][slot]) < most  # of some not a single cell was final


class PromptHoldings:
    """What a memory holds of one prompt: per column, how many leading tokens of each block some cached page has.

    ``cached`` tells which slots the tree cached at the claim; ``partial``: the keys match a block in part.
    """

    def __init__(
        self, published: PublishedPages, reader: Reader, limit: int, cached: Snapshot, partial: bool, children: int
    ) -> None:
        self.published, self.reader, self.limit, self.cached = published, reader, limit, cached
        self.memory = published.memory
        self.page_size = self.memory.page
        self.partial, self.most_children = partial, children
        self.blocks = cdiv(limit, self.page_size)
        self.several: set[int] = set()  # blocks with more than one cached page in some column
        self.looks_ahead = self.memory.twin.ahead.get(reader.space, 0) > 0
        self.covered = [self._coverage(column) for column in self.memory.columns]
        whole = self.page_size
        self.holes = [[block for block, cells in enumerate(one) if cells < whole] for one in self.covered]
        self.last = [max([block for block, cells in enumerate(one) if cells], default=-1) for one in self.covered]

    # -- coverage ------------------------------------------------------------------------------------------------

    def _coverage(self, column: Column) -> list[int]:
        """Leading tokens of each block that some cached page of ``column`` holds."""
        view, pool = self.reader.views[column.index], self.memory.pool_of[column.index]
        index = self.published.slots[pool]
        hints = [index.get(tag) for tag in view[: self.limit : self.page_size].tolist()]
        covered = [0] * self.blocks
        known = [(place, hint) for place, hint in enumerate(hints) if hint is not None]
        if len(known) > FEW:
            alone = np.array([one for one in known if isinstance(one[1], int)], dtype=np.int64).reshape(-1, 2)
            self._cover_at_once(covered, column, alone[:, 0], alone[:, 1])
            known = [one for one in known if isinstance(one[1], tuple)]
        cached, space, own = self.cached[pool], self.published.space[pool], self.reader.space
        for place, hint in known:
            slots = hint if isinstance(hint, tuple) else (hint,)
            options = [self._leading(pool, slot, view, place) for slot in slots if cached[slot] and space[slot] == own]
            covered[place] = max(options, default=0)
            if len(options) - options.count(0) > 1:
                self.several.add(place)
        return covered

    def _cover_at_once(
        self, covered: list[int], column: Column, places: NDArray[np.int64], slots: NDArray[np.int64]
    ) -> None:
        """:meth:`_coverage` of the blocks ``places``, for each of which one slot is a hint; both have shape ``[n]``."""
        memory, page, pool = self.memory, self.page_size, self.memory.pool_of[column.index]
        cells, sealed = memory.cells[pool], np.frombuffer(memory.sealed[pool], dtype=np.int32)[slots]
        tags, lasts = self.reader.tags[column.index], places * page + page - 1
        cached = self.cached[pool][slots] & (self.published.space[pool][slots] == np.uint64(self.reader.space))
        found = cached & (sealed > 0) & (cells[slots, 0] == tags[places * page])
        full = found & (sealed >= page) & (lasts < len(tags))
        full[full] = cells[slots[full], page - 1] == tags[lasts[full]]
        for place in places[full].tolist():
            covered[place] = page
        view = self.reader.views[column.index]
        for place, slot in zip(places[found & ~full].tolist(), slots[found & ~full].tolist(), strict=True):
            covered[place] = self._leading(pool, slot, view, place)

    def _leading(self, pool: int, slot: int, tags: memoryview, block: int) -> int:
        """Leading published cells of a slot that hold the reader's ``tags`` of ``block``."""
        memory, page = self.memory, self.page_size
        sealed, flat, cell, begin = memory.sealed[pool][slot], memory.flat[pool], slot * page, block * page
        if not sealed or flat[cell] != tags[begin]:
            return 0
        if sealed >= page and begin + page <= len(tags) and flat[cell + page - 1] == tags[begin + page - 1]:
            return page  # a tag tells the whole prefix
        wanted = tags[begin : begin + sealed]
        found = flat[cell : cell + len(wanted)]
        if found == wanted:
            return len(wanted)
        return next(place for place, (one, other) in enumerate(zip(found, wanted, strict=True)) if one != other)

    # -- endpoints -----------------------------------------------------------------------------------------------

    def deepest(self, columns: Sequence[Column], end: int, sure: bool, boundary: bool) -> int:
        """Deepest endpoint up to ``end`` at which ``columns`` cover what the query there reads."""
        page, blocks = self.page_size, cdiv(end, self.page_size)
        if not blocks or not columns:
            return end
        top = min([self._top(column) for column in columns])
        best, block = 0, min(end // page - 1, top)
        while block >= 0:
            lower = min([self._reached(column, (block + 1) * page, block, sure) for column in columns])
            if lower == block:
                best = (block + 1) * page
                break
            block = lower
        if boundary or not self.partial:
            return best
        for block in range(min(blocks - 1, top), best // page - 1, -1):
            begin = block * page
            least = min([self.covered[column.index][block] for column in columns])
            stop = min(begin + least, end)
            if not least or stop <= best or not stop % page:
                continue
            reached = all(self._reached(column, stop, block, sure) == block for column in columns)
            if reached and (not sure or self.only_child(columns, block)):
                return stop
        return best

    def _top(self, column: Column) -> int:
        """Last block in which a column may have an endpoint."""
        window, place = column.lifecycle.window, column.index
        if window is None:
            return self._whole(place)
        return self.blocks - 1 if window <= 1 else self.last[place]

    def _whole(self, place: int) -> int:
        """Leading blocks that are covered in full."""
        return self.holes[place][0] if self.holes[place] else self.blocks

    def _reached(self, column: Column, end: int, block: int, sure: bool) -> int:
        """``block`` if a column holds its window (and sinks) at the endpoint ``end``, which lies in it; otherwise a
        lower block, above which it does not.

        A window of one token reads nothing at a page end; ``sure`` still wants the page there, which is what keeps
        the block in a tree of windowed pages.
        """
        page, life, place = self.page_size, column.lifecycle, column.index
        inside = self.covered[place][block] >= end - block * page
        if life.window is None:
            return block if inside and block <= self._whole(place) else block - 1
        first = max(0, end + 1 - life.window) // page
        unread = first > block
        if not inside and (sure or not unread):
            return block - 1
        if not unread:
            holes = self.holes[place]
            below = bisect_left(holes, block)
            if below and holes[below - 1] >= first:
                return holes[below - 1]  # it is in the window of all blocks in between as well
            if sure and self.looks_ahead:  # where a block has several pages, this column's may be that of another node
                other = max((known for known in self.several if first <= known <= block), default=-1)
                if other >= 0:
                    return min(other, block - 1)
        sinks = life.sink_blocks(page)
        if sinks and (min(sinks, block) > self._whole(place) or not (inside or block >= sinks)):
            return block - 1
        return block

    def only_child(self, columns: Sequence[Column], block: int) -> bool:
        """Whether a partial match of ``block`` can mean one cached page of each column only."""
        return block not in self.several and all(
            self.published.one_child(manager, self.reader, block, self.cached, self.most_children)
            for manager in dict.fromkeys(column.manager for column in columns)
        )
