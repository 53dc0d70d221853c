"""What a run says at its end: determinism, expectations, exit codes, Ctrl-C, stalls, bad settings."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from model.builds import BUILDS
from property_tests.sim_room.helpers import busy, served, tiny
from scenarios.errors import InputError
from sim.run import run_scenario

SNIPPET = """
import json
from property_tests.sim_room.helpers import busy, served
result = served(busy())
print(json.dumps([result.decision_digest, result.memory_digest, result.summary()]))
"""


def test_one_scenario_seed_and_build_always_give_the_same_run() -> None:
    first, second = served(busy()), served(busy())
    assert (first.decision_digest, first.memory_digest) == (second.decision_digest, second.memory_digest)
    assert first.timings == second.timings
    assert first.records == second.records
    assert json.dumps(first.summary()) == json.dumps(second.summary())


def test_two_processes_with_other_hash_seeds_give_the_same_run() -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", SNIPPET], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert served(busy()).decision_digest in outputs[0]


def test_the_check_level_changes_no_decision() -> None:
    scenario = busy(acceptance={"length": 2.5})
    runs = {check: served(scenario, check=check) for check in ("off", "incremental", "exhaustive")}
    assert len({run.decision_digest for run in runs.values()}) == 1
    assert runs["incremental"].memory_digest == runs["exhaustive"].memory_digest
    assert runs["off"].memory_digest == "not computed"


@pytest.mark.parametrize("build", [name for name, build in BUILDS.items() if build.correct])
def test_a_correct_build_under_pressure_breaks_no_law_and_drains(build: str) -> None:
    result = served(busy(), build)
    assert (result.exit_code, result.codes, result.missed) == (0, [], [])
    assert {record.state for record in result.records} == {"finished"}
    assert sum(result.checked.values()) > 1_000
    assert all(0 < pool.peak <= pool.device_pages for pool in result.occupancy)


def test_a_missed_expectation_is_one_line_and_exit_code_1() -> None:
    expect = {"totals": {"prefilled_tokens": 1}, "requests": {0: {"cached_tokens": 99}}}
    result = served(tiny([{"name": "s", "prompt": 9, "output": 4}], expect=expect))
    assert result.exit_code == 1
    assert result.missed == [
        "request 0: cached_tokens: expected 99, found 0",
        "total prefilled_tokens: expected 1, found 9",
    ]


def test_expectations_may_differ_by_build() -> None:
    expect = {"totals": {"prefilled_tokens": 1}, "by_build": {"paired-22": {"totals": {"prefilled_tokens": 9}}}}
    scenario = tiny([{"name": "s", "prompt": 9, "output": 4}], expect=expect)
    assert served(scenario, "unified").exit_code == 1
    assert served(scenario, "paired-22").exit_code == 0


def test_a_law_that_is_expected_to_break_counts_as_met() -> None:
    sessions = [{"name": "r", "copies": 2, "prompt": "p", "output": 9}]
    workload = {"prefixes": {"p": 60}, "sessions": sessions, "concurrency": 1}
    silent, spoken = (
        served(tiny([], workload=workload, drafter={"window": 24}, expect=expect), "target-only")
        for expect in ({}, {"violations": ["INIT"], "may": ["FRONT"]})
    )
    assert silent.exit_code == 1
    assert "law INIT broke, as this build declares; the scenario does not expect it" in silent.missed
    assert spoken.codes == silent.codes
    assert spoken.exit_code == 0


def test_a_run_that_checked_nothing_does_not_pass() -> None:
    result = served(tiny([{"name": "s", "prompt": 9, "output": 4}]), check="off")
    assert (result.nothing_checked, result.exit_code) == (True, 3)


def test_ctrl_c_keeps_what_was_found() -> None:
    def stop(done: int, total: int) -> None:
        assert total == 18
        if done == 4:
            raise KeyboardInterrupt

    result = served(busy(), progress=stop)
    assert result.interrupted
    assert sum(record.state == "finished" for record in result.records) == 4
    assert result.summary()["all"]["time_to_first_token_ms"]["count"] >= 4
    assert result.missed == []
    assert result.exit_code == 3  # unfinished: it shows what broke, never that nothing did
    assert "interrupted" in result.decision_digest


def test_progress_counts_requests_to_the_last() -> None:
    seen: list[tuple[int, int]] = []
    served(busy(), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 18) for done in range(1, 19)]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"cost": "tp8-999"}, r"tiny\.yaml:\d+: cost\.profile: expected one of default, flat-50ms, .* found 'tp8-999'"),
        ({"cost": "absent.csv"}, r"absent\.csv: expected a readable file of measured steps"),
        (
            {"acceptance": {"bernoulli": "no-curve"}},
            r"acceptance\.bernoulli: expected rates or one of .*kimi-k3-dspark",
        ),
        (
            {"acceptance": {"coverage": "kimi-k3-dspark"}, "drafter": {"drafts": 9}},
            r"acceptance\.coverage: the curve has acceptance lengths for 1\.\.8 drafts, not 9",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_refused_before_anything_runs(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as error:
        run_scenario(tiny([{"name": "s", "prompt": 9, "output": 4}], **fields), BUILDS["unified"])
    assert "\n" not in str(error.value)


def test_a_cost_profile_may_be_a_file_of_measured_steps_beside_the_scenario(tmp_path: Any) -> None:
    (tmp_path / "steps.csv").write_text("batch,prefill_tokens,ms\n1,0,10\n8,0,17\n1,100,12\n")
    scenario = tiny([{"name": "s", "prompt": 8, "output": 4}], cost={"profile": "steps.csv", "host_ms": 0.0})
    timing = served(scenario.at(None, tmp_path)).timings[0]
    assert list(timing.arrivals)[:2] == [10_160_000, 20_160_000]


@pytest.mark.parametrize("output", [1, 2, 5, 9])
@pytest.mark.parametrize("cost", ["flat-50ms", {"profile": "flat-50ms", "host_ms": 3.0}])
def test_the_device_is_never_busy_for_longer_than_the_run(output: int, cost: Any) -> None:
    """A step that was dispatched ahead of the last token computes for nobody after the run."""
    scenario = tiny([{"name": "s", "copies": 3, "prompt": 9, "output": output}], cost=cost)
    result = served(scenario)
    assert 0 < result.device_busy_ns <= result.duration_ns
    assert result.summary()["device_busy_share"] <= 1.0


def test_a_device_that_is_never_idle_is_busy_all_the_time() -> None:
    scenario = tiny([{"name": "s", "prompt": 9, "output": 40}], cost={"profile": "flat-50ms", "host_ms": 0.0})
    assert served(scenario).summary()["device_busy_share"] == 1.0


def test_an_interrupted_run_counts_only_the_device_time_that_is_over() -> None:
    def stop(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    result = served(busy(), progress=stop)
    assert 0 < result.device_busy_ns <= result.duration_ns
