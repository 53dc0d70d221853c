"""The link to the host tier under the clock: times of copies, steps that wait, copies that fail."""

from __future__ import annotations

from model.builds import BUILDS
from model.ops import Land, Lose
from scenarios import catalog
from scenarios.behaviour_schema import Disturbance, HostLink
from scenarios.schema import Scenario
from sim.link import GIB, LinkProfile, page_bytes
from sim.optrace import Trace
from sim.replay import replay_trace
from sim.result import RunResult
from sim.run import run_scenario


def toy(**link: float) -> Scenario:
    return catalog.load("smoke/host_link").replace(host_link=HostLink(**{"gib_per_s": 1.0, **link}))


def run(scenario: Scenario, build: str = "unified") -> RunResult:
    result = run_scenario(scenario, BUILDS[build], check="exhaustive", record_ops=True)
    assert result.violations == []
    assert result.missed == []
    return result


def test_a_copy_takes_its_bytes_over_the_bandwidth_and_the_latency() -> None:
    assert LinkProfile(2.0 * GIB).copy_ns(GIB) == 500_000_000
    assert LinkProfile(1.0 * GIB, latency_ns=700).copy_ns(0) == 700
    assert LinkProfile(1e30).copy_ns(1) == 1
    sizes = page_bytes(catalog.load("smoke/host_link").engine_config())
    assert sizes == {"target": 4 * 2 * 8 * 2 * 2, "draft": 4 * 8 * 2 * 2}  # tokens, layers, head, K and V, bytes


def test_a_slow_link_makes_steps_wait_and_decides_the_same_work() -> None:
    fast, slow = run(toy(latency_us=1.0)), run(toy(latency_us=40_000.0))
    assert slow.duration_ns > 2 * fast.duration_ns
    assert slow.totals.finished == fast.totals.finished == len(slow.records)
    assert slow.totals.loads
    busy = slow.device_busy_ns
    assert busy < slow.duration_ns / 2


def test_copies_fail_as_often_as_the_link_says_and_the_same_ones_each_time() -> None:
    first, second = run(toy(loss=0.3)), run(toy(loss=0.3))
    assert first.totals.lost_copies > 0
    assert first.decision_digest == second.decision_digest
    lost = [op for op in first.ops if isinstance(op, Lose)]
    assert len(lost) == first.totals.lost_copies
    assert run(toy(loss=0.0)).totals.lost_copies == 0


def test_a_disturbance_names_the_copies_of_which_the_next_one_fails() -> None:
    scenario = toy(latency_us=1.0)
    for copies in ("loads", "stores"):
        item = Disturbance(at_iteration=3, action="lose", copies=copies)  # type: ignore[arg-type]
        assert run(scenario.replace(disturbances=[item])).totals.lost_copies == 1


def test_a_disturbance_of_copies_needs_copies_that_take_time() -> None:
    item = Disturbance(at_iteration=3, action="lose", copies="loads")
    result = run(catalog.load("smoke/host_tier").replace(disturbances=[item]))
    assert result.notes == [
        "lose one of the loads before iteration 3: not applied, copies between the tiers are done at once here"
    ]


def test_the_ops_of_a_run_with_copies_replay_to_its_digests() -> None:
    result = run(toy(latency_us=8000.0, loss=0.2))
    assert any(isinstance(op, Land) for op in result.ops)
    digests = result.decision_digest, result.memory_digest
    trace = Trace("toy", "unified", 0, "exhaustive", result.config, tuple(result.ops), *digests)
    again = replay_trace(trace, BUILDS["unified"], check="exhaustive")
    assert again.missed == []
    assert (again.decision_digest, again.memory_digest) == digests
