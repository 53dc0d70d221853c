"""The long shapes of the seeds at full size; run by ``make bench``."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from model.builds import BUILDS
from property_tests.benchmarking import CLOCK, best_of
from scenarios import catalog
from sim.result import RunResult
from sim.run import run_scenario

pytestmark = pytest.mark.benchmark(timer=CLOCK)

THREE = ("target-21", "paired-22", "unified")


def test_the_warm_up_of_488_requests_on_three_builds(benchmark: BenchmarkFixture) -> None:
    """S5. Target: 60 s on one core for three builds, 79M prompt tokens each, incremental checks."""
    scenario = catalog.load("s05")

    def run() -> list[RunResult]:
        return [run_scenario(scenario, BUILDS[build]) for build in THREE]

    for result in best_of(benchmark, run, rounds=1, target_s=60.0):
        assert len(result.records) == result.totals.finished == 488
        assert (result.violations, result.missed) == ([], [])


@pytest.mark.parametrize(("name", "requests"), [("s09", 531), ("s10", 2_520)])
def test_a_long_shape_stays_in_its_band(benchmark: BenchmarkFixture, name: str, requests: int) -> None:
    """S9 and S10 on the default build. Target: 10 s each."""
    scenario = catalog.load(name)
    result = best_of(benchmark, lambda: run_scenario(scenario, BUILDS["unified"]), rounds=1, target_s=10.0)
    assert len(result.records) == requests
    assert (result.violations, result.missed) == ([], [])
    assert all(pool.held == pool.locked == 0 for pool in result.occupancy)
