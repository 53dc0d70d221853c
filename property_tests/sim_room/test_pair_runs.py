"""Disaggregated scenarios: the time that a transfer takes, what a loss costs, what the drafter sees, and X12."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from model.builds import BUILDS
from model.linkops import Abort, Arrive, Send
from property_tests.sim_room.helpers import FLAT, MS, busy, served, tiny
from scenarios import catalog
from scenarios.errors import InputError
from sim.optrace import Trace, load_trace, save_trace
from sim.replay import replay_trace
from sim.result import RunResult
from sim.run import run_scenario

CHATS: list[dict[str, Any]] = [{"name": "chat", "copies": 4, "prompt": 32, "output": 12}]


def pair(build: str = "unified", link: dict[str, Any] | None = None, **fields: Any) -> RunResult:
    """Four chats on a pair of tiny workers, two at a time unless told otherwise."""
    workers = {"kind": "disaggregated", "link": link or {}, **fields.pop("workers", {})}
    return served(
        tiny(CHATS, fields.pop("concurrency", 2), workers=workers, pools={"target": 60, "draft": 40}, **fields),
        build,
        record_ops=True,
    )


def count(result: RunResult, kind: type) -> int:
    return sum(isinstance(op, kind) for op in result.ops)


def test_a_request_is_prefilled_sent_and_generated() -> None:
    result = pair()
    assert result.violations == [] and result.exit_code == 0
    assert result.checked["FLIGHT"] > 0
    for record in result.records:
        assert (record.state, record.prefilled_tokens, record.received_tokens) == ("finished", 32, 32)
        assert record.output_tokens == 12
    assert [use.name for use in result.occupancy] == ["target@0", "draft@0", "target@1", "draft@1"]


def test_what_waits_to_be_sent_is_not_taken_for_a_request_that_holds_up_a_pass() -> None:
    result = pair(concurrency=4, limits={"max_num_tokens": 256})
    assert [record.preemptions for record in result.records] == [0] * 4
    assert [record.prefilled_tokens for record in result.records] == [32] * 4, "nothing is computed twice"


def test_the_second_token_waits_for_the_link() -> None:
    near, far = (pair(link={"latency_s": latency}, cost=FLAT, concurrency=1) for latency in (0.0, 0.3))
    for one, other in zip(near.timings, far.timings, strict=True):
        assert one.second_token_ns is not None and other.second_token_ns is not None
        assert other.second_token_ns - one.second_token_ns == pytest.approx(300 * MS, abs=0.01 * MS)
    first = [result.timings[0].ttft_ns for result in (near, far)]
    assert first[0] == first[1], "the first token comes from the prefill worker"


def test_transfers_take_the_link_one_after_the_other() -> None:
    slow = pair(link={"gib_per_s": 1e-6}, cost=FLAT)
    fast = pair(link={"gib_per_s": 100.0}, cost=FLAT)
    assert slow.duration_ns > fast.duration_ns


def test_what_is_lost_is_sent_again() -> None:
    result = pair(link={"loss": 0.5, "latency_s": 0.01})
    assert result.violations == []
    assert count(result, Abort) > 0
    assert count(result, Send) > count(result, Abort)
    assert {record.received_tokens for record in result.records} == {32}


def test_or_prefilled_by_the_decode_worker() -> None:
    result = pair(link={"loss": 0.5, "recompute": True})
    lost = count(result, Abort)
    assert result.violations == [] and 0 < lost < 4
    assert sorted(record.received_tokens for record in result.records) == [0] * lost + [32] * (4 - lost)
    assert result.totals.prefilled_tokens == 4 * 32 + lost * 33  # the prompt and its first token


@pytest.mark.parametrize("build", ["unified", "paired-22", "mirror-21281"])
def test_a_drafter_without_its_pages_starts_blind(build: str) -> None:
    whole, blind = pair(build), pair(build, workers={"transfers_draft": False})
    assert {timing.coverage_first for timing in whole.timings} == {1.0}
    assert max(timing.coverage_first for timing in blind.timings) < 0.5
    assert whole.violations == blind.violations == []


def test_the_build_that_sends_target_pages_alone_is_sound_and_blind() -> None:
    scenario = catalog.load("reports/o67")
    shares = {}
    for build in ("unified", "unified-target-sent"):
        result = run_scenario(scenario, BUILDS[build], check="exhaustive")
        assert result.violations == [] and result.missed == []
        shares[build] = {round(timing.coverage_first, 3) for timing in result.timings}
    assert shares["unified"] == {1.0}
    assert max(shares["unified-target-sent"]) < 0.5


@pytest.mark.parametrize("drafts", [True, False])
@pytest.mark.parametrize("build", ["mirror-21281", "paired-22", "unified"])
def test_x12_a_64k_request_decodes_on_a_drafter_pool_of_8k_tokens(build: str, drafts: bool) -> None:
    scenario = catalog.load("seeds/x12")
    workers = scenario.workers
    assert workers is not None
    result = run_scenario(
        scenario.replace(workers=workers.model_copy(update={"transfers_draft": drafts})), BUILDS[build]
    )
    assert result.violations == [] and result.missed == []
    peak = next(use.peak for use in result.occupancy if use.name == "draft@1")
    assert 33 <= peak <= 35, "the window of 4,096 tokens, and what is in flight behind it"


def test_x12_fails_without_the_history_hint() -> None:
    result = run_scenario(catalog.load("seeds/x12"), BUILDS["mirror-legacy"])
    admit = next(violation for violation in result.violations if (violation.code, violation.worker) == ("ADMIT", 1))
    assert "65551 tokens with history 0" in admit.message


def test_a_busy_pair_is_silent_and_repeats_itself() -> None:
    workers = {"kind": "disaggregated", "link": {"latency_s": 0.02, "loss": 0.2}}
    disturbances = [{"action": "cancel", "at_s": 0.3, "request": 2}, {"action": "suspend", "at_s": 0.6, "request": 4}]
    runs = [served(busy(workers=workers, disturbances=disturbances), "paired-22") for _ in range(2)]
    assert runs[0].violations == []
    assert runs[0].decision_digest == runs[1].decision_digest
    assert runs[0].memory_digest == runs[1].memory_digest


def test_a_trace_of_a_pair_repeats_its_run(tmp_path: Path) -> None:
    scenario = busy(workers={"kind": "disaggregated", "link": {"latency_s": 0.02, "loss": 0.3}})
    first = served(scenario, record_ops=True)
    assert count(first, Arrive) and count(first, Abort)
    digests = {"decision_digest": first.decision_digest, "memory_digest": first.memory_digest}
    config, ops = scenario.engine_config(), tuple(first.ops)
    trace = Trace("pair", "unified", 0, "incremental", config, ops, **digests, workers=scenario.topology())
    save_trace(tmp_path / "ops.jsonl", trace)
    again = replay_trace(load_trace(tmp_path / "ops.jsonl"), BUILDS["unified"])
    assert again.missed == []
    assert again.decision_digest == first.decision_digest
    assert again.memory_digest == first.memory_digest


@pytest.mark.parametrize(
    ("workers", "says"),
    [
        ({"count": 3}, "workers.count: expected 2"),
        ({"link": {"loss": 1.0}}, "loss"),
        ({"link": {"gib_per_s": 0}}, "gib_per_s"),
        ({"transfers_draft": "no"}, "transfers_draft"),
    ],
)
def test_a_pair_that_cannot_be_is_refused_in_one_line(workers: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as error:
        pair(workers=workers) if "link" not in workers else pair(link=workers["link"])
    assert says in str(error.value)
    assert "\n" not in str(error.value)
