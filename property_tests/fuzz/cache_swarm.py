"""The seeded swarm driver of the cache layer: each program uses some kinds of ops more than others, or not at all.

A kind that is not needed to get anywhere is off in 30 % of the programs, and weighs 1, 3 or 10 in the rest. Whom an
op is for is drawn among those for whom it is legal, so that steps are not wasted; what comes out is a plain list of
ops that :class:`CacheWorld` runs again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from model.builds import Build
from model.config import EngineConfig, PoolSize, RequestSpec, Scope
from model.geometry import cdiv
from model.request import CONTEXT, GENERATION
from model.tokens import Segment
from property_tests.fuzz.cache_world import CacheWorld, Entry
from property_tests.laws.worlds import random_config
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

NEEDED = (Create, Claim, Chunk, Commit)
OTHERS = (Row, Revert, Resume, Suspend, Close, Evict, Offload, Load)
WEIGHTS = (1, 3, 10)
OFF = 0.3
LENGTHS = (40, 80, 160)
LIVE = 6  # requests at once


def small_config(rng: Random) -> EngineConfig:
    """A toy engine whose pools are a few pages above what one request needs."""
    config = random_config(rng)
    limits = replace(config.limits, max_batch=LIVE, max_seq_len=64)
    longest = limits.max_seq_len + limits.extra_tokens + 3 * config.drafter.drafts + 2
    pages = cdiv(longest, limits.page_size) + 1
    pools = {}
    for name, size in config.pools.items():
        share = pages if rng.random() < 0.5 else cdiv(pages, 2)
        pools[name] = PoolSize(share + int(rng.random() * pages), size.host_pages)
    return replace(config, limits=limits, pools=pools, asynchronous_copies=False)


def small_spec(rng: Random, request_id: int, page: int) -> RequestSpec:
    """A request whose prompt shares its start with others up to about a page's edge, and parts there."""
    chance = rng.random()
    shared = int(rng.random() * 4) * page + (int(rng.random() * 3) - 1 if chance < 0.5 else int(rng.random() * page))
    own = 1 + int(rng.random() * (3 * page))
    prompt = (Segment(int(rng.random() * 2), shared),) if shared > 0 else ()
    prompt += (Segment(100 + int(rng.random() * 3), own),)
    scope = Scope() if rng.random() < 0.9 else Scope(salt="other")
    drafts = rng.random() < 0.93
    output = 1 + int(rng.random() * 12)
    priority = 0 if chance < 0.8 else 1
    return RequestSpec(
        request_id, prompt, output, 5000 + request_id, int(rng.random() * 3) - 1, scope, priority, drafts
    )


class CacheSwarm:
    """One program in the making: draws ops for ``world`` and applies them."""

    def __init__(self, world: CacheWorld, rng: Random) -> None:
        self.world, self.rng = world, rng
        self.created = 0
        kinds: list[type[CacheOp]] = list(NEEDED)
        kinds += [kind for kind in OTHERS if rng.random() >= OFF]
        if not any(size.host_pages for size in world.config.pools.values()):
            kinds = [kind for kind in kinds if kind not in (Offload, Load)]
        self.kinds = kinds
        self.weights = [WEIGHTS[int(rng.random() * 3)] for _ in kinds]
        self.pools = list(world.twin.pools)
        self.width = 1 + world.config.drafter.drafts
        self.page = world.config.limits.page_size

    def run(self, length: int) -> bool:
        """Draw and apply up to ``length`` ops, then drain; whether every law held."""
        world, docket = self.world, self.world.docket
        apply, draw = world.apply, self.draw
        for kind in self.rng.choices(self.kinds, self.weights, k=length):
            apply(draw(kind))
            if docket.violations:
                return False
        world.drain()
        return not docket.violations

    def draw(self, kind: type[CacheOp]) -> CacheOp:
        """An op of ``kind`` for somebody for whom it is legal; where there is nobody, what brings somebody on."""
        rng, world = self.rng, self.world
        if kind is Evict or kind is Offload:
            pool = self.pools[int(rng.random() * len(self.pools))]
            return kind(pool, int(rng.random() * 6))
        entries = list(world.entries.values())
        if kind is Create:
            return self._create() if len(entries) < LIVE else self._on(entries)
        fits = _FITS.get(kind)
        chosen = entries if fits is None else [entry for entry in entries if fits(entry)]
        if not chosen:
            return self._on(entries)
        return self._for(kind, chosen[int(rng.random() * len(chosen))])

    def _for(self, kind: type[CacheOp], entry: Entry) -> CacheOp:
        rng, number = self.rng, entry.request.request_id
        if kind is Chunk:
            rest = entry.request.context_length - entry.request.cursor
            chance = rng.random()
            tokens = rest if chance < 0.3 else self.page if chance < 0.6 else 1 + int(rng.random() * rest)
            return Chunk(number, tokens)
        if kind is Commit:
            return Commit(number, 1 + int(rng.random() * self.width))
        return kind(number)  # type: ignore[call-arg]

    def _on(self, entries: list[Entry]) -> CacheOp:
        """The next step of somebody's life."""
        if len(entries) < 2:
            return self._create()
        entry = entries[int(self.rng.random() * len(entries))]
        if not entry.claimed:
            return Claim(entry.request.request_id)
        if entry.end >= 0 or entry.request.grown:
            return self._for(Commit, entry)
        if entry.request.state is CONTEXT:
            return self._for(Chunk, entry)
        return Row(entry.request.request_id)

    def _create(self) -> CacheOp:
        self.created += 1
        return Create(small_spec(self.rng, self.created, self.page))


_FITS: dict[type[CacheOp], Callable[[Entry], bool]] = {
    Claim: lambda entry: not entry.claimed,
    Chunk: lambda entry: entry.claimed and entry.end < 0 and entry.request.state is CONTEXT,
    Row: lambda entry: entry.request.state is GENERATION,
    Revert: lambda entry: entry.end >= 0 or bool(entry.request.grown),
    Commit: lambda entry: entry.end >= 0 or bool(entry.request.grown),
    Resume: lambda entry: entry.claimed,
    Load: lambda entry: entry.claimed,
    Suspend: lambda entry: entry.claimed and entry.end < 0,
}


def swarm_world(seed: int, build: Build, check: str = "touched") -> CacheWorld:
    """The world in which program ``seed`` has run, up to the first broken law."""
    rng = Random(seed)
    config = small_config(rng)
    world = CacheWorld(config, build, check)
    CacheSwarm(world, rng).run(LENGTHS[int(rng.random() * len(LENGTHS))])
    return world
