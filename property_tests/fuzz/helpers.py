"""A small driver for the tests of campaigns: random worlds in place of a fuzzer, and shards that go wrong on purpose.

Its examples are those of ``property_tests/laws/worlds.py``; a failure is cut at the op that broke the law.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from model.builds import BUILDS
from model.faults import resolve_build
from model.ops import World
from property_tests.fuzz.blind import Task, hunt
from property_tests.fuzz.order import Order
from property_tests.laws import worlds
from sim.findings import Failure, Hunted, ShardResult
from sim.optrace import Trace

ONCE = "KVTWIN_TEST_ONCE"  # names a file that the first process to die creates
STATES = ("partial_claims", "branch_windows", "suspensions", "preemptions", "skipped_forwards", "failed_forwards")


def run_shard(order: Order, first: int, count: int, deadline: float | None) -> ShardResult:
    """Examples ``first .. first + count - 1``, builds in rotation."""
    result = ShardResult()
    began = time.process_time()
    for number in range(first, first + count):
        if deadline is not None and time.monotonic() >= deadline:
            break
        _run_example(order, number, result)
    result.seconds = time.process_time() - began
    return result


def _run_example(order: Order, number: int, result: ShardResult) -> None:
    build = resolve_build(order.builds[number % len(order.builds)])
    seed = order.seed + number // len(order.builds)
    sound = build.name if build.name in BUILDS else "unified"  # worlds are sized by a build that is sound
    world, driver = worlds.random_world(seed, sound, tight=True, check="incremental")
    driver.world = world = World(world.config, build, check="incremental", record_ops=True)
    for _ in range(60):
        driver.turn()
        if world.violations:
            break
    assert world.ops is not None
    result.examples += 1
    result.steps += len(world.ops)
    result.skips += world.skips
    result.evaluations.update(world.docket.evaluations)
    totals = world.totals()
    result.features.update({name: count for name in STATES if (count := getattr(totals, name))})
    if world.violations:
        trace = Trace("walk", build.name, seed, "incremental", world.config, tuple(world.ops))
        result.failures.append(Failure("walk", number, trace, trace, world.violations[0]))


def crashing_at_13(order: Order, first: int, count: int, deadline: float | None) -> ShardResult:
    """As :func:`run_shard`, with a defect of the harness that example 13 meets."""
    if first <= 13 < first + count:
        raise ZeroDivisionError("a defect of the harness")
    return run_shard(order, first, count, deadline)


def dying_once(order: Order, first: int, count: int, deadline: float | None) -> ShardResult:
    """As :func:`run_shard`; the process of the first shard that begins behind example 20 is killed."""
    if first > 20:
        try:
            Path(os.environ[ONCE]).touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return run_shard(order, first, count, deadline)


def dying_at_2(order: Order, first: int, count: int, deadline: float | None) -> ShardResult:
    """As :func:`run_shard`; example 2 kills its process each time."""
    if first <= 2 < first + count:
        os.kill(os.getpid(), signal.SIGKILL)
    return run_shard(order, first, count, deadline)


def deaf_to_raw_keys(task: Task) -> Hunted:
    """A hunt for one fault that ends by no limit; the others find theirs."""
    while task.fault == "raw-keys":
        time.sleep(1)
    return hunt(task)


def deaf(order: Order, first: int, count: int, deadline: float | None) -> ShardResult:
    """A shard that ends by no limit."""
    while True:
        time.sleep(1)
