"""Laws over the streams of events themselves: their numbers, and the pools that they may speak of."""

from __future__ import annotations

from sim.logs.book import Pool, Rank
from sim.logs.findings import LogLaw


class Numbers(LogLaw):
    """METRIC of numbers: a listener that misses an event has to start again."""

    code, name = "METRIC", "numbers"
    sentence = "The events of a rank are numbered one after another: none is missing, none comes twice or late."
    needs = "numbered events: `event_id`, or `seq` of a batch"

    def numbered(self, rank: Rank, number: int) -> None:
        """Look at the number of the next event; where it breaks the law, what the rank stores is forgotten."""
        last, rank.last = rank.last, number
        if last is None:
            return
        self.evaluations += 1
        if number == last + 1:
            return
        if number > last:
            missing = number - last - 1
            message = f"{missing} {'event is' if missing == 1 else 'events are'} missing"
        else:
            message = "numbers go back"
        self.report(rank.name, None, message, last + 1, number)
        rank.lose()


class Created(LogLaw):
    """SHAPE of what exists."""

    code, name = "SHAPE", "created"
    sentence = "A pool is created once, before anything is stored in it, and every event speaks of a pool that exists."
    needs = "created events"

    def created(self, pool: Pool, levels: list[int]) -> None:
        """A pool is created with so many blocks at each cache level."""
        self.evaluations += 1
        if pool.levels is not None:
            self.report(pool.name, None, "a pool is created twice", "once", f"{pool.levels}, then {levels}")
        elif pool.known:
            self.report(pool.name, None, "a pool is created after it was used", "before", f"{len(pool.known)} blocks")

    def used(self, pool: Pool) -> None:
        """A pool is spoken of for the first time, other than to create it."""
        if pool.whole:
            self.evaluations += 1
            self.report(pool.name, None, "an event speaks of a pool that was not created", "created", pool.name)
        else:
            self.undecided += 1


class BlockSize(LogLaw):
    """SHAPE of what is told of blocks."""

    code, name = "SHAPE", "block-size"
    sentence = "An event has as many tokens as its blocks hold, and all blocks of a pool are of one size."
    needs = "stores with tokens in a pool that is known to have full attention"

    def sized(self, pool: Pool, blocks: int, tokens: int, size: int) -> None:
        """An event stores blocks of ``size`` tokens each."""
        self.evaluations += 1
        if tokens != blocks * size:
            message = f"{tokens} tokens for {blocks} blocks of {size}"
            self.report(pool.name, None, message, blocks * size, tokens)
        if pool.block_size is None:
            pool.block_size = size
        elif pool.block_size != size:
            self.report(pool.name, None, "blocks of another size in one pool", pool.block_size, size)
            pool.block_size = size
