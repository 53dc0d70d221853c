"""Disturbances: what is disturbed still ends, no law breaks, and one that hits nothing is noted."""

from __future__ import annotations

from typing import Any

import pytest

from model.ops import Cancel, Dispatch, Fail, Shrink, Suspend
from property_tests.sim_room.helpers import MS, served, tiny
from sim.result import RunResult

WORK = [{"name": "w", "copies": 5, "prompt": 18, "output": 12}]


def disturbed(*disturbances: dict[str, Any], **fields: Any) -> RunResult:
    return served(tiny(WORK, disturbances=list(disturbances), **fields), record_ops=True)


def applied(result: RunResult, op: object) -> int:
    """How often ``op`` was applied; ops are tuples, so their kind has to be compared as well."""
    return sum(type(other) is type(op) and other == op for other in result.ops)


@pytest.mark.parametrize(
    ("disturbance", "op"),
    [
        ({"at_iteration": 3, "action": "skip"}, Dispatch(skip=True)),
        ({"at_iteration": 3, "action": "fail"}, Fail()),
        ({"at_iteration": 3, "action": "suspend", "request": 1}, Suspend(1)),
        ({"at_s": 0.12, "action": "suspend", "request": 0}, Suspend(0)),
        ({"at_iteration": 9, "action": "shrink", "pool": "target", "pages": 1}, Shrink("target", 1)),
        ({"at_s": 0.16, "action": "skip", "times": 2}, Dispatch(skip=True)),
    ],
)
def test_a_disturbed_run_finishes_every_request_and_breaks_no_law(disturbance: dict[str, Any], op: object) -> None:
    calm, result = disturbed(), disturbed(disturbance)
    assert applied(result, op) == disturbance.get("times", 1)
    assert (result.codes, result.missed, result.notes) == ([], [], [])
    assert [record.output_tokens for record in result.records] == [12] * 5
    assert result.decision_digest != calm.decision_digest


def test_a_skipped_forward_gives_its_tokens_one_iteration_later() -> None:
    calm, skipped, failed = (
        disturbed(*extra, cost={"profile": "flat-50ms", "host_ms": 5.0}, limits={"overlap": False})
        for extra in ([], [{"at_iteration": 4, "action": "skip"}], [{"at_iteration": 4, "action": "fail", "times": 2}])
    )
    assert skipped.duration_ns == calm.duration_ns + 5 * MS  # only the host's time is lost
    assert failed.duration_ns == calm.duration_ns + 10 * MS
    assert skipped.totals.skipped_forwards == 1
    assert failed.totals.failed_forwards == 2


def test_a_repeated_suspension_hits_iterations_in_a_row() -> None:
    result = disturbed({"at_iteration": 4, "action": "suspend", "request": 0, "times": 3})
    assert applied(result, Suspend(0)) == 3
    assert result.codes == []


def test_a_cancelled_request_is_told_at_once() -> None:
    result = disturbed({"at_s": 0.21, "action": "cancel", "request": 2})
    assert applied(result, Cancel(2)) == 1
    assert result.timings[2].finish_ns == 210 * MS
    assert result.records[2].state == "cancelled"
    assert result.codes == []


@pytest.mark.parametrize(
    ("disturbance", "note"),
    [
        ({"at_iteration": 0, "action": "cancel", "request": 4}, "cancel request 4 before iteration 0: not applied"),
        ({"at_iteration": 0, "action": "suspend", "request": 0}, "suspend request 0 before iteration 0: not applied"),
        (
            {"at_iteration": 900, "action": "suspend", "request": 0},
            "suspend request 0: the run ended before iteration 900",
        ),
        ({"at_iteration": 900, "action": "fail"}, "fail: the run ended before iteration 900"),
        ({"at_s": 100.0, "action": "skip"}, "skip: the run ended before iteration"),
    ],
)
def test_a_disturbance_that_hits_nothing_is_noted(disturbance: dict[str, Any], note: str) -> None:
    result = disturbed(disturbance)
    assert len(result.notes) == 1
    assert result.notes[0].startswith(note)
    assert result.exit_code == 0
