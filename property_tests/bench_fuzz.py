"""Fuzzing of whole engines by the clock: generated programs with every law after every op, from setup to drain."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from model.builds import BUILDS
from property_tests.benchmarking import CLOCK, best_of
from property_tests.fuzz.engine_shards import sources
from property_tests.fuzz.generate.mix import Mix
from property_tests.fuzz.swarm import Example, play

pytestmark = pytest.mark.benchmark(timer=CLOCK)

EXAMPLES = 60
STEPS_S = 2_500  # ops of engines, workers and links, each second
EXAMPLES_S = 60
CORRECT = tuple(build for build in BUILDS.values() if build.correct)


def programs(driver: str) -> list[Example]:
    """The first programs of a driver, the correct builds in rotation."""
    return [play(choices, CORRECT[number % len(CORRECT)], Mix()) for number, choices in sources(driver, 0, 0, EXAMPLES)]


@pytest.mark.parametrize("driver", ["swarm", "bytes"])
def test_the_engine_swarm_applies_2500_ops_a_second(benchmark: BenchmarkFixture, driver: str) -> None:
    """Target: 2,500 ops a second, engines made and every law evaluated after each op."""
    examples = programs(driver)
    assert all(example.violation is None for example in examples)
    steps = sum(example.steps for example in examples)
    best_of(benchmark, lambda: programs(driver), rounds=3, target_s=1 / STEPS_S, parts=steps)


def test_60_programs_are_generated_run_and_judged_in_a_second(benchmark: BenchmarkFixture) -> None:
    """Target: 60 programs a second."""
    best_of(benchmark, lambda: programs("swarm"), rounds=3, target_s=1 / EXAMPLES_S, parts=EXAMPLES)
