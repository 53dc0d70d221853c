"""Fuzzing by the clock: rules of the state machines and ops of the cache swarm, with every law after each."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from model.builds import BUILDS
from property_tests.benchmarking import CLOCK, best_of
from property_tests.fuzz.cache_swarm import swarm_world
from property_tests.fuzz.machine_shards import KINDS, RULES
from property_tests.fuzz.machines.base import Machine, machine_on, run_machine

pytestmark = pytest.mark.benchmark(timer=CLOCK)

EXAMPLES = 40
PROGRAMS = 60
RULES_S = 1500  # of a RuleBasedStateMachine, each second
OPS_S = 15_000  # of the swarm on the cache layer


@pytest.mark.parametrize("build", ["unified", "paired-22"])
@pytest.mark.parametrize("name", ["cache", "engine"])
def test_a_machine_runs_1500_rules_a_second(benchmark: BenchmarkFixture, name: str, build: str) -> None:
    """Target: 1,500 ops a second with every law, drains and hypothesis' choices included."""
    machines: list[type[Machine]] = []

    def setup() -> None:
        machines[:] = [machine_on(KINDS[name], BUILDS[build])]

    def run() -> None:
        assert run_machine(machines[0], 1, EXAMPLES, steps=RULES[name]) is None

    setup()
    run()
    steps = machines[0].tally.steps
    assert steps > EXAMPLES * RULES[name] // 2
    best_of(benchmark, run, rounds=3, target_s=1 / RULES_S, parts=steps, setup=setup)


def test_the_sim_machine_runs_1000_ops_a_second(benchmark: BenchmarkFixture) -> None:
    """Target: 1,000 ops of served scenarios a second, from the rules that build a scenario up to its result."""
    machines: list[type[Machine]] = []

    def setup() -> None:
        machines[:] = [machine_on(KINDS["sim"], BUILDS["unified"])]

    def run() -> None:
        assert run_machine(machines[0], 1, EXAMPLES // 2, steps=RULES["sim"]) is None

    setup()
    run()
    best_of(benchmark, run, rounds=3, target_s=1e-3, parts=machines[0].tally.steps, setup=setup)


@pytest.mark.parametrize("build", ["unified", "paired-22"])
def test_the_cache_swarm_checks_15000_ops_a_second(benchmark: BenchmarkFixture, build: str) -> None:
    """Target: 15,000 ops a second, engines and requests made, every law after each op."""
    worlds = [swarm_world(seed, BUILDS[build]) for seed in range(PROGRAMS)]
    steps = sum(world.steps for world in worlds)
    assert all(not world.violations for world in worlds)

    def run() -> None:
        for seed in range(PROGRAMS):
            swarm_world(seed, BUILDS[build])

    best_of(benchmark, run, rounds=5, target_s=1 / OPS_S, parts=steps)
