"""Shards of a campaign on the engine: examples by number, and the hunt for one fault of the blind drill."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from model.builds import Build
from model.invariants import Violation
from property_tests.fuzz.bytesprog import programs
from property_tests.fuzz.choices import Bytes, Choices, Seeded
from property_tests.fuzz.generate.mix import Mix, mix_for
from property_tests.fuzz.oracle_feed import ORACLE
from property_tests.fuzz.order import SHRUNK, Order
from property_tests.fuzz.patience import patience
from property_tests.fuzz.shrink import shrink
from property_tests.fuzz.swarm import Example, play
from sim.crashes import HANG, Hang, traceback_of
from sim.findings import Failure, ShardResult
from sim.optrace import Trace
from sim.rulespec import find

STRIDE = 1 << 32  # example n of a campaign with seed s is the program of seed s * STRIDE + n
CONSULTED = 8  # one in so many examples of a campaign has the oracle beside it
BLOCK = 200  # byte programs that one run of hypothesis generates


def mix_of(profile: str, focus: tuple[str, ...] = ()) -> Mix:
    """The mix of a profile: the longer ones have programs of realistic sizes, too."""
    mix = mix_for(focus)
    return mix if profile == "quick" else replace(mix, realistic=1)


@cache
def _build(text: str) -> Build:
    return find(text)


def run_shard(order: Order, first: int, count: int, deadline: float | None = None) -> ShardResult:
    """Run the examples ``first .. first + count`` of ``order``, until ``deadline`` (``time.monotonic``) at most.

    Each example depends on the order and its number alone, and so does whether the oracle is consulted. Failures are
    shrunk.
    """
    result = ShardResult()
    mix = mix_of(order.profile, order.focus)
    began = time.process_time()
    laws: dict[tuple[str, str], int] = {}
    for number, choices in sources(order.driver, order.seed, first, count):
        if deadline is not None and time.monotonic() >= deadline:
            break
        text = order.builds[number % len(order.builds)]
        try:
            example = play_in_time(choices, _build(text), mix, consults(order, number))
        except Hang as hang:  # before its first op
            result.hung = str(hang)
            break
        result.examples += 1
        result.steps += example.steps
        result.skips += example.skips
        result.features.update(example.features)
        result.evaluations.update(example.evaluations())
        violation = example.violation
        if violation is None:
            continue
        alike = laws[text, violation.code] = laws.get((text, violation.code), 0) + 1
        trace = example.trace(text, seed_of(order.seed, number), order.driver)
        result.failures.append(_failure(order.driver, trace, _build(text), violation, alike <= SHRUNK))
        if violation.code == HANG and example.crash is not None:
            result.failures[-1] = replace(result.failures[-1], stack=traceback_of(example.crash))
    result.seconds = time.process_time() - began
    return result


def sources(driver: str, seed: int, first: int, count: int) -> Iterator[tuple[int, Choices]]:
    """The examples ``first .. first + count`` of a driver, each with its number."""
    if driver == "swarm":
        for number in range(first, first + count):
            yield number, Seeded(seed_of(seed, number))
        return
    for block in range(first // BLOCK, (first + count - 1) // BLOCK + 1):
        for place, program in enumerate(programs(seed_of(seed, block), BLOCK), block * BLOCK):
            if first <= place < first + count:
                yield place, Bytes(program)


def seed_of(seed: int, number: int) -> int:
    """The seed of one example."""
    return seed * STRIDE + number


def consults(order: Order, number: int) -> bool:
    """Whether the oracle is consulted on an example: one in :data:`CONSULTED`, in turn on every build."""
    return sum(divmod(number, len(order.builds))) % CONSULTED == 0


def play_in_time(choices: Choices, build: Build, mix: Mix, consult: bool = False) -> Example:
    """:func:`play`, ended where it takes too long."""
    with patience():
        return play(choices, build, mix, consult=consult)


def _failure(driver: str, trace: Trace, build: Build, violation: Violation, shrinks: bool) -> Failure:
    shrinks = shrinks and violation.code != HANG  # each candidate would hang
    shrunk = shrink(trace, build, consult=violation.code == ORACLE) if shrinks else None
    if shrunk is None:
        return Failure(driver, trace.seed, trace, trace, violation)
    return Failure(driver, trace.seed, trace, shrunk.trace, shrunk.violation)


@dataclass(frozen=True, slots=True)
class Hunt:
    """A hunt for one fault: ``examples`` up to the first catch (or in all), processor seconds, and what caught it."""

    build: str
    driver: str
    examples: int
    seconds: float
    failure: Failure | None

    @property
    def law(self) -> str:
        """The law that caught it; empty where nothing did."""
        return self.failure.law if self.failure is not None else ""


def hunt(
    build: Build, driver: str, budget: int, seed: int = 0, focus: tuple[str, ...] = (), shrinks: bool = False
) -> Hunt:
    """Look for what is wrong with ``build`` in at most ``budget`` examples, without its scenario.

    ``focus`` names the rules under test. With ``shrinks`` the failure is shrunk; the seconds are those before. The
    laws are on their own here: the oracle is not consulted.
    """
    mix = mix_for(focus)
    began = time.process_time()
    for number, choices in sources(driver, seed, 0, budget):
        example = play_in_time(choices, build, mix)
        violation = example.violation
        if violation is not None:
            seconds = time.process_time() - began
            trace = example.trace(build.name, seed_of(seed, number), driver)
            failure = _failure(driver, trace, build, violation, shrinks)
            return Hunt(build.name, driver, number + 1, seconds, failure)
    return Hunt(build.name, driver, budget, time.process_time() - began, None)
