"""An engine that has work and can run nothing: the run ends, and says so."""

from __future__ import annotations

from typing import Any

from model.faults import FAULTS
from property_tests.sim_room.helpers import FLAT, MS, scenario
from sim.result import RunResult
from sim.run import run_scenario

STALL_PASSES = 20


def stalled(check: str = "exhaustive", **fields: Any) -> RunResult:
    """Three sessions one after the other; the second hits inside a page, where the faulty rule cuts its chunk to 0."""
    sessions = [{"name": name, "prompt": prompt, "output": 6} for name, prompt in (("a", ["p", 40]), ("b", ["p", 41]))]
    values = {
        "workload": {
            "prefixes": {"p": 21},
            "sessions": [*sessions, {"name": "c", "prompt": 9, "output": 6}],
            "concurrency": 1,
        },
        "limits": {"page_size": 16, "chunk_unit": 4, "max_num_tokens": 8, "stall_passes": STALL_PASSES},
        "cost": FLAT,
    }
    return run_scenario(scenario({**values, **fields}), FAULTS["chunk-floored-to-nothing"].build, check=check)


def test_a_stall_ends_the_run_with_a_violation_of_progress() -> None:
    result = stalled()
    assert result.codes == ["PROGRESS"]
    assert result.exit_code == 1
    assert [record.state for record in result.records] == ["finished", "waiting"]
    assert f"{STALL_PASSES} passes in a row" in result.violations[0].message


def test_without_laws_the_work_that_is_left_is_a_missed_line() -> None:
    result = stalled(check="off")
    assert result.missed == [
        "1 requests: expected to finish, but nothing can run; the first is 1 in state waiting",
    ]
    assert result.exit_code == 1


def test_the_server_sleeps_through_a_stall_until_an_input_helps() -> None:
    cancel = {"at_s": 30.0, "action": "cancel", "request": 1}
    result = stalled(disturbances=[cancel])
    assert [record.state for record in result.records] == ["finished", "cancelled", "finished"]
    assert result.timings[2].submit_ns == 30_000 * MS
    assert result.codes == ["PROGRESS"]
