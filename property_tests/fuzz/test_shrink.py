"""Shrunk failures: the same law, few requests, few disturbances, and the same cut again from the same trace."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from statistics import median

import pytest

from model.builds import BUILDS
from model.faults import FAULTS
from model.linkops import Arrive, Send
from model.ops import Submit
from property_tests.fuzz.engine_shards import hunt
from property_tests.fuzz.rerun import rerun
from property_tests.fuzz.shrink import RUNS, Shrunk, disturbances_of, disturbing, requests_of, shrink
from property_tests.fuzz.simpler import given, inner
from sim.optrace import Trace

# What is not calm is what a plain server never does. What is found moves with the generator, so the limits are those
# of any program: a request that is handed over is sent and arrives.
CUT = (
    "copy-in-place",
    "no-draft-rollback",
    "release-early",
    "late-output",
    "freed-under-store",
    "abort-frees-destination",
    "rank-local-gate",
)
REQUESTS, DISTURBANCES, NOT_CALM = 3, 6, 2
BUDGET = 80  # runs where it is not the smallest trace that counts
BASED = (*CUT, "chunk-floored-to-nothing", "claim-plus2", "evict-target-only", "backoff-zero-one-pool", "raw-keys")


@cache
def found(name: str) -> Trace:
    """The first failure of a fault, as it was found."""
    fault = FAULTS[name]
    failure = hunt(fault.build, "swarm", 400, focus=tuple(rule for rule, _ in fault.changes)).failure
    assert failure is not None
    assert isinstance(failure.trace, Trace)
    return failure.trace


@cache
def cut(name: str) -> Shrunk:
    """What is left of it."""
    shrunk = shrink(found(name), FAULTS[name].build)
    assert shrunk is not None
    return shrunk


@pytest.mark.parametrize("name", CUT)
def test_what_is_left_breaks_the_same_law_with_few_requests_and_disturbances(name: str) -> None:
    trace, build, shrunk = found(name), FAULTS[name].build, cut(name)
    assert shrunk.runs <= RUNS
    again = rerun(shrunk.trace, build)
    assert again.violation == shrunk.violation
    assert again.ops == shrunk.trace.ops
    kinds = Counter(type(inner(op)) for op in shrunk.trace.ops if disturbing(op))
    handed_over = kinds[Send] + kinds[Arrive]
    assert requests_of(shrunk.trace) <= REQUESTS
    assert disturbances_of(shrunk.trace) - handed_over <= NOT_CALM
    assert handed_over <= 2 * requests_of(shrunk.trace)
    assert len(shrunk.trace.ops) <= len(trace.ops)


def test_the_median_of_what_is_left_has_few_requests_and_disturbances() -> None:
    assert median(requests_of(cut(name).trace) for name in CUT) <= REQUESTS - 1
    assert median(disturbances_of(cut(name).trace) for name in CUT) <= DISTURBANCES // 3


@pytest.mark.parametrize("name", CUT)
def test_no_op_can_be_left_out_of_what_is_left(name: str) -> None:
    shrunk, build = cut(name), FAULTS[name].build
    size = (requests_of(shrunk.trace), disturbances_of(shrunk.trace), len(shrunk.trace.ops))
    for place in range(len(shrunk.trace.ops)):
        ops = shrunk.trace.ops[:place] + shrunk.trace.ops[place + 1 :]
        less = rerun(replace(shrunk.trace, ops=ops), build)
        if less.violation is not None and less.violation.code == shrunk.violation.code:
            left = less.trace(shrunk.trace)
            assert (requests_of(left), disturbances_of(left), len(left.ops)) >= size


@pytest.mark.parametrize("name", BASED)
def test_what_is_left_is_silent_on_the_build_below_and_runs_on_engines_that_are_generated(name: str) -> None:
    """Goal: it shows the fault's fault. Method: a trace that breaks nothing on the correct build, shrunk in haste."""
    fault, trace = FAULTS[name], found(name)
    shrunk = shrink(trace, fault.build, runs=BUDGET)
    assert shrunk is not None
    assert given(trace)
    assert given(shrunk.trace)
    assert rerun(trace, BUILDS[fault.base]).violation is None
    assert rerun(shrunk.trace, BUILDS[fault.base]).violation is None


def test_what_breaks_on_the_build_below_too_is_shrunk_all_the_same() -> None:
    """A step that no chunk fits into: nothing is promised there, and the trace says no more than that."""
    fault, trace = FAULTS["chunk-floored-to-nothing"], found("chunk-floored-to-nothing")
    limits = replace(trace.config.limits, chunk_unit=64, max_num_tokens=8)
    stuck = replace(trace, config=replace(trace.config, limits=limits))
    assert rerun(stuck, BUILDS[fault.base]).violation is not None
    shrunk = shrink(stuck, fault.build, runs=BUDGET)
    assert shrunk is not None
    assert requests_of(shrunk.trace) == 1


def test_shrinking_is_the_same_every_time_and_numbers_requests_from_one() -> None:
    first = cut("freed-under-store")
    assert first == shrink(found("freed-under-store"), FAULTS["freed-under-store"].build)
    numbers = [op.spec.request_id for op in map(inner, first.trace.ops) if isinstance(op, Submit)]
    assert sorted(set(numbers)) == list(range(1, len(set(numbers)) + 1))


def test_a_small_budget_of_runs_is_kept_and_still_leaves_a_failing_trace() -> None:
    trace, build = found("late-output"), FAULTS["late-output"].build
    hasty = shrink(trace, build, runs=15)
    assert hasty is not None
    assert hasty.runs <= 15
    violation = rerun(hasty.trace, build).violation
    assert violation is not None
    assert violation.code == hasty.violation.code


def test_a_trace_that_breaks_nothing_is_not_shrunk() -> None:
    fault = FAULTS["late-output"]
    assert shrink(found("late-output"), BUILDS[fault.base]) is None
