"""Dummies of one engine: generation rows without a request, each with a cache of its own in every pool.

A pad dummy lets an attention-DP rank with nothing scheduled forward along; warm-up dummies stand in for a full batch
while graphs are captured. A dummy publishes nothing, is in no statistics, uses the dummies' row slot (the one behind
those of requests), and goes when its iteration ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from model.geometry import cdiv
from model.manager import Manager
from model.plan import DummyRow, Record
from model.sequence import ACTIVE
from model.tree import Match

if TYPE_CHECKING:
    from model.engine import Engine

PAD_TOKENS = 1  # tokens of a pad dummy
_NOTHING = Match([], 0)


class Dummies:
    """Adds, schedules and removes dummies; ``live`` maps the owner of each to its tokens."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.live: dict[int, int] = {}

    def capacity(self, tokens: int) -> int:
        """Tokens that a dummy's caches are backed for: its own, the extra ones, and one verify row."""
        return tokens + self.engine.config.limits.extra_tokens + self.engine.twin.width

    def estimate(self, tokens: int, count: int = 1) -> dict[str, int]:
        """Pages by pool that ``count`` dummies of ``tokens`` will take."""
        page = self.engine.config.limits.page_size
        capacity = self.capacity(tokens) if self.engine.rules.dummy.counts_extra else tokens
        need: dict[str, int] = {}
        for column in self.engine.twin.columns:
            begin, end = column.lifecycle.stale_range(max(0, tokens - 1), page)
            pages = cdiv(capacity, page) - (end if end > begin else 0)  # no sinks: nobody ever wrote them
            need[column.pool.name] = need.get(column.pool.name, 0) + count * pages
        return need

    def short(self, need: dict[str, int]) -> str:
        """The pool that cannot give the pages, in a few words; empty if all can."""
        for name, pages in need.items():
            have = self.engine.twin.pools[name].obtainable()
            if pages > have:
                return f"{pages} pages of pool {name!r} are needed, {have} can be had"
        return ""

    def add(self, tokens: int) -> int | None:
        """A dummy of ``tokens`` with its caches; its owner, or ``None`` with nothing held where a pool says no."""
        engine = self.engine
        owner = engine.new_owner()
        for manager in engine.twin.managers:
            if manager is engine.twin.draft and not engine.rules.dummy.draft:
                continue
            if not self._create(manager, owner, tokens):
                self._free(owner)
                return None
        self.live[owner] = tokens
        return owner

    def _create(self, manager: Manager, owner: int, tokens: int) -> bool:
        """A cache without keys, so that it never publishes; first the dummy's tokens, then room for its drafts."""
        if not manager.has_room():
            return False
        sequence = manager.create(owner, None, _NOTHING, 0)
        hinted = manager is not self.engine.twin.draft or self.engine.rules.dummy.hints_draft
        history = max(0, tokens - 1) if hinted else 0
        first, whole = tokens + self.engine.config.limits.extra_tokens, self.capacity(tokens)
        return sequence.resume() and sequence.resize(first, history) and sequence.resize(whole, history)

    def can_queue(self, owner: int) -> bool:
        """Whether a dummy is backed in every pool, as any row of a batch has to be."""
        caches = [manager.sequences.get(owner) for manager in self.engine.twin.managers]
        return all(cache is not None and cache.status is ACTIVE for cache in caches)

    def bind(self, owners: Sequence[int]) -> tuple[DummyRow, ...]:
        """Rows of dummies for the next plan; all of them use the dummies' row slot."""
        engine = self.engine
        rows = []
        for owner in owners:
            position = max(0, self.live[owner] - 1)
            engine.recorder.records.append((Record.BIND, engine.slots.capacity, owner, position, 0, position))
            tables = tuple(
                table.snapshot(pool)
                for manager in engine.twin.managers
                for table, pool in zip(manager.sequences[owner].tables, manager.pools, strict=True)
            )
            rows.append(DummyRow(-1, owner, engine.slots.capacity, engine.twin.width, position, tables))
        return tuple(rows)

    def end(self, rows: Sequence[DummyRow]) -> None:
        """The iteration of some dummies is over."""
        for row in rows:
            self.remove(row.owner)
            self.engine.recorder.records.append((Record.UNBIND, row.slot))

    def remove(self, owner: int) -> None:
        """A dummy goes, with its pages in every pool."""
        del self.live[owner]
        self._free(owner)

    def _free(self, owner: int) -> None:
        for manager in self.engine.twin.managers:
            manager.free(owner)
