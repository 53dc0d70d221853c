"""Shrunk failures: the same law, few requests, few disturbances, and the same cut again from the same trace."""

from __future__ import annotations

from functools import cache

import pytest

from model.builds import BUILDS
from model.faults import FAULTS
from model.ops import Submit
from property_tests.fuzz.engine_shards import hunt
from property_tests.fuzz.rerun import rerun
from property_tests.fuzz.shrink import RUNS, disturbances_of, requests_of, shrink
from property_tests.fuzz.simpler import inner
from sim.optrace import Trace

# fault: requests and disturbances that are left at most
CUT = {
    "copy-in-place": (3, 0),
    "no-draft-rollback": (1, 1),
    "release-early": (1, 0),
    "late-output": (3, 1),
    "freed-under-store": (3, 4),
    "abort-frees-destination": (3, 4),
    "rank-local-gate": (2, 0),
}


@cache
def found(name: str) -> Trace:
    """The first failure of a fault, as it was found."""
    fault = FAULTS[name]
    failure = hunt(fault.build, "swarm", 400, focus=tuple(rule for rule, _ in fault.changes)).failure
    assert failure is not None
    assert isinstance(failure.trace, Trace)
    return failure.trace


@pytest.mark.parametrize("name", CUT)
def test_what_is_left_breaks_the_same_law_with_few_requests_and_disturbances(name: str) -> None:
    trace, build = found(name), FAULTS[name].build
    shrunk = shrink(trace, build)
    assert shrunk is not None
    assert shrunk.runs <= RUNS
    again = rerun(shrunk.trace, build)
    assert again.violation == shrunk.violation
    assert again.ops == shrunk.trace.ops
    requests, disturbances = CUT[name]
    assert requests_of(shrunk.trace) <= requests
    assert disturbances_of(shrunk.trace) <= disturbances
    assert len(shrunk.trace.ops) <= len(trace.ops)


def test_shrinking_is_the_same_every_time_and_numbers_requests_from_one() -> None:
    trace, build = found("late-output"), FAULTS["late-output"].build
    first, second = shrink(trace, build), shrink(trace, build)
    assert first == second
    assert first is not None
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
