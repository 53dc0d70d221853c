"""A copy between the tiers failed: which pages and requests it spoils, and how they are dropped.

What a lost copy should have brought is followed through everything that was queued behind it, in stream order: copies
of the page, rows that read it, pages that such rows write and perhaps published already.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from model.copies import Copy
from model.events import Kind
from model.eviction import FREE
from model.plan import ContextRow, GenerationRow, Record

if TYPE_CHECKING:
    from model.engine import Engine
    from model.request import Request

Slots = set[tuple[int, int]]


class Losses:
    """Consequences of lost copies in one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def lose(self, copy: Copy) -> list[int]:
        """End ``copy`` as lost; returns the owners of this moment whose rows in flight are void."""
        engine = self.engine
        assert engine.book is not None
        if not engine.rules.offload.lost_is_miss:
            engine.book.end(copy.number)
            return []
        slots, owners = self._spoiled(copy)
        engine.book.end(copy.number)
        pages = self._pages(slots)
        concerned = [
            request
            for request in sorted(engine.live.values(), key=lambda request: request.order)
            if request.owner in owners or self._holds(request, pages)
        ]
        for pool in engine.twin.pools.values():
            for page in sorted(page for index, page in pages if index == pool.index):
                node = pool.node[page]
                if node is not None:
                    pool.lose(node, pool.column[page])
        for request in concerned:
            self._restart(request, request.owner in owners)
        return sorted(owners)

    def _spoiled(self, copy: Copy) -> tuple[Slots, set[int]]:
        """Slots that hold, or are to hold, nothing of worth, and owners of rows that read one of them."""
        engine = self.engine
        assert engine.book is not None
        batches = [(plan.records, (*plan.context, *plan.generation)) for plan in engine.plans]
        batches.append((engine.recorder.records, ()))
        queued = {record[1] for records, _ in batches for record in records if record[0] == Record.START}
        slots: Slots = {(copy.pool, copy.target)}
        owners: set[int] = set()
        for other in engine.book.open.values():
            if copy.number < other.number and other.number not in queued:
                _carry(slots, other.pool, other.source, other.target)
        begun = copy.number not in queued
        for records, rows in batches:
            for record in records:
                if begun:
                    _follow(slots, record)
                begun = begun or (record[0] == Record.START and record[1] == copy.number)
            if begun:
                self._rows(slots, owners, rows)
        return slots, owners

    def _rows(self, slots: Slots, owners: set[int], rows: Iterable[ContextRow | GenerationRow]) -> None:
        """Rows that read a spoiled page compute nothing of worth, and spoil what they write."""
        columns, size = self.engine.twin.columns, self.engine.config.limits.page_size
        for row in rows:
            named = [
                (column.pool.index, slot)
                for column, table in zip(columns, row.tables, strict=True)
                for slot in (*table.view, *memoryview(table.sinks).cast("i"))
            ]
            if row.owner not in owners and slots.isdisjoint(named):
                continue
            owners.add(row.owner)
            if isinstance(row, ContextRow):  # generated tokens are not published
                for column, table in zip(columns, row.tables, strict=True):
                    written = table.view[max(0, row.start // size - table.base) :]
                    slots.update((column.pool.index, slot) for slot in written)

    def _pages(self, slots: Slots) -> set[tuple[int, int]]:
        """(pool, page) of the spoiled slots that are in use."""
        pages: set[tuple[int, int]] = set()
        for pool in self.engine.twin.pools.values():
            wanted = {slot for index, slot in slots if index == pool.index}
            if wanted:
                used = (page for page in range(pool.total) if pool.state[page] != FREE)
                pages.update((pool.index, page) for page in used if pool.slot[page] in wanted)
        return pages

    def _holds(self, request: Request, pages: set[tuple[int, int]]) -> bool:
        for sequence in self.engine.twin.sequences(request):
            for pool, table, stale in zip(sequence.manager.pools, sequence.tables, sequence.stale, strict=True):
                held = (*table.sinks, *table.pages, *(page for _, page in stale))
                if any((pool.index, page) in pages for page in held):
                    return True
        return False

    def _restart(self, request: Request, void: bool) -> None:
        """The request begins anew from what is still cached; a hit that only ``void`` rows read is taken back."""
        engine, record, owner = self.engine, request.record, request.owner
        if void and not request.hit_used and engine.rules.accounting.retracts_lost:
            self._retract(request)
        if request.started:
            record.preemptions += 1
            engine.totals.preemptions += 1
        engine.log.preempted(request)
        engine.scheduler.restart(request)
        engine.binder.unbind(owner)
        engine.owners.pop(owner, None)
        engine.recorder.records.append((Record.END, owner))
        engine.log.note(Kind.RELEASE, owner)

    def _retract(self, request: Request) -> None:
        """Take the claim of this epoch back from the counters of reuse."""
        record, totals, tokens = request.record, self.engine.totals, request.claim.tokens
        if not request.hit_first:
            record.reclaimed_tokens -= tokens
            totals.reclaimed_tokens -= tokens
            return
        drafted = 0 if request.claim.fresh or not self.engine.twin.paired else tokens
        record.cached_tokens -= tokens
        record.draft_cached_tokens -= drafted
        totals.cached_tokens -= tokens
        totals.draft_cached_tokens -= drafted
        request.hit_lost = True


def _carry(slots: Slots, pool: int, source: int, target: int) -> None:
    """A page is copied over another: the target is worth as much as its source."""
    (slots.add if (pool, source) in slots else slots.discard)((pool, target))


def _follow(slots: Slots, record: tuple) -> None:
    """What one record does to the set of spoiled slots."""
    kind = record[0]
    if kind == Record.GRANT:
        slots.difference_update((record[1], slot) for slot in record[2])
    elif kind == Record.COPY:
        _carry(slots, *record[1:4])
    elif kind == Record.START:
        _carry(slots, record[2], *record[4:6])
