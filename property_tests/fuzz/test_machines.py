"""The three state machines: silent on correct builds, loud on known-bad ones, and short in what they leave."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model.faults import FAULTS, resolve_build
from property_tests.fuzz import machine_shards
from property_tests.fuzz.cache_world import CacheWorld
from property_tests.fuzz.generate.mix import mix_for
from property_tests.fuzz.machines.base import Packed, machine_on, run_machine, told
from property_tests.fuzz.machines.cache import CacheMachine
from property_tests.fuzz.machines.engine import EngineMachine
from property_tests.fuzz.machines.sim import SimMachine
from property_tests.fuzz.order import Order
from property_tests.fuzz.rerun import rerun
from property_tests.fuzz.shrink import disturbances_of, requests_of
from property_tests.laws.worlds import CORRECT
from scenarios.loader import parse_scenario
from sim.cacheops import CacheOp, CacheProgram, Create
from sim.findings import Program
from sim.optrace import Trace
from sim.run import run_scenario

SEEDS = 6  # runs of a machine until one finds the fault
# Machine, fault, laws of which one must speak first, examples of one run, most ops that are left.
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
    choices = Packed((2 + 3 * 4).to_bytes(2, "little"))
    assert [choices.below(4), choices.below(5), choices.below(9)] == [2, 3, 0]


@pytest.mark.parametrize("build", CORRECT)
def test_every_law_is_silent_in_the_machines_on_a_correct_build(build: str) -> None:
    """Goal: no false alarm, and something was looked at. Method: a few examples of each machine."""
    evaluated = set()
    for name, examples in (("cache", 6), ("engine", 4), ("sim", 3)):
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
    hunts = (machine_shards.hunt(build, machine, examples, seed, focus, shrinks=True) for seed in range(1, SEEDS + 1))
    found = next((hunt for hunt in hunts if hunt.failure is not None), None)
    assert found is not None and found.failure is not None, f"{SEEDS} times {examples} examples and no law broke"
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
        def ended(self) -> None:
            kept.append(self)
            super().ended()

    broken = run_machine(machine_on(Kept, build), 0, 40, steps=14)
    assert broken is not None and isinstance(broken.program, Trace)
    scenario = parse_scenario(kept[-1].scenario_text(), "kept.yaml", Path())
    result = run_scenario(scenario, build, check="exhaustive")
    assert result.violations[0].code == broken.violation.code


@pytest.mark.parametrize("machine", ["cache", "engine", "sim"])
def test_a_shard_of_a_machine_depends_on_the_order_alone(machine: str) -> None:
    """Goal: shards may run anywhere. Method: twice the same sums, failures included, and counts that add up."""
    order = Order(("fault:evict-target-only",), "machine", machine, seed=5)
    first, second = (machine_shards.run_shard(order, 16, 12) for _ in range(2))
    assert first.examples == second.examples == 12
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
    """A shared folder: what one run found is the first thing that the next one tries, and none of its examples."""
    order = Order(("fault:copy-in-place",), "machine", "cache", seed=1)
    kept = replace(order, database=str(tmp_path / "examples"))
    assert machine_shards.run_shard(kept, 0, 16).failures
    other = replace(kept, seed=99)
    again = machine_shards.run_shard(other, 0, 1)
    assert again.failures and again.examples == 1
    correct = replace(kept, builds=("unified",))
    plain = machine_shards.run_shard(replace(correct, database=""), 0, 16)
    beside = machine_shards.run_shard(correct, 0, 16)
    assert (beside.examples, beside.steps, beside.features) == (plain.examples, plain.steps, plain.features)


def test_requests_of_the_machines_differ_in_all_that_a_request_says() -> None:
    """Goal: no choice is always 0 because the code ran dry. Method: what a run of each machine submits."""
    made: list[Create] = []
    sessions: list[dict[str, Any]] = []

    class Caches(CacheMachine):
        def step(self, op: CacheOp) -> None:
            made.extend([op] if isinstance(op, Create) else [])
            super().step(op)

    class Scenarios(SimMachine):
        def ended(self) -> None:
            sessions.extend(self.sessions[1:])

    build = resolve_build("unified")
    assert run_machine(machine_on(Caches, build), 1, 60) is None
    assert run_machine(machine_on(Scenarios, build), 2, 60) is None
    assert {op.spec.priority for op in made} == {0, 1, -1}
    assert len({op.spec.scope for op in made}) > 3
    assert {op.spec.drafts for op in made} == {True, False}
    assert len({op.spec.max_new_tokens for op in made}) > 5
    assert len({str(session.get("scope")) for session in sessions}) > 2
    assert {session.get("drafts", True) for session in sessions} == {True, False}
    assert len({session["arrival_s"] for session in sessions}) > 5


def test_the_engine_machine_loses_copies_aborts_transfers_and_idles_ranks() -> None:
    """Goal: no rule is there in name only. Method: runs until each state was reached, 6 of them at most."""
    wanted = {"lost copies", "copies from the host", "transfers aborted", "transfers arrived", "dummies"}
    reached: Counter[str] = Counter()
    for number in range(SEEDS):
        for focus in (("accounting",), ("transfer",), ("dummy",)):
            machine = machine_on(EngineMachine, resolve_build("unified"), mix=mix_for(focus))
            assert run_machine(machine, number, 24) is None
            assert machine.tally.skips < machine.tally.steps
            reached += machine.tally.features
        if wanted <= set(reached):
            break
    assert wanted <= set(reached)


def test_a_failing_example_counts_once() -> None:
    """Hypothesis plays it once more to show it; that is no second example."""
    machine = machine_on(CacheMachine, resolve_build("fault:reserve-twice"))
    begun: list[int] = []

    class Counting(machine):
        def ended(self) -> None:
            begun.append(1)
            super().ended()

    assert run_machine(Counting, 0, 40) is not None
    assert machine.tally.examples == len(begun) - 1 > 0


def test_what_a_machine_draws_follows_from_its_seed_whatever_modules_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hypothesis reads constants from the source of loaded modules; a module of one's own must not change a hunt."""

    build, focus = (
        resolve_build("fault:stale-rows-after-resume"),
        tuple(rule for rule, _ in FAULTS["stale-rows-after-resume"].changes),
    )

    def drawn() -> Program | None:
        failure = machine_shards.hunt(build, "engine", 100, 0, focus).failure
        return failure.trace if failure is not None else None

    before = drawn()
    assert before is not None
    (tmp_path / "full_of_constants.py").write_text(f"NUMBERS = {list(range(2, 400))}\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("full_of_constants")
    try:
        assert drawn() == before
    finally:
        del sys.modules["full_of_constants"]
