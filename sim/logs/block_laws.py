"""Laws over the blocks that an engine says it stores, updates and removes. Each recomputes from the checker's ledger.

A log that begins in mid-run, or that lost events, leaves open what was stored before; such cases count as undecided.
"""

from __future__ import annotations

from sim.logs.book import Name, Pool, StoredBlock
from sim.logs.findings import LogLaw, Place


class BlockLaw(LogLaw):
    """A law that looks at events of one pool before the ledger enters them, or right after (``entered``)."""

    def stored(self, pool: Pool, parent: Name | None, blocks: list[StoredBlock]) -> None:
        """Blocks are stored, a chain behind ``parent``."""

    def entered(self, pool: Pool) -> None:
        """The ledger has entered an event that stores blocks."""

    def removed(self, pool: Pool, names: list[Name]) -> None:
        """Blocks are removed."""

    def updated(self, pool: Pool, name: Name, levels: tuple[int, int] | None, priority: int | None) -> None:
        """A block moves from one cache level to another, or changes its priority."""

    def ended(self, pools: list[Pool]) -> None:
        """The log ends."""


class OneContent(BlockLaw):
    """KEY."""

    code, name = "KEY", "one-content"
    sentence = "A block hash stands for one content: the same parent, tokens, adapter and salt, whenever it is stored."
    needs = "stores that tell the tokens of each block"

    def stored(self, pool: Pool, parent: Name | None, blocks: list[StoredBlock]) -> None:
        known = pool.known
        for block in blocks:
            if block.content is None:
                self.undecided += 1
                continue
            self.evaluations += 1
            before = known.get(block.name)
            if before is None or before.content is None or before.content == block.content:
                continue
            if before.parent != block.parent:
                expected, found = f"parent {_named(before.parent)}", f"parent {_named(block.parent)}"
            elif before.tokens != block.tokens:
                expected, found = f"{before.tokens} tokens", f"{block.tokens} tokens"
            else:
                expected, found = f"the tokens, adapter and salt of line {before.line}", "others"
            self.report(pool.name, block.name, "a hash is stored again for another content", expected, found)


class ParentStored(BlockLaw):
    """PUB of what a block follows."""

    code, name = "PUB", "parent-stored"
    sentence = "A block is stored behind a parent that is stored itself (pools with full attention)."
    needs = "stores in a pool that is known to have full attention"

    def stored(self, pool: Pool, parent: Name | None, blocks: list[StoredBlock]) -> None:
        if pool.full is False:
            return
        if parent is None:
            self.evaluations += 1
            return
        here = pool.here(parent)
        if here is None or pool.full is None:
            self.undecided += 1
            return
        self.evaluations += 1
        if not here:
            known = parent in pool.known
            found = "one that was removed" if known else "one that was never stored"
            name = blocks[0].name if blocks else None
            self.report(pool.name, name, f"a block follows parent {parent}, which is not stored", "stored", found)


class StoredOnce(BlockLaw):
    """PUB of an index with one entry for each name."""

    code, name = "PUB", "stored-once"
    sentence = "A block that is stored is not stored again before it is removed (engines that keep one copy of each)."
    needs = "stores"

    def stored(self, pool: Pool, parent: Name | None, blocks: list[StoredBlock]) -> None:
        here = pool.here
        own: set[Name] = set()
        for block in blocks:
            self.evaluations += 1
            if here(block.name) or block.name in own:
                line = self.place.line if block.name in own else pool.known[block.name].line
                self.report(pool.name, block.name, "a block is stored twice", "once", f"first on line {line}")
            own.add(block.name)


class RemovedStored(BlockLaw):
    """REF of removals."""

    code, name = "REF", "removed-stored"
    sentence = "Only blocks that are stored are removed, each copy once."
    needs = "removals of blocks whose store is in the log"

    def removed(self, pool: Pool, names: list[Name]) -> None:
        known, era = pool.known, pool.era
        own: dict[Name, int] = {}
        for name in names:
            block = known.get(name)
            copies = block.copies if block is not None and block.era == era else 0
            if copies > own.get(name, 0):
                self.evaluations += 1
            elif not pool.whole and not (own.get(name) or (block is not None and block.era == era)):
                self.undecided += 1
                continue
            else:
                self.evaluations += 1
                found = "never stored" if block is None else "all of its copies removed before"
                self.report(pool.name, name, "a block is removed that is not stored", "stored", found)
            own[name] = own.get(name, 0) + 1


class NoOrphans(BlockLaw):
    """PUB of what hangs below."""

    code, name = "PUB", "no-orphans"
    sentence = "What is stored below a block is removed with it or before (trees that evict leaves, full attention)."
    needs = "removals in a pool that is known to have full attention"

    def removed(self, pool: Pool, names: list[Name]) -> None:
        if pool.full is False:
            return
        if pool.full is None:
            self.undecided += len(names)
            return
        self.evaluations += len(names)
        known, era = pool.known, pool.era
        for name in names:
            block = known.get(name)
            if block is not None and block.era == era and block.children:
                pool.orphaned.append(name)

    def stored(self, pool: Pool, parent: Name | None, blocks: list[StoredBlock]) -> None:
        if pool.orphaned:
            self._judge(pool)

    def ended(self, pools: list[Pool]) -> None:
        for pool in pools:
            self._judge(pool)

    def _judge(self, pool: Pool) -> None:
        """Removals may be told in another order than they happened until something is stored again."""
        for name in pool.orphaned:
            block = pool.known[name]
            if not block.copies and block.children:
                found = f"{block.children} stored below it"
                self.report(pool.name, name, "a block is gone but not what hangs below it", "a leaf", found)
        pool.orphaned = []


class Capacity(BlockLaw):
    """REF of room."""

    code, name = "REF", "capacity"
    sentence = "No cache level holds more blocks than it was created with."
    needs = "created events that tell the blocks of one pool (layer groups share theirs)"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._over: set[tuple[str, int]] = set()  # told once until the level has room again

    def entered(self, pool: Pool) -> None:
        if pool.levels is None or not pool.roomy:
            self.undecided += 1
            return
        self.evaluations += 1
        for level, total in enumerate(pool.levels):
            held = pool.at_level.get(level, 0)
            if held <= total:
                self._over.discard((pool.name, level))
            elif (pool.name, level) not in self._over:
                self._over.add((pool.name, level))
                message = f"cache level {level} holds more blocks than it was created with"
                self.report(pool.name, None, message, f"at most {total}", held)


class FullParents(BlockLaw):
    """SHAPE of chains."""

    code, name = "SHAPE", "full-parents"
    sentence = "Only the last block of a chain is partial: what another block follows holds a whole block of tokens."
    needs = "chains of two blocks or more"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.size = 0  # tokens of the largest block so far: the log does not say how many a block holds
        self.least: tuple[int, int, str, Name] | None = None  # tokens, line, pool and name of the smallest parent

    def stored(self, pool: Pool, parent: Name | None, blocks: list[StoredBlock]) -> None:
        before = pool.known.get(parent) if parent is not None else None
        tokens = -1 if before is None else before.tokens
        name = parent
        for block in blocks:
            if tokens >= 0 and name is not None:
                self._parent(pool, name, tokens)
            tokens, name = block.tokens, block.name
            if tokens > self.size:
                self._grow(tokens)

    def _parent(self, pool: Pool, name: Name, tokens: int) -> None:
        self.evaluations += 1
        if tokens < self.size:
            found = f"{tokens} tokens"
            self.report(pool.name, name, "a block follows a partial one", f"{self.size} tokens", found)
        elif self.least is None or tokens < self.least[0]:
            self.least = (tokens, self.place.line, pool.name, name)

    def _grow(self, tokens: int) -> None:
        self.size = tokens
        if self.least is not None and self.least[0] < tokens:
            held, line, pool, name = self.least
            self.least = None
            message = f"a block that another follows (line {line}) is smaller than this one"
            self.report(pool, name, message, f"{tokens} tokens", f"{held} tokens")


class UpdatedStored(BlockLaw):
    """REF of updates."""

    code, name = "REF", "updated-stored"
    sentence = "Only blocks that are stored are moved to another cache level or given another priority."
    needs = "updates of blocks whose store is in the log"

    def updated(self, pool: Pool, name: Name, levels: tuple[int, int] | None, priority: int | None) -> None:
        here = pool.here(name)
        if here is None:
            self.undecided += 1
            return
        self.evaluations += 1
        if not here:
            found = "removed before" if name in pool.known else "never stored"
            self.report(pool.name, name, "a block is updated that is not stored", "stored", found)


class OldLevel(BlockLaw):
    """METRIC of moves."""

    code, name = "METRIC", "old-level"
    sentence = "A block moves from the cache level where the log says it is."
    needs = "moves between cache levels of blocks whose store is in the log"

    def updated(self, pool: Pool, name: Name, levels: tuple[int, int] | None, priority: int | None) -> None:
        if levels is None:
            return
        if not pool.here(name):
            self.undecided += 1
            return
        self.evaluations += 1
        level = pool.known[name].level
        if level != levels[0]:
            self.report(pool.name, name, "a block moves from a cache level where it is not", level, levels[0])


class Priorities(BlockLaw):
    """SHAPE of priorities."""

    code, name = "SHAPE", "priorities"
    sentence = "Priorities lie between 0 and 100."
    needs = "priorities"

    def stored(self, pool: Pool, parent: Name | None, blocks: list[StoredBlock]) -> None:
        for block in blocks:
            if block.priority is not None:
                self._check(pool, block.name, block.priority)

    def updated(self, pool: Pool, name: Name, levels: tuple[int, int] | None, priority: int | None) -> None:
        if priority is not None:
            self._check(pool, name, priority)

    def _check(self, pool: Pool, name: Name, priority: int) -> None:
        self.evaluations += 1
        if not 0 <= priority <= 100:
            self.report(pool.name, name, "a priority out of range", "0 to 100", priority)


class Levels(BlockLaw):
    """SHAPE of levels."""

    code, name = "SHAPE", "levels"
    sentence = "Blocks lie at cache levels that their pool was created with."
    needs = "created events that tell the cache levels"

    def stored(self, pool: Pool, parent: Name | None, blocks: list[StoredBlock]) -> None:
        for block in blocks:
            self._check(pool, block.name, block.level)

    def updated(self, pool: Pool, name: Name, levels: tuple[int, int] | None, priority: int | None) -> None:
        if levels is not None:
            self._check(pool, name, levels[1])

    def _check(self, pool: Pool, name: Name, level: int) -> None:
        if pool.levels is None:
            self.undecided += 1
            return
        self.evaluations += 1
        if not 0 <= level < len(pool.levels):
            self.report(pool.name, name, "a cache level that does not exist", f"0 to {len(pool.levels) - 1}", level)


def _named(name: Name | None) -> str:
    return "none" if name is None else str(name)
