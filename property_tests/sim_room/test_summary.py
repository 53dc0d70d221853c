"""Latencies and speculation figures of hand-made timings: the definitions that AIPerf uses."""

from __future__ import annotations

from array import array

import pytest

from sim.clock import Clock
from sim.summary import (
    distribution,
    latencies,
    speculation,
    speculation_record,
    step_times,
    throughput,
    window_coverage,
)
from sim.ticket import RequestTiming

MS = 1_000_000


def timing(
    request_id: int, arrivals_ms: list[int], counts: list[int], accepted: list[int], submit_ms: int = 0, turn: int = 0
) -> RequestTiming:
    arrivals = array("q", [time * MS for time in arrivals_ms])
    finish = arrivals[-1] if arrivals else submit_ms * MS
    first = 0.25 if accepted else -1.0
    coverage = (first, 0.5 * len(accepted))
    return RequestTiming(
        request_id, "s", turn, submit_ms * MS, finish, arrivals, bytes(counts), bytes(accepted), *coverage
    )


FOUR_STEPS = timing(0, [110, 120, 140, 150], [1, 1, 3, 2], [3, 4], submit_ms=10)


def test_latencies_count_from_submission_and_share_a_step_among_its_tokens() -> None:
    assert FOUR_STEPS.tokens == 7
    assert FOUR_STEPS.ttft_ns == 100 * MS
    assert FOUR_STEPS.e2e_ns == 140 * MS
    assert FOUR_STEPS.second_token_ns == 10 * MS
    assert FOUR_STEPS.itl_ns == pytest.approx(40 * MS / 6)
    assert FOUR_STEPS.gaps_ns == [10 * MS, 20 * MS, 10 * MS]


def test_a_request_without_tokens_has_no_latencies() -> None:
    none = timing(1, [], [], [])
    assert (none.ttft_ns, none.e2e_ns, none.itl_ns, none.second_token_ns) == (None, None, None, None)
    assert latencies([none])["time_to_first_token_ms"] == {"count": 0}


def test_the_per_user_rate_is_one_over_the_inter_token_latency() -> None:
    found = latencies([FOUR_STEPS])
    assert found["output_token_throughput_per_user"]["mean"] == pytest.approx(6 / 0.040)
    assert found["inter_token_latency_ms"]["p99"] == pytest.approx(40 / 6)
    assert found["inter_chunk_latency_ms"]["count"] == 3


def test_a_distribution_has_aiperfs_statistics() -> None:
    found = distribution(range(1, 101))
    assert (found["mean"], found["min"], found["max"], found["p50"]) == (50.5, 1.0, 100.0, 50.5)
    assert [found[f"p{rank}"] for rank in (75, 90, 95, 99)] == pytest.approx([75.25, 90.1, 95.05, 99.01])
    assert found["std"] == pytest.approx(28.866, abs=0.001)


def test_throughput_divides_by_the_simulated_duration() -> None:
    found = throughput([FOUR_STEPS], 500 * MS)
    assert found == {"output_token_throughput": 14.0, "request_throughput": 2.0}


def test_the_speculation_record_counts_the_last_step_whole_and_no_placeholder() -> None:
    record = speculation_record(FOUR_STEPS, drafts=7)
    assert record["per_step_accepted"] == [2, 3]  # the output limit cut the second step to 2 tokens
    assert record["mean_acceptance_length"] == 3.5
    assert record["num_spec_steps"] == 2
    assert record["num_draft_tokens"] == 14
    assert record["draft_acceptance_rate"] == pytest.approx(5 / 14)
    assert record["acceptance_histogram"] == {2: 1, 3: 1}
    assert record["completion_tokens"] == 7


def test_request_mean_and_step_weighted_lengths_differ_when_step_counts_do() -> None:
    long = timing(1, [10, 20, 30, 40], [1, 1, 1, 1], [1, 1, 1, 1])
    found = speculation([FOUR_STEPS, long, timing(2, [5], [1], [])], drafts=7)
    assert found["request_mean_acceptance_length"] == pytest.approx((3.5 + 1.0) / 2)
    assert found["step_weighted_acceptance_length"] == pytest.approx((7 + 4) / 6)
    assert found["accepted_per_verified"] == pytest.approx((5 + 6) / (6 * 7 + 6))
    assert found["num_spec_steps"] == 6


def test_a_run_that_verified_nothing_has_no_acceptance_length() -> None:
    found = speculation([timing(0, [5], [1], [])], drafts=7)
    assert found["step_weighted_acceptance_length"] is None
    assert window_coverage([timing(0, [5], [1], [])], {0})["first_step_after_hit"] is None


def test_coverage_after_a_hit_looks_at_the_hits_only() -> None:
    cold, hit = timing(0, [1, 2], [1, 1], [2, 2]), timing(1, [1, 2], [1, 1], [2])
    found = window_coverage([cold, hit], {1})
    assert found == {"first_step_after_hit": 0.25, "all_steps": 0.5}


def test_step_times_are_of_steps_of_verify_rows_alone_by_their_number() -> None:
    """Steps with prompt tokens are left out; several workers are pooled."""
    one, other = Clock(), Clock()
    for clock, rows, tokens, took in (
        (one, 4, 0, 10),
        (one, 4, 0, 12),
        (one, 4, 500, 90),
        (other, 4, 0, 20),
        (other, 1, 0, 7),
    ):
        clock.settled((0, 0, 100 * MS, (100 + took) * MS, 200 * MS), rows, tokens)
    assert step_times([one, other]) == [
        {"rows": 1, "count": 1, "p50_ms": 7.0, "mean_ms": 7.0},
        {"rows": 4, "count": 3, "p50_ms": 12.0, "mean_ms": 14.0},
    ]
    assert step_times([]) == step_times([Clock()]) == []
