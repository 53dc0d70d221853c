"""A program of the cache layer applied again: what ``kvtwin run --ops`` does with one."""

from __future__ import annotations

from model.builds import Build
from property_tests.fuzz.cache_world import CacheWorld
from property_tests.fuzz.patience import patience
from scenarios.errors import InputError
from sim.cacheops import CacheProgram
from sim.gathering import RECORDED
from sim.result import RunResult

NAME = "cache layer"
CHECKS = {"incremental": "touched", "exhaustive": "full"}
_NO_DIGEST = "not computed (no engine ran)"


def replay(program: CacheProgram, build: Build, check: str) -> RunResult:
    """Apply the ops of ``program`` until a law breaks; ``check`` is ``incremental`` or ``exhaustive``.

    A program that does not end breaks the law HANG. The result has no records and no timings: a request of the cache
    layer is nobody's. A skipped op is a note.
    Raises InputError where the engine of the program cannot have ``build``.
    """
    try:
        world = CacheWorld(program.config, build, CHECKS[check])
    except (ValueError, KeyError) as error:  # each field is well formed, but they do not go together on this build
        problem = f"expected a configuration that {build.name} can run, found: {error}"
        raise InputError(NAME, 0, "config", problem) from error
    with patience():
        world.run(program.ops)
    notes = [f"{world.steps} ops of the cache layer were applied, without a scheduler"]
    if world.skips:
        notes.append(f"{world.skips} ops were not applied: they are illegal where they stand")
    return RunResult(
        scenario=NAME,
        build=build.name,
        seed=program.seed,
        check=check,
        config=world.config,
        acceptance="recorded",
        acceptance_mode=RECORDED,
        records=[],
        timings=[],
        totals=world.engine.totals,
        occupancy=[],
        violations=list(world.violations),
        checked=dict(sorted(world.docket.evaluations.items())),
        decision_digest=_NO_DIGEST,
        memory_digest=_NO_DIGEST,
        missed=[],
        notes=notes,
        duration_ns=0,
        device_busy_ns=0,
    )
