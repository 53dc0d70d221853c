"""The three state machines: silent on correct builds, loud on known-bad ones, and short in what they leave."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from model.faults import FAULTS, resolve_build
from property_tests.fuzz import machine_shards
from property_tests.fuzz.cache_world import CacheWorld
from property_tests.fuzz.machines.base import Packed, machine_on, run_machine, told
from property_tests.fuzz.machines.cache import CacheMachine
from property_tests.fuzz.machines.sim import SimMachine
from property_tests.fuzz.order import Order
from property_tests.fuzz.rerun import rerun
from property_tests.fuzz.shrink import disturbances_of, requests_of
from property_tests.laws.worlds import CORRECT
from scenarios.loader import parse_scenario
from sim.cacheops import CacheProgram
from sim.optrace import Trace
from sim.run import run_scenario

# Machine, fault, laws of which one must speak first, examples to search through, most ops that are left.
KNOWN_BAD = (
    ("cache", "copy-in-place", ("OWN",), 40, 10),
    ("cache", "raw-keys", ("KEY", "REUSE"), 80, 10),
    ("cache", "release-early", ("WINDOW",), 40, 9),
    ("cache", "hidden-last-holder", ("REF",), 40, 8),
    ("cache", "optional-partial-claim", ("WINDOW",), 80, 14),
    ("cache", "reserve-twice", ("ADMIT",), 40, 4),
    ("engine", "placeholder-lookahead", ("KEY", "PUB"), 80, 8),
    ("engine", "draft-context-kept", ("REF", "PROGRESS"), 40, 6),
    ("engine", "growth-kept-at-gate", ("ROLLBACK",), 150, 6),
    ("engine", "rank-local-load", ("RANK",), 60, 14),
    ("engine", "dummy-slot-shared", ("STATE",), 60, 10),
    ("engine", "abort-frees-destination", ("FLIGHT",), 150, 10),
    ("engine", "stale-rows-after-resume", ("MAP",), 150, 14),
    ("sim", "evict-target-only", ("REF",), 60, 12),
    ("sim", "copy-in-place", ("OWN", "PUB"), 60, 12),
    ("sim", "freed-by-highest", ("WINDOW", "OWN", "INIT", "KEY"), 60, 12),
)


def test_a_packed_number_gives_its_choices_from_its_lowest_places() -> None:
    """0 is the simplest program: every choice behind the last place is 0."""
    choices = Packed(2 + 3 * 4)
    assert [choices.below(4), choices.below(5), choices.below(9)] == [2, 3, 0]


@pytest.mark.parametrize("build", CORRECT)
def test_every_law_is_silent_in_the_machines_on_a_correct_build(build: str) -> None:
    """Goal: no false alarm, and something was looked at. Method: a few examples of each machine."""
    evaluated = set()
    for name, examples in (("cache", 10), ("engine", 8), ("sim", 6)):
        machine = machine_on(machine_shards.KINDS[name], resolve_build(build))
        broken = run_machine(machine, 7, examples, steps=machine_shards.RULES[name])
        assert broken is None, f"{name}: {broken}"
        assert machine.tally.examples >= examples
        assert machine.tally.steps > 0
        evaluated |= set(machine.tally.evaluations)
    assert {"REF", "SHAPE", "PUB", "KEY", "ADMIT", "METRIC"} <= evaluated


@pytest.mark.parametrize(
    ("machine", "name", "laws", "examples", "most"), KNOWN_BAD, ids=[f"{entry[0]}-{entry[1]}" for entry in KNOWN_BAD]
)
def test_a_machine_finds_a_known_bad_rule(
    machine: str, name: str, laws: tuple[str, ...], examples: int, most: int
) -> None:
    """Goal: each machine sees what it is for. Method: examples until a law breaks, then delta debugging."""
    build, focus = resolve_build(f"fault:{name}"), tuple(rule for rule, _ in FAULTS[name].changes)
    found = machine_shards.hunt(build, machine, examples, focus=focus, shrinks=True)
    assert found.failure is not None, f"{examples} examples and no law broke"
    assert found.law in laws, told(found.failure.violation)
    minimal = found.failure.minimal
    assert len(minimal.ops) <= most, "\n".join(map(str, minimal.ops))
    if isinstance(minimal, CacheProgram):
        again = CacheWorld(minimal.config, build).run(minimal.ops)
    else:
        again = rerun(minimal, build).violation
        assert requests_of(minimal) <= 4 and disturbances_of(minimal) <= 6
    assert again is not None and again.code == found.law


def test_hypothesis_shrinks_a_machine_to_a_program_that_is_read_at_once() -> None:
    """Goal: the violation is the message and the program is minimal. Method: hypothesis' own shrinker."""
    machine = machine_on(CacheMachine, resolve_build("fault:reserve-twice"))
    broken = run_machine(machine, 0, 40, shrinks=True)
    assert broken is not None
    assert str(broken).startswith("ADMIT: a pool backs too little or too much of what was grown (request 1, pool ")
    kinds = [type(op).__name__ for op in broken.program.ops]
    assert kinds == ["Create", "Create", "Claim", "Chunk"]


def test_a_machine_runs_the_same_examples_from_the_same_seed() -> None:
    """Derandomised: the seed decides, and another one decides differently."""
    sums = []
    for number in (3, 3, 4):
        machine = machine_on(CacheMachine, resolve_build("unified"))
        assert run_machine(machine, number, 6) is None
        sums.append((machine.tally.steps, machine.tally.features))
    assert sums[0] == sums[1] != sums[2]


def test_the_scenario_of_the_sim_machine_is_a_file() -> None:
    """Goal: a failing example is a scenario. Method: the last one loads again and breaks the same law."""
    build = resolve_build("fault:evict-target-only")
    kept: list[SimMachine] = []

    class Kept(SimMachine):
        def teardown(self) -> None:
            kept.append(self)
            super().teardown()

    broken = run_machine(machine_on(Kept, build), 0, 40, steps=14)
    assert broken is not None and isinstance(broken.program, Trace)
    scenario = parse_scenario(kept[-1].scenario_text(), "kept.yaml", Path())
    result = run_scenario(scenario, build, check="exhaustive")
    assert result.violations[0].code == broken.violation.code


@pytest.mark.parametrize("machine", ["cache", "engine", "sim"])
def test_a_shard_of_a_machine_depends_on_the_order_alone(machine: str) -> None:
    """Goal: shards may run anywhere. Method: twice the same sums, failures included, and counts that add up."""
    order = Order(("fault:evict-target-only",), "machine", machine, seed=5)
    first, second = (machine_shards.run_shard(order, 16, 8) for _ in range(2))
    assert first.examples == second.examples == 8
    assert (first.steps, first.features, first.failures) == (second.steps, second.features, second.failures)
    assert first.failures and all(failure.driver == "machine" for failure in first.failures)
    assert {failure.minimal.build for failure in first.failures} == {"fault:evict-target-only"}
    assert machine_shards.run_shard(order, 16, 8, 0.0).examples == 0


def test_a_shard_of_the_cache_swarm_can_be_cut_anywhere() -> None:
    """Each example depends on its number alone; builds rotate from one to the next."""
    order = Order(("unified", "fault:copy-in-place"), "swarm", "cache", seed=2)
    whole = machine_shards.run_shard(order, 0, 12)
    parts = [machine_shards.run_shard(order, first, 4) for first in (0, 4, 8)]
    assert whole.examples == sum(part.examples for part in parts) == 12
    assert whole.steps == sum(part.steps for part in parts)
    failures = [failure for part in parts for failure in part.failures]
    assert [failure.cause for failure in whole.failures] == [failure.cause for failure in failures]
    assert {failure.minimal.build for failure in whole.failures} == {"fault:copy-in-place"}
    assert {failure.law for failure in whole.failures} <= {"OWN", "PUB", "KEY", "REF"}


def test_a_database_brings_a_failing_example_back(tmp_path: Path) -> None:
    """A shared folder: what one run found is the first thing that the next one tries."""
    order = Order(("fault:copy-in-place",), "machine", "cache", seed=1)
    kept = replace(order, database=str(tmp_path / "examples"))
    assert machine_shards.run_shard(kept, 0, 16).failures
    other = replace(kept, seed=99)
    assert machine_shards.run_shard(other, 0, 1).failures
