"""The clock of one server: when steps start and end, with the host hidden behind the device and without."""

from __future__ import annotations

from itertools import pairwise

import pytest

from property_tests.sim_room.helpers import FLAT, MS, served, tiny
from sim.cost import PROFILES

ONE = [{"name": "one", "prompt": 8, "output": 6}]


def arrivals_ms(overlap: bool, host_ms: float) -> list[float]:
    cost = {"profile": "tp4-000", "prefill_us_per_token": 100.0, "host_ms": host_ms}
    result = served(tiny(ONE, acceptance={"forced": 2}, cost=cost, limits={"overlap": overlap}))
    return [time / MS for time in result.timings[0].arrivals]


def test_overlap_runs_steps_back_to_back_behind_a_hidden_host() -> None:
    """One prefill, one placeholder step of 1 token, two verify steps of 2: the host shows before the first only."""
    assert arrivals_ms(overlap=True, host_ms=2.0) == pytest.approx([10.9, 19.0, 27.1, 35.2])


def test_without_overlap_every_step_waits_for_the_host() -> None:
    assert arrivals_ms(overlap=False, host_ms=2.0) == pytest.approx([10.9, 21.0, 31.1, 41.2])


def test_a_host_slower_than_the_device_sets_the_pace_under_overlap() -> None:
    """Each dispatch takes 20 ms of the host, a step 8.1 ms of the device: a step ends 8.1 ms after its dispatch."""
    times = arrivals_ms(overlap=True, host_ms=20.0)
    assert times[0] >= 20.0 + 8.9
    assert [after - before for before, after in pairwise(times)] == pytest.approx([20.0] * 3, abs=0.8)


def test_first_token_and_latencies_follow_from_the_steps() -> None:
    timing = served(tiny(ONE, cost={**FLAT, "host_ms": 0.0})).timings[0]
    assert timing.counts == bytes([1, 1, 2, 2])
    assert timing.ttft_ns == 50 * MS
    assert timing.e2e_ns == 200 * MS
    assert timing.itl_ns == 30 * MS  # 150 ms for the five tokens after the first


def test_a_step_costs_what_its_rows_and_prefill_tokens_cost() -> None:
    sessions = [{"name": "a", "prompt": 8, "output": 30, "copies": 2}]
    result = served(tiny(sessions, cost={"profile": "tp4-003", "prefill_us_per_token": 10.0, "host_ms": 0.0}))
    profile = PROFILES["tp4-003"].with_inputs(10.0, 0.0)
    assert result.timings[0].arrivals[0] == profile.step_ns(0, 16)
    assert result.timings[0].arrivals[1] == profile.step_ns(0, 16) + profile.step_ns(2, 0)


def test_the_device_is_never_busy_longer_than_the_run_and_steps_that_were_in_flight() -> None:
    result = served(tiny([{"name": "a", "prompt": 20, "output": 12, "copies": 6}]))
    late = 50 * MS  # a step dispatched for a request that then ended
    assert 0 < result.device_busy_ns <= result.duration_ns + late
    assert result.summary()["device_busy_share"] == result.device_busy_ns / result.duration_ns


def test_an_idle_server_wakes_for_the_next_arrival() -> None:
    sessions = [{"name": name, "arrival_s": at, "prompt": 8, "output": 4} for name, at in (("a", 0.0), ("b", 5.0))]
    first, second = served(tiny(sessions, concurrency=None, cost={**FLAT, "host_ms": 0.0})).timings
    assert (first.finish_ns, second.submit_ns) == (first.arrivals[-1], 5_000 * MS)
    assert second.ttft_ns == 50 * MS
