"""The swarm and the byte programs: the same numbers give the same programs, and programs reach what they are for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings

from model.builds import BUILDS
from model.faults import FAULTS
from model.rules.claim import Claim, ClaimView, WindowedPair
from property_tests.fuzz.bytesprog import binary, play_bytes
from property_tests.fuzz.engine_shards import hunt, run_shard, sources
from property_tests.fuzz.generate.mix import Mix, mix_for
from property_tests.fuzz.order import Order
from property_tests.fuzz.swarm import play, play_seed
from sim.crashes import CRASH
from sim.replay import replay_trace

CORRECT = tuple(build.name for build in BUILDS.values() if build.correct)
BRANCHING = ("paired-22", "unified")  # builds that publish a window at a branch
FEATURES = """accepted drafts, attention-DP programs, branch windows, cancelled, claims of one's own pages,
copies from the host, copies to the host, deferrals, drafter hits, dummies, evictions from draft,
evictions from target, failed forwards, fresh claims, hits, joint claims, late outputs, lost copies,
moves from the host, moves to the host, pair programs, partial claims, partial pages copied, plain requests,
preemptions, programs from bytes of memory, received tokens, recomputed tokens, recycled pages, refused admissions,
refused requests, skipped forwards, suspensions, tensor-parallel programs, transfers aborted, transfers arrived,
transfers sent, verify rows, warm-ups"""


def test_a_seed_is_a_program_and_its_trace_replays_to_the_same_digests() -> None:
    kinds = set()
    for seed in range(24):
        build = BUILDS[CORRECT[seed % len(CORRECT)]]
        example = play_seed(seed, build, Mix())
        trace = example.trace(build.name, seed)
        assert trace == play_seed(seed, build, Mix()).trace(build.name, seed)
        assert replay_trace(trace, build, check="exhaustive").missed == []
        kinds.add(trace.workers.kind if trace.workers else "single")
    assert len(kinds) > 2


def test_programs_reach_every_feature_and_break_no_law_of_a_correct_build() -> None:
    found: Counter[str] = Counter()
    for focus in ((), ("offload",), ("transfer",), ("ranks",), ("dummy",), ("publish",), ("budget",)):
        for number, choices in sources("swarm", 3, 0, 36):
            builds = BRANCHING if focus == ("publish",) else CORRECT
            example = play(choices, BUILDS[builds[number % len(builds)]], mix_for(focus))
            assert example.violation is None, (focus, number)
            found.update(example.features)
    wanted = {name.strip() for name in FEATURES.replace("\n", " ").split(",")}
    assert wanted - set(found) == set()


def test_a_shard_is_the_sum_of_its_parts() -> None:
    order = Order(("unified", "fault:placeholder-lookahead"), "swarm", seed=4)
    whole = run_shard(order, 10, 16)
    parts = run_shard(order, 10, 6)
    parts.add(run_shard(order, 16, 10))
    assert (whole.examples, whole.steps, whole.skips) == (parts.examples, parts.steps, parts.skips)
    assert whole.features == parts.features
    assert whole.evaluations == parts.evaluations
    assert [(one.seed, one.law) for one in whole.failures] == [(one.seed, one.law) for one in parts.failures]
    assert whole.failures
    assert {failure.trace.build for failure in whole.failures} == {"fault:placeholder-lookahead"}


def test_a_shard_stops_at_its_deadline() -> None:
    assert run_shard(Order(("unified",)), 0, 50, deadline=0.0).examples == 0


@pytest.mark.parametrize("driver", ["swarm", "bytes"])
@pytest.mark.parametrize(
    "name", ["raw-keys", "release-early", "freed-under-store", "rank-local-load", "lists-of-another-group"]
)
def test_a_fault_is_caught_without_its_scenario(name: str, driver: str) -> None:
    fault = FAULTS[name]
    found = hunt(fault.build, driver, 250, focus=tuple(rule for rule, _ in fault.changes))
    assert found.failure is not None
    assert found.law in INDEX.get(name, fault.fires)
    assert found.examples <= 250


INDEX = {"raw-keys": ("REUSE", "KEY")}  # with exact promises the depth of the claim tells before its content does


class Unfinished(WindowedPair):
    """A claim rule that its author has not thought to the end."""

    def decide(self, view: ClaimView) -> Claim:
        if view.target > 6:
            raise RuntimeError("what now?")
        return super().decide(view)


def test_a_crash_of_a_rule_is_a_failure_that_shrinks() -> None:
    build = BUILDS["unified"]
    crashing = replace(build, rules=replace(build.rules, claim=Unfinished()), correct=False)
    found = hunt(crashing, "swarm", 60, focus=("claim",), shrinks=True)
    assert found.failure is not None
    assert found.law == CRASH
    line = Unfinished.decide.__code__.co_firstlineno + 2
    assert found.failure.violation.message == f"RuntimeError in decide ({__name__}, line {line}): what now?"
    assert len(found.failure.minimal.ops) < 8


@settings(max_examples=25, phases=(Phase.generate,))
@given(binary())
def test_byte_programs_break_no_law_of_a_correct_build(program: bytes) -> None:
    assert play_bytes(program, BUILDS["unified"], Mix()).violation is None
