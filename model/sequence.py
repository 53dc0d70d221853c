"""One request in one manager: its block tables, how far it is settled, and what of it is published.

Lengths of a sequence, always ``committed <= history <= capacity``:

    [0, committed)        in the prefix tree (or given up for publication)
    [committed, history)  settled: computed by dispatched steps, never rewound
    [history, capacity)   backed by pages, written by steps in flight or to come

Blocks below the window of ``history`` are released; the rest of each lifecycle's blocks are in its table.
"""

from __future__ import annotations

import enum
from array import array
from typing import TYPE_CHECKING

from model.geometry import Lifecycle, cdiv
from model.table import NO_PAGE, Table
from model.tree import Match, Node

if TYPE_CHECKING:
    from model.manager import Manager
    from model.pages import PagePool
    from model.rules.keys import KeyView


class Status(enum.IntEnum):
    """Whether the pages of a sequence are locked on the device, held, or gone."""

    SUSPENDED = 0
    ACTIVE = 1
    CLOSED = 2


SUSPENDED, ACTIVE, CLOSED = Status  # bound once: a member access costs ten times as much


class Publication(enum.IntEnum):
    """What a commit may still do."""

    ALLOWED = 0
    CONFLICT = 1  # a sibling stands in the way: later commits are accepted and publish nothing
    STOPPED = 2  # the context is complete, or the owner never publishes


class SequenceCache:
    """State of one request in one manager. Built by :meth:`model.manager.Manager.create`."""

    __slots__ = (
        "backed",
        "blocks",
        "capacity",
        "claimed",
        "commit_limit",
        "committed",
        "conversation",
        "declined",
        "history",
        "keys",
        "manager",
        "next_block",
        "owner",
        "partial",
        "priority",
        "publication",
        "quiet",
        "resumed",
        "stale",
        "status",
        "tables",
        "tip",
        "written",
    )

    def __init__(self, manager: Manager, owner: int, keys: KeyView | None, tokens: int) -> None:
        self.manager = manager
        self.owner = owner
        self.keys = keys
        self.status = SUSPENDED
        self.claimed = tokens
        self.committed = self.history = self.capacity = tokens
        self.blocks = cdiv(tokens, manager.page_size)
        self.backed = self.blocks * manager.page_size
        self.quiet = 0  # histories below this release nothing
        self.tables = [Table() for _ in manager.lifecycles]
        self.tip: Node | None = None
        self.next_block = 0  # first block that is not committed
        self.publication = Publication.ALLOWED if keys is not None else Publication.STOPPED
        self.declined: frozenset[int] = frozenset()
        self.conversation = -1
        self.priority = 0  # of the pages it publishes: lower ones are evicted first
        self.resumed = False
        self.partial: list[int] = [NO_PAGE] * len(manager.lifecycles)  # shared last pages to copy at the first resume
        self.written: list[tuple[int, int]] = [(0, 0)] * len(manager.lifecycles)
        self.stale: list[list[tuple[int, int]]] = [[] for _ in manager.lifecycles]  # released, kept for a late commit

    # -- claim ---------------------------------------------------------------------------------------------------

    def take(self, match: Match, tokens: int, declined: frozenset[int]) -> None:
        """Hold the matched pages that are live at ``tokens``; lifecycles in ``declined`` start with no content."""
        manager, size = self.manager, self.manager.page_size
        self.declined = declined
        nodes = match.nodes
        full = min(tokens // size, len(nodes))  # a fresh mirror has no path: it commits from its first block on
        self.tip = nodes[full - 1] if full else None
        self.next_block = full
        self.committed = full * size
        for column, lifecycle in enumerate(manager.lifecycles):
            table = self.tables[column]
            if column in declined or not tokens:
                self.written[column] = (tokens, tokens)
                table.base = self._first_block(lifecycle, tokens)
                continue
            begin = lifecycle.read_from(tokens) // size
            sinks = min(begin, lifecycle.sink_blocks(size), cdiv(tokens, size))
            table.sinks = array("i", [node.pages[column] for node in nodes[:sinks]])
            pages = [node.pages[column] for node in nodes[begin : cdiv(tokens, size)]]
            while NO_PAGE in pages:  # only a wrong claim meets a hole: what lies below it is not backed
                begin += pages.index(NO_PAGE) + 1
                pages = pages[pages.index(NO_PAGE) + 1 :]
            if not pages and tokens % size:
                begin = tokens // size
            table.base = begin
            table.pages = array("i", pages)
            self.written[column] = (begin * size, tokens)
            pool = manager.pools[column]
            pool.hold(table.sinks)
            pool.hold(table.pages)
            if tokens % size and table.pages:
                self.partial[column] = table.pages[-1]

    def _first_block(self, lifecycle: Lifecycle, history: int) -> int:
        begin, end = lifecycle.stale_range(history, self.manager.page_size)
        return end if end > begin else 0

    # -- activity ------------------------------------------------------------------------------------------------

    def resume(self) -> bool:
        """Lock every page on the device; at the first resume also copy a shared partial page.

        Refused (state unchanged) when a pool is fuller than the resume gate allows or cannot give the pages.
        """
        manager = self.manager
        if self.status is ACTIVE:
            return True
        if not manager.gate_open():
            return False
        absent = [self._lock_present(column) for column in range(len(self.tables))]
        needs = [len(pages) + self._first_needs(column) for column, pages in enumerate(absent)]
        if not manager.obtainable(needs, [0] * len(needs), [len(pages) for pages in absent]):
            for column, pages in enumerate(absent):
                if manager.rules.offload.undoes_failed:
                    self._unlock_present(column, pages)
            return False
        for column, pages in enumerate(absent):
            if pages:
                self._bring_back(column, pages)
        self.status = ACTIVE
        if not self.resumed:
            self._first_resume()
        return True

    def _bring_back(self, column: int, pages: list[int]) -> None:
        """Promote pages of one table, which may have lain elsewhere on the device before."""
        pool, table = self.manager.pools[column], self.tables[column]
        for page in pages:  # one that is back and not locked would make room for the next
            pool.promote((page,))
            pool.lock_held((page,))
        if not self.manager.rules.offload.keeps_order:
            places = [place for place, page in enumerate(table.pages) if page in pages]
            moved = [table.pages[place] for place in places]
            for place, page in zip(places, moved[1:] + moved[:1], strict=True):
                table.pages[place] = page

    def _lock_present(self, column: int) -> list[int]:
        """Lock the pages that lie on the device; returns those in the host tier, in block order."""
        pool, table = self.manager.pools[column], self.tables[column]
        if not pool.host_pages:
            pool.lock_held(table.sinks)
            pool.lock_held(table.pages)
            return []
        if self.manager.rules.offload.reattaches:
            table.row = None  # whatever is held may have moved since it was locked last
        pages = table.sinks.tolist() + table.pages.tolist()
        pool.lock_held([page for page in pages if not pool.on_host(page)])
        return [page for page in pages if pool.on_host(page)]

    def _unlock_present(self, column: int, absent: list[int]) -> None:
        pool, table = self.manager.pools[column], self.tables[column]
        away = set(absent)
        pool.unlock_to_held([page for page in (*table.sinks, *table.pages) if page not in away])

    def _first_needs(self, column: int) -> int:
        """Pages that only the first resume takes: a copy of the shared partial page, and unmatched blocks."""
        if self.resumed:
            return 0
        return (self.partial[column] != NO_PAGE) + self._fresh_blocks(column)

    def _fresh_blocks(self, column: int) -> int:
        """Blocks of a declined lifecycle that the claim counts as capacity but that hold no page yet."""
        table = self.tables[column]
        return max(0, self.blocks - table.end())

    def _first_resume(self) -> None:
        manager = self.manager
        self.resumed = True
        for column, pool in enumerate(manager.pools):
            table = self.tables[column]
            fresh = self._fresh_blocks(column)
            if fresh:
                granted = pool.grant(fresh)
                table.pages.extend(granted)
                table.row = None
                manager.recorder.granted(pool, granted, self.owner, column, table.end() - fresh)
            source = self.partial[column]
            if source == NO_PAGE:
                continue
            self.partial[column] = NO_PAGE
            page = manager.rules.copy.fresh_page(pool, source)
            if page == source:
                continue
            table.pages[-1] = page
            table.row = None
            manager.recorder.granted(pool, array("i", (page,)), self.owner, column, table.end() - 1)
            manager.recorder.copied(pool, source, page, self.claimed % manager.page_size)
            pool.release_locked(array("i", (source,)))

    def suspend(self) -> None:
        """Give up all locks and keep the holds; released blocks stay released."""
        if self.status is not ACTIVE:
            return
        for column, pool in enumerate(self.manager.pools):
            pool.unlock_to_held(self.tables[column].sinks)
            pool.unlock_to_held(self.tables[column].pages)
        self.status = SUSPENDED

    def close(self) -> None:
        """Drop every reference."""
        for column, pool in enumerate(self.manager.pools):
            table = self.tables[column]
            release = pool.release_locked if self.status is ACTIVE else pool.release_held
            tail = self.manager.rules.rewind.forgotten(self.blocks, self.history, self.manager.page_size)
            leaving = self._leaving(pool, table.pages)
            release(leaving[: len(leaving) - tail] if tail else leaving)
            release(table.sinks)
            pool.release_held(array("i", [page for _, page in self.stale[column]]))
            self.stale[column] = []
            table.pages = array("i")
            table.sinks = array("i")
        self.status = CLOSED

    def _leaving(self, pool: PagePool, pages: array[int]) -> array[int]:
        """Which of a table's pages a close gives up: all, unless those that a load brings are kept for its end."""
        book = self.manager.recorder.book
        if book is None or self.manager.rules.offload.frees_aborted:
            return pages
        return array("i", [page for page in pages if not book.loading(pool.index, pool.slot[page])])

    # -- size ----------------------------------------------------------------------------------------------------

    def resize(self, capacity: int, history: int) -> bool:
        """Back ``[.., capacity)`` and release what is stale at ``history``; atomic, ``False`` if pages are short.

        ``history`` never decreases and never exceeds ``capacity``.
        """
        manager, size = self.manager, self.manager.page_size
        assert self.status is ACTIVE and self.history <= history <= capacity
        if self.backed - size < capacity <= self.backed and history < self.quiet:
            self.capacity = capacity
            self.history = history
            return True
        blocks, quiet = cdiv(capacity, size), history < self.quiet
        if blocks > self.blocks or (history != self.history and not quiet):
            if quiet:  # nothing becomes stale
                plans = [(0, blocks - table.base - len(table.pages)) for table in self.tables]
            else:
                plans = [self._plan(column, blocks, history) for column in range(len(self.tables))]
            freed = [self._freed(column, end) if end else 0 for column, (end, _) in enumerate(plans)]
            if blocks > self.blocks and not manager.obtainable([grow for _, grow in plans], freed):
                return False
            for column, (stale_end, _) in enumerate(plans):
                if stale_end:
                    self._release_stale(column, stale_end)
            for column, (_, grow) in enumerate(plans):
                if grow > 0:
                    pool, table = manager.pools[column], self.tables[column]
                    granted = pool.grant(grow)
                    table.pages.extend(granted)
                    table.row = None
                    manager.recorder.granted(pool, granted, self.owner, column, table.end() - grow)
        if blocks < self.blocks:
            self._shrink(blocks)
        self.blocks, self.backed = blocks, blocks * size
        self.capacity, self.history = capacity, history
        if not quiet:
            self.quiet = min([self._next_release(column) for column in range(len(self.tables))])
        return True

    def _next_release(self, column: int) -> int:
        """Lowest history at which the first block of the table becomes stale."""
        lifecycle, table = self.manager.lifecycles[column], self.tables[column]
        if lifecycle.window is None:
            return 1 << 62
        size = self.manager.page_size
        first = max(table.base, lifecycle.sink_blocks(size))
        return (first + 1) * size + lifecycle.window + lifecycle.trail - 1

    def _plan(self, column: int, blocks: int, history: int) -> tuple[int, int]:
        """(first block that is not stale, blocks to grow) of one lifecycle."""
        lifecycle = self.manager.lifecycles[column]
        table = self.tables[column]
        if lifecycle.window is None:
            return (0, blocks - table.end())
        begin, end = lifecycle.stale_range(history, self.manager.page_size)
        if end <= begin:
            return (0, blocks - table.end())
        return (end, blocks - max(end, table.end()))

    def _freed(self, column: int, stale_end: int) -> int:
        """Pages that releasing the blocks below ``stale_end`` makes obtainable."""
        table = self.tables[column]
        count = stale_end - table.base
        if count <= 0 or (self.keeps_stale() and stale_end > self.next_block):
            return 0
        pool = self.manager.pools[column]
        leaving = table.pages[self._new_sinks(column) : count]
        return sum(1 for page in leaving if pool.locks[page] == 1 and not pool.holds[page])

    def _new_sinks(self, column: int) -> int:
        """How many leading pages of the table become its sinks when the blocks behind them are released."""
        table = self.tables[column]
        if table.base != len(table.sinks):
            return 0
        sinks = self.manager.lifecycles[column].sink_blocks(self.manager.page_size)
        return max(0, min(sinks, table.end()) - len(table.sinks))

    def _release_stale(self, column: int, stale_end: int) -> None:
        table = self.tables[column]
        count = stale_end - table.base
        if count <= 0:
            return
        pool = self.manager.pools[column]
        kept = self._new_sinks(column)
        if kept:
            table.sinks.extend(table.pages[:kept])
        gone = table.pages[kept:count]
        first = table.base + kept
        del table.pages[:count]
        table.base = stale_end
        table.row = None
        if self.keeps_stale() and first + len(gone) > self.next_block:
            late = gone[max(0, self.next_block - first) :]
            if late:
                pool.unlock_to_held(late)
                start = max(first, self.next_block)
                self.stale[column].extend((start + place, page) for place, page in enumerate(late))
                gone = gone[: len(gone) - len(late)]
        pool.release_locked(gone)

    def keeps_stale(self) -> bool:
        """Whether released blocks that are not committed yet are held for a late commit."""
        return self.publication is Publication.ALLOWED and self.manager.rules.publish.keep_stale

    def _shrink(self, blocks: int) -> None:
        for column, pool in enumerate(self.manager.pools):
            table = self.tables[column]
            surplus = table.end() - blocks
            if surplus > 0:
                gone = table.pages[len(table.pages) - surplus :]
                del table.pages[len(table.pages) - surplus :]
                table.row = None
                pool.release_locked(gone)

    def settle(self, history: int) -> None:
        """Raise ``history`` and release what becomes stale; the capacity stays."""
        if history > self.history:
            self.release_behind(history)
            self.history = history

    def release_behind(self, position: int) -> None:
        """Release what the query at ``position`` and later ones do not read."""
        for column, lifecycle in enumerate(self.manager.lifecycles):
            if lifecycle.window is not None:
                begin, end = lifecycle.stale_range(position, self.manager.page_size)
                if end > begin:
                    self._release_stale(column, end)

    def starts_at(self, position: int) -> None:
        """Note that nothing below ``position`` was or will be written here (a mirror first seen there)."""
        self.written = [(position, position)] * len(self.tables)

    def wrote(self, end: int, drafts: bool = True) -> None:
        """Note that dispatched steps write every cell up to ``end`` (each from where it wrote last), the drafter's too
        unless the request runs without it."""
        written = [(low, end if end > high else high) for low, high in self.written]
        if not drafts:
            for column in self.manager.drafting:
                written[column] = self.written[column]
        self.written = written
