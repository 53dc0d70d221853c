"""Shards of a campaign on the machines of hypothesis, and on the swarm of the cache layer.

Hypothesis numbers its examples itself: those of a machine's shard are fixed by the order and by where the shard begins
and how long it is, and all of them are on one build. It generates and we shrink: delta debugging on the op list is
faster and leaves less.
"""

from __future__ import annotations

import time
from functools import cache

from model.builds import Build
from model.invariants import Violation
from property_tests.fuzz.cache_shrink import shrink as shrink_cache
from property_tests.fuzz.cache_swarm import play_cache
from property_tests.fuzz.cache_world import CacheWorld
from property_tests.fuzz.choices import Seeded
from property_tests.fuzz.database import open_database
from property_tests.fuzz.engine_shards import Hunt, mix_of, seed_of
from property_tests.fuzz.generate.mix import Mix, mix_for
from property_tests.fuzz.machines.base import STEPS, Broken, Machine, machine_on, run_machine
from property_tests.fuzz.machines.cache import CacheMachine
from property_tests.fuzz.machines.engine import EngineMachine
from property_tests.fuzz.machines.sim import SimMachine
from property_tests.fuzz.oracle_feed import ORACLE
from property_tests.fuzz.order import SHRUNK, Order
from property_tests.fuzz.patience import patience
from property_tests.fuzz.shrink import shrink
from sim.cacheops import CacheProgram
from sim.crashes import HANG, Hang
from sim.findings import Failure, Program, ShardResult
from sim.rulespec import find

KINDS: dict[str, type[Machine]] = {"cache": CacheMachine, "engine": EngineMachine, "sim": SimMachine}
RULES = {"cache": STEPS, "engine": STEPS, "sim": 14}  # of one example in the quick profile
LONGER = {"quick": 1, "nightly": 2, "deep": 4}
SAVED = 100  # failing examples of a database that are played at most
BLOCK = 16  # examples of a shard that is not cut: builds rotate from one to the next


@cache
def _build(text: str) -> Build:
    return find(text)


def run_shard(order: Order, first: int, count: int, deadline: float | None = None) -> ShardResult:
    """Run the examples ``first .. first + count`` of ``order``, until ``deadline`` (``time.monotonic``) at most."""
    began = time.process_time()
    result = ShardResult()
    if order.driver == "swarm":
        _swarm(order, first, count, deadline, result)
    elif deadline is None or time.monotonic() < deadline:
        _machine(order, first, count, deadline, result)
    result.seconds = time.process_time() - began
    return result


def _swarm(order: Order, first: int, count: int, deadline: float | None, result: ShardResult) -> None:
    """Programs of the cache layer by their seeds."""
    mix, laws = mix_of(order.profile, order.focus), dict[tuple[str, str], int]()
    for number in range(first, first + count):
        if deadline is not None and time.monotonic() >= deadline:
            return
        text, seed = order.builds[number % len(order.builds)], seed_of(order.seed, number)
        try:
            with patience():
                world = play_cache(Seeded(seed), _build(text), mix)
        except Hang as hang:  # before its first op
            result.hung = str(hang)
            return
        result.examples += 1
        result.steps += world.steps
        result.skips += world.skips
        result.evaluations.update(world.docket.evaluations)
        result.features.update(world.features)
        if world.violations:
            program = CacheProgram(text, seed, world.config, tuple(world.ops))
            _add(result, laws, order.driver, program, world.violations[0])


def _machine(order: Order, first: int, count: int, deadline: float | None, result: ShardResult) -> None:
    """Examples of a machine: hypothesis stops at a broken law, and the rest of them is another run of it.

    What a database saved comes before them and is none of them. The seed of a failure is that of its run: only the
    program repeats it by itself.
    """
    kind, laws = KINDS[order.machine], dict[tuple[str, str], int]()
    text, mix = order.builds[first // BLOCK % len(order.builds)], mix_of(order.profile, order.focus)
    database, steps = open_database(order.database), LONGER[order.profile] * RULES[order.machine]
    if database is not None and first < BLOCK * len(order.builds):  # once for each build
        machine = machine_on(kind, _build(text), text, mix, seed_of(order.seed, first))
        try:
            broken = run_machine(machine, 0, SAVED, steps=steps, database=database, saved=True)
        except Hang:  # before there was a program: an example of its own tells of it
            broken = None
        if broken is not None:
            _add(result, laws, order.driver, broken.program, broken.violation)
    while result.examples < count and (deadline is None or time.monotonic() < deadline):
        number = seed_of(order.seed, first + result.examples)
        machine = machine_on(kind, _build(text), text, mix, number)
        left = count - result.examples
        broken, tally = None, machine.tally
        try:
            broken = run_machine(machine, number, left, steps=steps, database=database)
        except Hang as hang:  # before there was a program
            result.hung = str(hang)
        ended = min(left - 1, tally.examples) if result.hung else left
        result.examples += ended if broken is None else min(left, max(1, tally.examples))
        result.steps += tally.steps
        result.skips += tally.skips
        result.evaluations.update(tally.evaluations)
        result.features.update(tally.features)
        if broken is not None:
            _add(result, laws, order.driver, broken.program, broken.violation)
        if result.hung:
            return


def _add(
    result: ShardResult, laws: dict[tuple[str, str], int], driver: str, program: Program, violation: Violation
) -> None:
    alike = laws[program.build, violation.code] = laws.get((program.build, violation.code), 0) + 1
    result.failures.append(failure_of(driver, program, violation, alike <= SHRUNK))


def failure_of(driver: str, program: Program, violation: Violation, shrinks: bool = True) -> Failure:
    """The failure of a program, whose smallest form is looked for if ``shrinks``."""
    build = _build(program.build)
    if not shrinks or violation.code == HANG:  # each candidate would hang
        return Failure(driver, program.seed, program, program, violation)
    if isinstance(program, CacheProgram):
        ops = shrink_cache(program.config, build, list(program.ops), violation)
        minimal = CacheProgram(program.build, program.seed, program.config, ops)
        found = CacheWorld(program.config, build).run(ops)
        return Failure(driver, program.seed, program, minimal, found or violation)
    shrunk = shrink(program, build, consult=violation.code == ORACLE)
    if shrunk is None:
        return Failure(driver, program.seed, program, program, violation)
    return Failure(driver, program.seed, program, shrunk.trace, shrunk.violation)


def hunt(
    build: Build,
    machine: str,
    budget: int,
    seed: int = 0,
    focus: tuple[str, ...] = (),
    shrinks: bool = False,
    *,
    driver: str = "machine",
) -> Hunt:
    """Look for what is wrong with ``build`` in at most ``budget`` examples of a machine, or of the cache's swarm.

    ``focus`` names the rules under test. With ``shrinks`` the failure is shrunk; the seconds are those before.
    """
    began = time.process_time()
    mix: Mix = mix_for(focus)
    if driver == "swarm":
        for number in range(budget):
            with patience():
                world = play_cache(Seeded(seed_of(seed, number)), build, mix)
            if world.violations:
                program = CacheProgram(build.name, seed_of(seed, number), world.config, tuple(world.ops))
                return _caught(build, driver, number + 1, began, Broken(world.violations[0], program), shrinks)
        return _caught(build, driver, budget, began, None, shrinks)
    kind = machine_on(KINDS[machine], build, build.name, mix, seed)
    broken = run_machine(kind, seed, budget, steps=RULES[machine])
    return _caught(build, driver, min(budget, kind.tally.examples), began, broken, shrinks)


def _caught(build: Build, driver: str, examples: int, began: float, broken: Broken | None, shrinks: bool) -> Hunt:
    seconds = time.process_time() - began
    failure = failure_of(driver, broken.program, broken.violation, shrinks) if broken is not None else None
    return Hunt(build.name, driver, examples, seconds, failure)
