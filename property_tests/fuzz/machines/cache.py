"""The cache layer as a state machine: a rule for each op, the laws of the layer after each."""

from __future__ import annotations

from hypothesis.stateful import initialize, rule

from property_tests.fuzz.cache_swarm import CacheSwarm, cache_config
from property_tests.fuzz.cache_world import CacheWorld
from property_tests.fuzz.choices import Bytes
from property_tests.fuzz.machines.base import CODES, STARTS, Machine, Packed
from sim.cacheops import (
    CacheOp,
    CacheProgram,
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


class CacheMachine(Machine):
    """Every law in full after every rule. Rules are named like the ops.

    Whom an op is for is a place among those for whom it is legal, modulo their number; where there is nobody, the rule
    takes the next step of somebody's life.
    """

    world: CacheWorld | None = None

    @initialize(start=STARTS)
    def open(self, start: bytes) -> None:
        """An engine's managers with pools of a few pages, and two requests."""
        choices = Bytes(start)
        self.world = world = CacheWorld(cache_config(choices, self.mix), self.build, "full")
        self.swarm = CacheSwarm(world, choices, self.mix)
        for _ in range(2):
            self.step(self.swarm.draw(Create))

    def program(self) -> CacheProgram | None:
        """What was applied so far."""
        return self._applied(self.world) if self.world is not None else None

    def _applied(self, world: CacheWorld) -> CacheProgram:
        return CacheProgram(self.text, self.number, world.config, tuple(world.ops))

    def step(self, op: CacheOp) -> None:
        """Apply an op; a law that breaks ends the example."""
        world = self.swarm.world
        world.apply(op)
        if world.violations:
            self.fail(world.violations[0], self._applied(world))

    def draw(self, kind: type[CacheOp], code: bytes) -> None:
        """An op of ``kind`` by the choices in ``code``."""
        self.swarm.choices = Packed(code)
        self.step(self.swarm.draw(kind))

    @rule(code=CODES)
    def create(self, code: bytes) -> None:
        self.draw(Create, code)

    @rule(code=CODES)
    def claim(self, code: bytes) -> None:
        self.draw(Claim, code)

    @rule(code=CODES)
    def resume(self, code: bytes) -> None:
        self.draw(Resume, code)

    @rule(code=CODES)
    def chunk(self, code: bytes) -> None:
        self.draw(Chunk, code)

    @rule(code=CODES)
    def row(self, code: bytes) -> None:
        self.draw(Row, code)

    @rule(code=CODES)
    def revert(self, code: bytes) -> None:
        self.draw(Revert, code)

    @rule(code=CODES)
    def commit(self, code: bytes) -> None:
        self.draw(Commit, code)

    @rule(code=CODES)
    def suspend(self, code: bytes) -> None:
        self.draw(Suspend, code)

    @rule(code=CODES)
    def close(self, code: bytes) -> None:
        self.draw(Close, code)

    @rule(code=CODES)
    def evict(self, code: bytes) -> None:
        self.draw(Evict, code)

    @rule(code=CODES)
    def offload(self, code: bytes) -> None:
        self.draw(Offload, code)

    @rule(code=CODES)
    def load(self, code: bytes) -> None:
        self.draw(Load, code)

    def ended(self) -> None:
        """Everybody leaves; nothing may stay held."""
        world = self.world
        if world is None:
            return
        silent = not world.violations and not self.over
        if silent:
            world.drain()
        tally = self.sums
        self.count()
        tally.steps += world.steps
        tally.skips += world.skips
        tally.evaluations.update(world.docket.evaluations)
        tally.features.update(world.features)
        if silent and world.violations:
            self.fail(world.violations[0], self._applied(world))
