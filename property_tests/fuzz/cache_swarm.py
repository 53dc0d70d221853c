"""The seeded swarm driver of the cache layer: each program uses some kinds of ops more than others, or not at all.

A kind that is not needed to get anywhere is off in 30 % of the programs, and weighs 1, 3 or 10 in the rest. Whom an
op is for is drawn among those for whom it is legal, so that steps are not wasted; what comes out is a plain list of
ops that :class:`CacheWorld` runs again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from model.builds import Build
from model.config import EngineConfig, PoolSize, RequestSpec
from model.geometry import cdiv
from model.request import CONTEXT
from model.sequence import ACTIVE
from property_tests.fuzz.cache_entry import Entry
from property_tests.fuzz.cache_world import CacheWorld
from property_tests.fuzz.choices import Choices, Seeded
from property_tests.fuzz.generate.engine import engine
from property_tests.fuzz.generate.mix import Mix
from property_tests.fuzz.generate.workload import Edges, spec
from sim.cacheops import (
    CacheOp,
    Chunk,
    Claim,
    Close,
    Commit,
    Create,
    Evict,
    Load,
    Offload,
    Resume,
    Revert,
    Row,
    Suspend,
)
from sim.crashes import Hang
from sim.garbage import rare_collections

NEEDED = (Create, Claim, Chunk, Commit)
OTHERS = (Row, Revert, Resume, Suspend, Close, Evict, Offload, Load)
WEIGHTS = (3, 1, 10)
OFF = 30  # percent of the other kinds that one program does without
LENGTHS = (80, 160, 320)
LIVE = 6  # requests at once
KEPT, OFFLOADED = 9, 6  # pages that an eviction leaves are below the first; an offload takes up to so many
MIX = Mix()


def cache_config(choices: Choices, mix: Mix = MIX) -> EngineConfig:
    """A toy engine whose pools are a few pages above what one request needs, or about twice as large."""
    config = engine(choices, mix)
    edges, drafts = Edges.of(config), config.drafter.drafts
    longest = edges.longest + 20 + config.limits.extra_tokens + 3 * drafts
    layers = len(config.target)
    pages = cdiv(longest, config.limits.page_size)
    pools = {}
    for name, size in config.pools.items():
        more = choices.below(pages) if choices.chance(mix.tight) else pages + choices.below(pages)
        pools[name] = PoolSize(pages * (layers if name == "target" else 1) // 2 + more + 2, size.host_pages)
    return replace(config, pools=pools, asynchronous_copies=False)


class CacheSwarm:
    """One program in the making: draws ops for ``world`` and applies them."""

    def __init__(self, world: CacheWorld, choices: Choices, mix: Mix = MIX) -> None:
        self.world, self.choices, self.mix = world, choices, mix
        self.specs: list[RequestSpec] = []
        kinds: list[type[CacheOp]] = list(NEEDED)
        kinds += [kind for kind in OTHERS if not choices.chance(OFF)]
        if not any(size.host_pages for size in world.config.pools.values()):
            kinds = [kind for kind in kinds if kind is not Offload and kind is not Load]
        self.kinds = kinds
        self._table = [kind for kind in kinds for _ in range(choices.pick(WEIGHTS))]
        self.pools = list(world.twin.pools.values())
        self.width = 1 + world.config.drafter.drafts
        self.page = world.config.limits.page_size

    def run(self, length: int) -> bool:
        """Draw and apply ``length`` ops, fewer if a law breaks, then drain; whether every law held."""
        world, docket = self.world, self.world.docket
        apply, draw, pick, table = world.apply, self.draw, self.choices.pick, self._table
        for _ in range(length):
            apply(draw(pick(table)))
            if docket.violations:
                return False
        world.drain()
        return not docket.violations

    def draw(self, kind: type[CacheOp]) -> CacheOp:
        """An op of ``kind`` for somebody for whom it is legal; where there is nobody, what brings somebody on."""
        choices = self.choices
        entries = list(self.world.entries.values())
        if kind is Evict or kind is Offload:
            return self._make_room(kind) or self._on(entries)
        if kind is Create:
            return self._create() if len(entries) < LIVE else self._on(entries)
        if kind is Claim and not self.world.twin.has_room():
            return self._on(entries)
        fits = _FITS.get(kind)
        chosen = entries if fits is None else [entry for entry in entries if fits(entry)]
        return self._for(kind, choices.pick(chosen)) if chosen else self._on(entries)

    def _for(self, kind: type[CacheOp], entry: Entry) -> CacheOp:
        choices, number = self.choices, entry.request.request_id
        if kind is Chunk:
            rest = entry.request.context_length - entry.request.cursor
            return Chunk(number, (rest, self.page, 1 + choices.below(rest))[choices.below(3)])
        if kind is Commit:
            return Commit(number, 1 + choices.below(self.width))
        return kind(number)  # type: ignore[call-arg]

    def _make_room(self, kind: type[CacheOp]) -> CacheOp | None:
        """An eviction or an offload from a pool that has pages for it; ``None`` where none has."""
        evicts = kind is Evict
        room = [(pool, pool.droppable if evicts else pool.host_pages and pool.obtainable()) for pool in self.pools]
        room = [(pool, pages) for pool, pages in room if pages]
        if not room:
            return None
        pool, pages = self.choices.pick(room)
        if evicts:
            return Evict(pool.name, self.choices.below(min(pages, KEPT)))
        return Offload(pool.name, 1 + self.choices.below(min(pages, OFFLOADED)))

    def _on(self, entries: list[Entry]) -> CacheOp:
        """The next step of somebody's life."""
        if len(entries) < 2:
            return self._create()
        if not self.world.twin.has_room():
            entries = [entry for entry in entries if entry.claimed]
        return self._for(*next_step(self.choices.pick(entries)))

    def _create(self) -> CacheOp:
        request = spec(self.choices, self.mix, self.world.config, self.specs)
        self.specs.append(request)
        return Create(request)


def next_step(entry: Entry) -> tuple[type[CacheOp], Entry]:
    """The kind of op that brings a request nearer to its end."""
    if not entry.claimed:
        return Claim, entry
    if entry.end >= 0 or entry.request.grown:
        return Commit, entry
    return (Chunk if entry.request.state is CONTEXT else Row), entry


def _suspended(entry: Entry) -> bool:
    return entry.claimed and entry.sequence.status is not ACTIVE


_FITS: dict[type[CacheOp], Callable[[Entry], bool]] = {
    Claim: lambda entry: not entry.claimed,
    Chunk: lambda entry: entry.claimed and entry.end < 0 and entry.request.state is CONTEXT,
    Row: lambda entry: entry.may_step,
    Revert: lambda entry: entry.end >= 0 or bool(entry.request.grown),
    Commit: lambda entry: entry.end >= 0 or bool(entry.request.grown),
    Resume: _suspended,
    Load: _suspended,
    Suspend: lambda entry: entry.claimed and entry.end < 0 and entry.sequence.status is ACTIVE,
}


def play_cache(choices: Choices, build: Build, mix: Mix = MIX, check: str = "touched") -> CacheWorld:
    """Generate one program and run it on ``build``, up to the first broken law."""
    world = CacheWorld(cache_config(choices, mix), build, check)
    with rare_collections():
        try:
            CacheSwarm(world, choices, mix).run(choices.pick(LENGTHS))
        except Hang as hang:  # between two ops
            world.end(hang)
    return world


def swarm_world(seed: int, build: Build, check: str = "touched") -> CacheWorld:
    """The world in which the program of ``seed`` has run."""
    return play_cache(Seeded(seed), build, MIX, check)
