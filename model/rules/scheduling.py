"""Rules *chunking*, *victim* and *deferral*: what one pass takes, from whom, and whom it lets wait."""

from __future__ import annotations

from dataclasses import dataclass

from model.config import Limits
from model.geometry import floor_to


@dataclass(frozen=True, slots=True)
class Chunking:
    """Chunk size of the V2 scheduler. ``charges_executed``: the budget pays what runs, not what is left after the
    reuse discount. ``keeps_partial``: a chunk that cannot reach a page end is taken as it is. ``knows_hit``: what is
    left to compute is counted from behind the hit."""

    name: str = "v2"
    charges_executed: bool = True
    keeps_partial: bool = True
    knows_hit: bool = True

    def counted_from(self, cursor: int, first: bool) -> int:
        """Position from which the tokens to compute are counted when the chunk starts at ``cursor``."""
        return 0 if first and not self.knows_hit else cursor

    def size(self, budget: int, cursor: int, length: int, drafts: int, limits: Limits) -> int:
        """Tokens of the next chunk from ``cursor``; 0 if the budget allows none.

        A chunk that does not complete the context is floored to the unit, and where a hit left the cursor inside a
        page so that it ends on one. The last chunk is charged ``drafts`` tokens more.
        """
        remaining = length - cursor
        if remaining + drafts <= budget:
            return remaining
        if not limits.chunked_prefill:
            return 0
        size = max(0, floor_to(min(budget, remaining - 1), limits.chunk_unit))
        if cursor % limits.page_size:
            on_page = floor_to(cursor + size, limits.page_size) - cursor
            return on_page if on_page > 0 or not self.keeps_partial else size
        return size

    def charge(self, size: int, claimed: int) -> int:
        """Budget tokens that a chunk of ``size`` costs when the request's first chunk claimed ``claimed``."""
        return size if self.charges_executed else max(0, size - claimed)


@dataclass(frozen=True, slots=True)
class Victim:
    """``newest_first``: the request that started last is suspended or paused first. ``keeps_place``: a preempted
    request stays where it arrived in the queue, and does not go to its end."""

    name: str = "newest-started"
    newest_first: bool = True
    keeps_place: bool = True


@dataclass(frozen=True, slots=True)
class Deferral:
    """``by_prefix``: a request whose first new block another one computes in this pass waits for it."""

    name: str = "by-prefix"
    by_prefix: bool = True
