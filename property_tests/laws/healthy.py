"""A small world in good health in the middle of its work, and the handles that a test needs to spoil it."""

from __future__ import annotations

from model.builds import BUILDS
from model.config import Drafter, EngineConfig, Limits, PoolSize, PublishPolicy, RequestSpec
from model.geometry import Lifecycle
from model.invariants import Violation
from model.ops import Dispatch, Settle, Submit, World
from model.pages import PagePool
from model.request import Request
from model.sequence import SequenceCache
from model.table import Table
from model.tokens import Segment

PAGE = 4
PROMPT = 18  # tokens: four pages and a half
FIRST, SECOND = 0, 1  # request ids


def healthy(
    build: str = "paired-22",
    check: str = "exhaustive",
    *,
    kind: str = "dspark",
    window: int | None = 8,
    host: int = 0,
    pages: int = 40,
    run_ahead: int = 1,
) -> World:
    """Two requests that share 12 tokens, both past their prompts, with nothing in flight and no violation."""
    config = EngineConfig(
        target=(Lifecycle("target", "target", "target"),),
        draft=(Lifecycle("draft", "draft", "draft", window),),
        drafter=Drafter(kind, 3, window),
        limits=Limits(PAGE, 4, 32, 128, PAGE, extra_tokens=4, run_ahead=run_ahead, stall_passes=10),
        pools={"target": PoolSize(pages, host), "draft": PoolSize(pages, host)},
        policy=PublishPolicy.ALL_REUSABLE,
        vocabulary=4096,
    )
    world = World(config, BUILDS[build], check=check)
    for request_id in (FIRST, SECOND):
        prompt = (Segment(1, 12), Segment(100 + request_id, PROMPT - 12))
        assert world.apply(Submit(RequestSpec(request_id, prompt, 24, 900 + request_id))).applied
    while any(request.generated < 3 for request in world.engine.live.values()):
        step(world)
    assert world.violations == []
    return world


def step(world: World, tokens: int = 1) -> None:
    """One iteration from dispatch to settle; each generation row commits ``tokens``."""
    assert world.apply(Dispatch()).applied
    assert world.apply(Settle((tokens,) * len(world.engine.plans[0].generation))).applied


def finish(world: World) -> None:
    """Run on until no work is left (or for as long as a toy may need), then drain."""
    engine = world.engine
    for _ in range(400):
        if not engine.has_work():
            break
        waits = engine.in_flight > world.config.limits.run_ahead or not world.apply(Dispatch()).applied
        if waits and engine.plans:
            world.apply(Settle((2,) * len(engine.plans[0].generation)))
    world.drain()


def request_of(world: World, request_id: int = FIRST) -> Request:
    """The live request with this id."""
    return world.engine.live[request_id]


def pool_of(world: World, name: str = "target") -> PagePool:
    """The pool with this name."""
    return world.engine.twin.pools[name]


def sequence_of(world: World, request_id: int = FIRST, pool: str = "target") -> SequenceCache:
    """The request's sequence in the manager that uses ``pool``."""
    manager = next(manager for manager in world.engine.twin.managers if pool in {p.name for p in manager.pools})
    return manager.sequences[request_of(world, request_id).owner]


def table_of(world: World, request_id: int = FIRST, pool: str = "target") -> Table:
    """The request's block table in ``pool``."""
    column = next(column for column in world.engine.twin.columns if column.pool.name == pool)
    return sequence_of(world, request_id, pool).tables[column.column]


def found(world: World, code: str) -> Violation:
    """The first violation of ``code``; fails where there is none."""
    violations = [violation for violation in world.violations if violation.code == code]
    assert violations, f"{code} said nothing; {[violation.code for violation in world.violations]} did"
    return violations[0]
