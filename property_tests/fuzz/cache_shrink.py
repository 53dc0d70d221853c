"""Shrinking a program of the cache layer: fewer ops (ddmin), then simpler ones, while the same law breaks first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from model.builds import Build
from model.config import EngineConfig, Scope
from model.invariants import Violation
from property_tests.fuzz.cache_world import CacheWorld
from property_tests.fuzz.ddmin import ddmin
from property_tests.fuzz.patience import patience
from property_tests.fuzz.sound import sound_base
from sim.cacheops import CacheOp, Chunk, Commit, Create, Evict, Offload
from sim.crashes import HANG, Hang, broken_by

WHOLE = 1 << 16  # tokens of a chunk that takes all that is left
BUDGET = 3000  # runs of one shrink


class Shrinker:
    """Looks for the smallest program that breaks the law of ``like`` first, in at most ``budget`` runs."""

    def __init__(self, config: EngineConfig, build: Build, like: Violation, budget: int = BUDGET) -> None:
        self.config, self.build, self.left = config, build, budget
        self.broken = broken_by(like.code, like.message)
        self.base = sound_base(build)

    def breaks(self, ops: list[CacheOp]) -> bool:
        """Whether ``ops`` break the same law; ``False`` once the budget is spent."""
        if self.left <= 0:
            return False
        self.left -= 1
        try:
            with patience():
                violation = CacheWorld(self.config, self.build).run(ops)
        except Hang:  # before the first op
            self.left = 0
            return False
        if violation is not None and violation.code == HANG:
            self.left = 0  # others would hang as well
        return violation is not None and self._alike(violation) and self._silent_below(ops)

    def _silent_below(self, ops: list[CacheOp]) -> bool:
        """Whether ``ops`` break no law of the correct build below, or there is none."""
        return self.base is None or CacheWorld(self.config, self.base).run(ops) is None

    def _alike(self, violation: Violation) -> bool:
        return broken_by(violation.code, violation.message) == self.broken

    def run(self, ops: list[CacheOp]) -> list[CacheOp]:
        """Drop and simplify by turns until neither helps."""
        if not self._silent_below(ops):
            self.base = None
        cut = self._cut(ops)
        ops = cut if self._silent_below(cut) else ops
        while True:
            before = list(ops)
            ops = self._simplified(self._dropped(ops))
            if ops == before or self.left <= 0:
                return ops

    def _cut(self, ops: list[CacheOp]) -> list[CacheOp]:
        """Nothing behind the op at which the law broke."""
        world = CacheWorld(self.config, self.build)
        for place, op in enumerate(ops, 1):
            world.apply(op)
            if world.violations:
                return ops[:place] if self._alike(world.violations[0]) else ops
        return ops

    def _dropped(self, ops: list[CacheOp]) -> list[CacheOp]:
        """The first ops are left out first: here they fill pools, and others can."""

        def left_of(backwards: tuple[CacheOp, ...]) -> tuple[CacheOp, ...] | None:
            return backwards if self.breaks(list(backwards[::-1])) else None

        return list(ddmin(tuple(ops[::-1]), left_of, lambda: self.left <= 0)[::-1])

    def _simplified(self, ops: list[CacheOp]) -> list[CacheOp]:
        for place, op in enumerate(ops):
            for simpler in _simpler(op):
                candidate = [*ops[:place], simpler, *ops[place + 1 :]]
                if simpler != op and self.breaks(candidate):
                    ops = candidate
                    break
        return ops


def _simpler(op: CacheOp) -> Iterator[CacheOp]:
    """Ops of the same kind that are easier to read, the simplest first."""
    if isinstance(op, Chunk):
        yield Chunk(op.request_id, WHOLE)
    elif isinstance(op, Commit):
        yield Commit(op.request_id)
    elif isinstance(op, Evict | Offload):
        yield op._replace(pages=0 if isinstance(op, Evict) else 1)
    elif isinstance(op, Create):
        spec = op.spec
        yield Create(replace(spec, scope=Scope(), priority=0, conversation=-1, drafts=True, max_new_tokens=1))
        yield Create(replace(spec, scope=Scope(), priority=0, conversation=-1, drafts=True))
        for place, segment in enumerate(spec.prompt):
            rest = (*spec.prompt[:place], *spec.prompt[place + 1 :])
            if rest:
                yield Create(replace(spec, prompt=rest))
            for length in (1, segment.length // 2, segment.length - 1):
                if 0 < length < segment.length:
                    shorter = (*spec.prompt[:place], segment._replace(length=length), *spec.prompt[place + 1 :])
                    yield Create(replace(spec, prompt=shorter))
        if spec.max_new_tokens > 1:
            yield Create(replace(spec, max_new_tokens=spec.max_new_tokens - 1))


def shrink(
    config: EngineConfig, build: Build, ops: list[CacheOp], like: Violation, budget: int = BUDGET
) -> tuple[CacheOp, ...]:
    """The smallest program found that breaks the law of ``like`` first on ``build``: of a crash, the same one."""
    return tuple(Shrinker(config, build, like, budget).run(list(ops)))
