"""One combination of a grid: a toy engine, a script of ops, and what came of it on one build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import cycle

from model.builds import Build
from model.config import EngineConfig, PoolSize, RequestSpec
from model.engine import Engine
from model.events import EventLog
from model.invariants import Violation
from model.ops import Dispatch, Fail, Op, Settle, Submit, World
from sim.sweep.toy import ROOMY, Toy

PATIENCE = 600  # ops within which every toy ends, or it never will
UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class Drive:
    """Let the engine run: ``ops`` dispatches and settles in the order of a server that keeps it busy, or to the end."""

    ops: int | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Settle everything in flight and dispatch nothing."""


Step = Op | Drive | Wait


@dataclass(frozen=True, slots=True)
class Case:
    """A toy engine and its script. ``accepts``: tokens committed by verify rows, in turn (the engine caps them).

    ``slack`` is how many pages each pool has above what the largest request needs alone; ``None`` leaves it roomy.
    """

    toy: Toy
    script: tuple[Step, ...]
    accepts: tuple[int, ...] = (2, 1, 9)
    slack: int | None = None


@dataclass(slots=True)
class CaseResult:
    """What one case on one build did: violations, counters that moved, laws evaluated, and its ops."""

    violations: list[Violation]
    reached: Counter[str]
    checks: int
    config: EngineConfig
    ops: list[Op]


def run_case(case: Case, build: Build, check: str = "exhaustive") -> CaseResult:
    """Run ``case`` with every law; a run that never ends is a PROGRESS violation."""
    config = case.toy.config()
    if case.slack is not None:
        config = _fitted(config, build, tuple(op.spec for op in case.script if isinstance(op, Submit)), case.slack)
    world = World(config, build, check=check, record_ops=True)
    driver = _Driver(world, case.accepts)
    driver.play(case.script)
    world.drain()
    violations = list(world.violations)
    if world.engine.has_work() and not violations:
        left = next(iter(world.engine.live), -1)
        violations.append(Violation("PROGRESS", f"{UNFINISHED} after {PATIENCE} ops", left))
    checks = sum(world.docket.evaluations.values())
    return CaseResult(violations, _reached(world, driver.host_moves), checks, config, list(world.ops or ()))


class _Driver:
    """Plays a script; between its ops a server that dispatches whenever it may and settles when it has to."""

    def __init__(self, world: World, accepts: tuple[int, ...]) -> None:
        self.world = world
        self.accepts: Iterator[int] = cycle(accepts)
        self.left = PATIENCE
        self.host_moves = 0  # pages that changed tiers, where the host tier holds more or fewer than before an op
        self._hosted = 0
        self._has_host = any(size.host_pages for size in world.config.pools.values())

    def play(self, script: tuple[Step, ...]) -> None:
        for step in script:
            if isinstance(step, Drive):
                count = self.left if step.ops is None else min(step.ops, self.left)
                for _ in range(count):
                    self.left -= 1
                    if not self._go_on():
                        break
            elif isinstance(step, Wait):
                while self.world.engine.plans:
                    self._settle()
            else:
                self._apply(step)

    def _apply(self, op: Op) -> None:
        if isinstance(op, Settle):  # the script says when, the driver what
            if self.world.engine.plans:
                self._settle()
            return
        passes = isinstance(op, Dispatch | Fail)
        if passes and self.world.engine.in_flight > self.world.config.limits.run_ahead:
            self._settle()
        self._feed(op)

    def _settle(self) -> None:
        rows = self.world.engine.plans[0].generation
        self._feed(Settle(tuple(next(self.accepts) for _ in rows)))

    def _feed(self, op: Op) -> bool:
        applied = self.world.apply(op).applied
        if self._has_host:
            hosted = sum(use.host_used for use in self.world.engine.occupancy())
            self.host_moves += abs(hosted - self._hosted)
            self._hosted = hosted
        return applied

    def _go_on(self) -> bool:
        """One op of a busy server; whether there was anything to do."""
        engine = self.world.engine
        if not engine.has_work():
            return False
        if engine.in_flight <= self.world.config.limits.run_ahead and self._feed(Dispatch()):
            return True
        if engine.plans:
            self._settle()
        return True


def _reached(world: World, host_moves: int) -> Counter[str]:
    """States that a run went through, by counters of the engine and of its pools."""
    reached: Counter[str] = Counter({name: count for name, count in asdict(world.engine.totals).items() if count})
    for use in world.engine.occupancy():
        reached[f"evicted from {use.name}"] += use.evicted
        reached["recycled pages"] += use.granted > use.device_pages
    reached["host moves"] += host_moves
    reached["refused requests"] += sum(
        isinstance(op, Submit) and op.spec.request_id not in world.engine.records for op in world.ops or ()
    )
    return +reached


def _fitted(config: EngineConfig, build: Build, specs: tuple[RequestSpec, ...], slack: int) -> EngineConfig:
    """``config`` with pools of as many pages as the largest of ``specs`` may need alone, and ``slack``."""
    engine = Engine(config, build.rules, EventLog(False))
    need: Counter[str] = Counter()
    for spec in specs:
        for name, pages in engine.pages_needed(spec).items():
            need[name] = max(need[name], pages)
    if build.rules.layout.fused:
        need["target"] = max(need.values())  # fused pages are the target's
    pools = {
        name: PoolSize(need[name] + slack if need[name] else ROOMY, size.host_pages)
        for name, size in config.pools.items()
    }
    return replace(config, pools=pools)
