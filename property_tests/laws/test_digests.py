"""One trace, one digest: in any process, from a file, op by op; and every list of ops is a trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from model.config import RequestSpec
from model.faults import FAULTS
from model.ops import Cancel, Dispatch, Fail, Op, Settle, Shrink, Submit, Suspend, World
from model.tokens import Segment
from property_tests.laws.healthy import FIRST, SECOND, healthy, step
from property_tests.laws.worlds import CORRECT, random_world
from scenarios import catalog
from sim.optrace import Trace, load_trace, save_trace
from sim.replay import replay_trace
from sim.run import run_scenario

SCENARIOS = ("smoke/disturbed", "smoke/host_tier", "reports/o05")
SCRIPT = f"""
import json
from model.builds import BUILDS
from scenarios import catalog
from sim.run import run_scenario
runs = [run_scenario(catalog.load(n), BUILDS[b]) for n in {SCENARIOS} for b in ("unified", "paired-22")]
print(json.dumps([[run.decision_digest, run.memory_digest, run.summary()] for run in runs]))
"""


def digests(world: World) -> tuple[str, str]:
    return world.decision_digest(), world.memory_digest()


def applied(world: World, ops: list[Op]) -> World:
    """A new world like ``world`` after ``ops``."""
    again = World(world.config, world.build, check="exhaustive")
    for op in ops:
        outcome = again.apply(op)
        assert outcome.applied or outcome.why
    return again


def recorded(seed: int, build: str, *, tight: bool = False) -> World:
    """A random world after its run."""
    world, driver = random_world(seed, build, tight=tight)
    driver.run()
    return world


# -- the same digests --------------------------------------------------------------------------------------------------


def test_processes_with_different_hash_seeds_agree() -> None:
    answers = []
    for hash_seed in ("1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        call = [sys.executable, "-c", SCRIPT]
        answers.append(subprocess.run(call, env=environment, capture_output=True, text=True, check=True).stdout)
    assert answers[0] == answers[1]
    pairs = {(decisions, memory) for decisions, memory, _ in json.loads(answers[0])}
    assert len(pairs) == 2 * len(SCENARIOS)


@pytest.mark.parametrize("seed", range(8000, 8012))
def test_the_ops_of_a_run_give_its_digests_again(seed: int, tmp_path: Path) -> None:
    world = recorded(seed, CORRECT[seed % len(CORRECT)], tight=seed % 2 == 0)
    assert world.ops
    trace = Trace("random", world.build.name, seed, world.check, world.config, tuple(world.ops), *digests(world))
    save_trace(tmp_path / "trace.jsonl", trace)
    read = load_trace(tmp_path / "trace.jsonl")
    assert read == trace
    result = replay_trace(read, world.build, check="exhaustive")
    assert (result.decision_digest, result.memory_digest) == digests(world)
    assert result.missed == []
    assert result.totals == world.engine.totals


@pytest.mark.parametrize("name", ["raw-keys", "late-output", "hold-leak", "count-not-extent", "slot-loss-zero"])
def test_the_ops_of_a_failure_fail_again_in_the_same_way(name: str) -> None:
    fault = FAULTS[name]
    run = run_scenario(catalog.load(fault.scenario), fault.build, check="exhaustive", record_ops=True)
    trace = Trace(run.scenario, run.build, run.seed, run.check, run.config, tuple(run.ops))
    again = replay_trace(trace, fault.build, check="exhaustive")
    assert run.violations
    assert again.violations == run.violations
    assert (again.decision_digest, again.memory_digest) == (run.decision_digest, run.memory_digest)


def test_one_accepted_token_more_is_another_run() -> None:
    one, other = healthy(), healthy()
    assert digests(one) == digests(other)
    step(one, 1)
    step(other, 2)
    assert one.decision_digest() != other.decision_digest()
    assert one.memory_digest() != other.memory_digest()


def test_other_tokens_of_the_same_shape_are_the_same_decisions_on_another_memory() -> None:
    worlds = []
    for seed in (1, 2):
        world = World(healthy().config, healthy().build)
        world.apply(Submit(RequestSpec(0, (Segment(seed, 9),), 2, 5)))
        step(world)
        worlds.append(world)
    assert worlds[0].decision_digest() == worlds[1].decision_digest()
    assert worlds[0].memory_digest() != worlds[1].memory_digest()


# -- every list of ops is a trace --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8100, 8124))
def test_any_part_of_a_trace_applies_and_breaks_nothing(seed: int) -> None:
    world = recorded(seed, CORRECT[seed % len(CORRECT)], tight=seed % 2 == 0)
    assert world.ops
    rng = Random(seed)
    for kept in (0.9, 0.6, 0.3):
        part = applied(world, [op for op in world.ops if rng.random() < kept])
        assert part.violations == []
    shuffled = list(world.ops)
    rng.shuffle(shuffled)
    assert applied(world, shuffled).violations == []


@pytest.mark.parametrize("seed", range(8200, 8224))
def test_ops_without_any_sense_are_skipped_and_break_nothing(seed: int) -> None:
    rng = Random(seed)
    world, driver = random_world(seed, CORRECT[seed % len(CORRECT)], tight=seed % 2 == 0)
    for _ in range(400):
        outcome = world.apply(senseless(rng, driver.todo))
        assert outcome.applied or outcome.why.strip()
        assert "\n" not in outcome.why
    assert world.violations == []
    assert world.skips > 0


def senseless(rng: Random, specs: list[RequestSpec]) -> Op:
    """Any op with any argument; few of them make sense where they come."""
    request_id = rng.randint(-1, len(specs))
    counts = tuple(rng.randint(-1, 9) for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3))))
    spec = replace(rng.choice(specs), output_seed=rng.randrange(9))
    pool = rng.choice(("target", "draft", "swa", "nowhere"))
    choices: tuple[Op, ...] = (
        Submit(spec),
        Submit(replace(spec, prompt=())),
        Dispatch(),
        Dispatch(),
        Dispatch(skip=True),
        Settle(counts),
        Settle(counts),
        Cancel(request_id),
        Suspend(request_id),
        Fail(),
        Shrink(pool, rng.randint(-1, 20)),
    )
    return rng.choice(choices)


GOOD = RequestSpec(7, (Segment(1, 6),), 4, 9)
NOT_NOW = [
    (Submit(replace(GOOD, prompt=())), "needs a prompt"),
    (Submit(replace(GOOD, max_new_tokens=0)), "at least one output token"),
    (Submit(replace(GOOD, prompt=(Segment(1, 900),))), "max_seq_len is 128"),
    (Submit(replace(GOOD, request_id=FIRST)), "still running"),
    (Settle(()), "no iteration is in flight"),
    (Settle((1, 1)), "no iteration is in flight"),
    (Cancel(99), "not live"),
    (Suspend(99), "holds no locks"),
    (Shrink("nowhere", 0), "no pool"),
    (Shrink("target", -5), "nothing to evict"),
]


@pytest.mark.parametrize(("op", "why"), NOT_NOW, ids=lambda value: type(value).__name__)
def test_an_op_that_is_illegal_now_says_why_and_leaves_nothing_behind(op: Op, why: str) -> None:
    world = healthy()
    before = digests(world)
    for _ in range(2):
        outcome = world.apply(op)
        assert not outcome.applied
        assert why in outcome.why
    assert digests(world) == before
    assert world.skips == 2


EMPTY = [Dispatch(), Dispatch(skip=True), Fail(), Settle(()), Cancel(FIRST), Suspend(FIRST), Shrink("target", 0)]


@pytest.mark.parametrize("op", EMPTY, ids=lambda op: type(op).__name__)
def test_an_empty_world_skips_everything_but_a_submission(op: Op) -> None:
    world = World(healthy().config, healthy().build)
    nothing = digests(world)
    assert not world.apply(op).applied
    assert not world.apply(op).applied
    assert digests(world) == nothing
    world.drain()
    assert world.violations == []


def test_a_third_iteration_waits_for_the_oldest_to_settle() -> None:
    world = healthy()
    assert world.apply(Dispatch()).applied
    assert world.apply(Dispatch()).applied
    for op in (Dispatch(), Dispatch(skip=True), Fail()):
        outcome = world.apply(op)
        assert (outcome.applied, outcome.why) == (False, "the oldest iteration has to settle first")


def test_a_settle_needs_a_count_for_each_row() -> None:
    world = healthy()
    world.apply(Dispatch())
    for counts in ((), (1,), (1, 1, 1)):
        outcome = world.apply(Settle(counts))
        assert not outcome.applied
        assert f"2 rows were dispatched, {len(counts)} counts came" in outcome.why
    assert world.apply(Settle((1, 1))).applied


@pytest.mark.parametrize(("count", "committed"), [(-3, 1), (0, 1), (1, 1), (4, 4), (5, 4), (99, 4)])
def test_a_row_commits_between_one_token_and_its_width(count: int, committed: int) -> None:
    world = healthy()
    world.apply(Dispatch())
    outcome = world.apply(Settle((count, 1)))
    assert [row.tokens for row in outcome.settled] == [committed, 1]


def test_a_row_of_placeholders_commits_one_token_whatever_is_asked() -> None:
    world = World(healthy().config, healthy().build)
    world.apply(Submit(GOOD))
    step(world)
    plan = world.apply(Dispatch()).plan
    assert plan is not None
    assert not plan.generation[0].real_drafts
    assert [row.tokens for row in world.apply(Settle((4,))).settled] == [1]


def test_a_shrunk_pool_keeps_what_is_held() -> None:
    world = healthy()
    world.apply(Cancel(SECOND))
    held = {use.name: use.locked for use in world.engine.occupancy()}
    assert world.apply(Shrink("target", 0)).applied
    after = {use.name: (use.locked, use.droppable) for use in world.engine.occupancy()}
    assert after["target"] == (held["target"], 0)
    assert world.apply(Shrink("target", 0)).why == "nothing to evict"
    step(world)
    assert world.violations == []


def test_an_id_is_free_again_once_its_request_ended() -> None:
    world = healthy()
    spec = world.engine.live[FIRST].spec
    assert not world.apply(Submit(spec)).applied
    world.apply(Cancel(FIRST))
    assert world.apply(Submit(spec)).applied
    step(world)
    assert world.engine.records[FIRST].cached_tokens > 0
    assert world.violations == []
