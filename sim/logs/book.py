"""What a log says is stored: the checker's own ledger of blocks, one for each pool that an engine tells about."""

from __future__ import annotations

from typing import NamedTuple

Name = int | str  # how an engine names a block


class StoredBlock(NamedTuple):
    """A block in an event that stores it.

    ``content`` is a digest of everything that its name has to stand for (parent, tokens, adapter, salt), ``None`` where
    the event leaves that open. ``tokens`` is how many it holds, -1 where that is open. Levels count from the GPU's, 0.
    """

    name: Name
    parent: Name | None
    content: int | None
    tokens: int
    level: int = 0
    priority: int | None = None


class Block:
    """All that a log told about one name; ``copies`` are stored now, ``children`` is how many names hang below it."""

    __slots__ = ("children", "content", "copies", "era", "level", "line", "parent", "tokens")

    def __init__(self, stored: StoredBlock, line: int, era: int) -> None:
        self.parent = stored.parent
        self.content = stored.content
        self.tokens = stored.tokens
        self.level = stored.level
        self.copies = 0
        self.children = 0
        self.line = line
        self.era = era


class Rank:
    """One numbered stream of events. ``whole``: nothing that happened before this point is missing from the log."""

    def __init__(self, name: str, whole: bool) -> None:
        self.name = name
        self.whole = whole
        self.last: int | None = None  # the number of its last event
        self.windows: set[int] = set()  # that pools were created with
        self.pools: list[Pool] = []

    def lose(self) -> None:
        """Events are missing here: what was stored is not known any more, what names stand for is."""
        self.whole = False
        for pool in self.pools:
            pool.forget()


class Pool:
    """The blocks of one rank, window, layer group or medium.

    ``full``: its layers attend to everything, so a block never outlives its parent; ``None`` where the log does not
    tell. ``levels`` are the blocks of each cache level where the log tells them.
    """

    def __init__(self, rank: Rank, name: str, full: bool | None, window: int | None = None) -> None:
        self.rank, self.name, self.full, self.window = rank, name, full, window
        self.levels: list[int] | None = None
        self.roomy = True  # ``levels`` are this pool's own
        self.block_size: int | None = None  # in tokens, where events tell it
        self.known: dict[Name, Block] = {}
        self.at_level: dict[int, int] = {}
        self.whole = rank.whole  # nothing that this pool did is missing from the log, or it was cleared since
        self.stored = self.most = self.removed = 0
        self.orphaned: list[Name] = []
        self.era = 0  # of a whole stretch of the log; what was learned in an older one may have changed unseen
        rank.pools.append(self)

    def here(self, name: Name) -> bool | None:
        """Whether a block is stored; ``None`` where the log leaves that open."""
        block = self.known.get(name)
        if block is not None and block.era == self.era:
            return block.copies > 0
        return False if self.whole else None

    def store(self, blocks: list[StoredBlock], line: int) -> None:
        """Enter blocks that an event stores."""
        known, era = self.known, self.era
        for stored in blocks:
            block = known.get(stored.name)
            if block is None:
                known[stored.name] = block = Block(stored, line, era)
            elif block.era != era:
                block.era, block.copies, block.children = era, 0, 0
            if block.content is None:
                block.content = stored.content
            if block.copies == 0:
                block.parent, block.level = stored.parent, stored.level
                if stored.tokens >= 0:
                    block.tokens = stored.tokens
                self.stored += 1
                self.at_level[stored.level] = self.at_level.get(stored.level, 0) + 1
                parent = known.get(stored.parent) if stored.parent is not None else None
                if parent is not None and parent.era == era:
                    parent.children += 1
            block.copies += 1
        self.most = max(self.most, self.stored)

    def remove(self, name: Name) -> None:
        """Strike out one copy of a block, if one is known."""
        block = self.known.get(name)
        if block is None or block.era != self.era or not block.copies:
            return
        block.copies -= 1
        self.removed += 1
        if block.copies:
            return
        self.stored -= 1
        self.at_level[block.level] -= 1
        parent = self.known.get(block.parent) if block.parent is not None else None
        if parent is not None and parent.era == self.era:
            parent.children -= 1

    def move(self, name: Name, level: int) -> None:
        """Note that a block is at another cache level."""
        block = self.known.get(name)
        if block is None or block.era != self.era or not block.copies:
            return
        self.at_level[block.level] -= 1
        self.at_level[level] = self.at_level.get(level, 0) + 1
        block.level = level

    def clear(self) -> None:
        """Strike out every block."""
        for block in self.known.values():
            block.copies = block.children = 0
        self.removed += self.stored
        self.stored = 0
        self.at_level = {}
        self.orphaned = []
        self.whole = True

    def forget(self) -> None:
        """Events are missing: nothing is known to be stored, nor not to be."""
        self.whole = False
        self.era += 1
        self.stored = 0
        self.at_level = {}
        self.orphaned = []
