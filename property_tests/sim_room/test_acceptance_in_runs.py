"""Acceptance in whole runs: forced counts are met, lost drafter context costs modelled length, builds share draws."""

from __future__ import annotations

from typing import Any

import pytest

from property_tests.sim_room.helpers import scenario, served, tiny
from scenarios.errors import InputError
from sim.result import RunResult


def repeats(build: str, acceptance: dict[str, Any]) -> RunResult:
    """Eight requests in a row on one prompt; one at a time, so that each later one hits."""
    sessions = [{"name": "r", "copies": 8, "prompt": ["shared"], "output": 40}]
    values = {
        "workload": {"prefixes": {"shared": 60}, "sessions": sessions, "concurrency": 1},
        "acceptance": acceptance,
        "drafter": {"window": 24},
        "pools": {"target": 256, "draft": 128},
        "expect": {"violations": None},
    }
    return served(scenario(values), build, "incremental")


def test_forced_counts_are_committed_and_the_placeholder_step_commits_one() -> None:
    result = repeats("unified", {"forced": [3, 1, 4]})
    for timing in result.timings:
        assert timing.counts[:2] == bytes([1, 1])  # the token of the prefill, then the placeholder step
        assert timing.accepted == bytes([(3, 1, 4)[step % 3] for step in range(len(timing.accepted))])
    assert result.acceptance_mode == "forced"


def test_a_request_may_have_its_own_schedule() -> None:
    result = repeats("unified", {"forced": 2, "requests": {3: [4, 1]}})
    assert set(result.timings[2].accepted) == {2}
    assert result.timings[3].accepted[:4] == bytes([4, 1, 4, 1])


def test_the_lengths_of_a_run_agree_with_the_engines_own_counters() -> None:
    result = repeats("unified", {"length": 2.6})
    for record, timing in zip(result.records, result.timings, strict=True):
        assert len(timing.accepted) == record.spec_steps
        assert sum(timing.accepted) - len(timing.accepted) == record.accepted_drafts
        assert timing.tokens == record.output_tokens == 40
    spoken = result.summary()["speculation"]
    totals = result.totals
    assert spoken["step_weighted_acceptance_length"] == pytest.approx(1 + totals.accepted_drafts / totals.spec_steps)
    assert spoken["step_weighted_acceptance_length"] == pytest.approx(2.6, abs=0.25)


def test_lost_drafter_context_lowers_the_modelled_length_and_shows_in_the_coverage() -> None:
    """target-only claims the prefix for the target alone, so its drafter starts empty on every hit."""
    lost, kept = (repeats(build, {"coverage": 0.8, "loss": 0.6}).summary() for build in ("target-only", "unified"))
    assert lost["acceptance_mode"] == kept["acceptance_mode"] == "modelled"
    assert lost["drafter_window_coverage"]["first_step_after_hit"] < 0.5
    assert kept["drafter_window_coverage"]["first_step_after_hit"] == 1.0
    worse, better = (run["speculation"]["step_weighted_acceptance_length"] for run in (lost, kept))
    assert worse < better - 0.1


def test_a_forced_length_hides_the_loss() -> None:
    lost, kept = (repeats(build, {"length": 2.6}).summary() for build in ("target-only", "unified"))
    assert lost["speculation"] == kept["speculation"]
    assert lost["drafter_window_coverage"] != kept["drafter_window_coverage"]


def test_builds_share_the_draws_of_a_request() -> None:
    """Numbers of requests may differ between builds; draws hang on the session and the turn."""
    runs = [repeats(build, {"bernoulli": [0.8, 0.6, 0.4]}) for build in ("unified", "paired-22", "joint-backoff")]
    drawn = [{(timing.session, timing.turn): timing.accepted for timing in run.timings} for run in runs]
    assert drawn[0] == drawn[1] == drawn[2]


def test_another_seed_draws_otherwise() -> None:
    one, two = (
        served(tiny([{"name": "s", "prompt": 20, "output": 60}], seed=seed, acceptance={"bernoulli": 0.6}))
        for seed in (1, 2)
    )
    assert one.timings[0].accepted != two.timings[0].accepted


def test_without_checks_an_acceptance_that_reads_the_window_is_refused() -> None:
    scenario = tiny([{"name": "s", "prompt": 20, "output": 20}], acceptance={"coverage": 0.8})
    with pytest.raises(InputError, match="check off keeps no memory"):
        served(scenario, check="off")


def test_without_checks_the_coverage_of_a_forced_run_is_unknown() -> None:
    result = served(tiny([{"name": "s", "prompt": 20, "output": 20}], acceptance={"forced": 2}), check="off")
    assert result.summary()["drafter_window_coverage"] == {"first_step_after_hit": None, "all_steps": None}
