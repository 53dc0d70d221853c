"""The simulated clock beside the event log: every record has a time, every settled plan its five."""

from __future__ import annotations

import numpy as np
import pytest

from model.builds import BUILDS
from model.events import Kind
from scenarios import catalog
from scenarios.schema import Scenario
from sim.clock import STEP_FIELDS, Clock
from sim.result import RunResult
from sim.run import run_scenario

CLOCKED = ("smoke/hello", "smoke/disturbed", "smoke/pressure", "smoke/host_link")
SEVERAL = ("reports/o67", "reports/o37", "reports/o75")  # a pair, a fleet, ranks


def run(scenario: Scenario | str) -> RunResult:
    scenario = catalog.load(scenario) if isinstance(scenario, str) else scenario
    return run_scenario(scenario, BUILDS[scenario.build], check="off", keep_events=True)


def steps_of(clock: Clock) -> np.ndarray:
    return np.array(clock.steps, dtype=np.int64).reshape(-1, len(STEP_FIELDS))


def marks_of(clock: Clock) -> np.ndarray:
    return np.array(clock.marks, dtype=np.int64).reshape(-1, 2)


def times_of(result: RunResult, worker: int, kind: Kind) -> list[tuple[int, int]]:
    """First field and time of each record of a kind."""
    marks, found, place = marks_of(result.clocks[worker]), [], 0
    log = result.logs[worker].decisions
    for data in log.kept:
        values = np.frombuffer(data, dtype="<i8").tolist()
        at = 0
        while at < len(values):
            if values[at] == kind:
                now = marks[np.searchsorted(marks[:, 0], place, side="right") - 1, 1]
                found.append((values[at + 2], int(now)))
            place, at = place + 1, at + 2 + values[at + 1]
    assert place == log.count
    return found


@pytest.mark.parametrize("scenario", [*CLOCKED, *SEVERAL])
def test_a_step_is_dispatched_begun_ended_and_settled_in_this_order(scenario: str) -> None:
    result = run(scenario)
    assert len(result.clocks) == len(result.logs)
    for worker, clock in enumerate(result.clocks):
        steps = steps_of(clock)
        assert len(steps)
        assert (np.diff(steps[:, 1:], axis=1) >= 0).all()
        assert (steps[1:, 2] >= steps[:-1, 3]).all()  # the device runs one step at a time
        dispatched = dict(times_of(result, worker, Kind.ITERATION))
        assert [dispatched[iteration] for iteration in steps[:, 0].tolist()] == steps[:, 1].tolist()


@pytest.mark.parametrize("scenario", [*CLOCKED, *SEVERAL])
def test_records_carry_the_times_at_which_clients_sent_and_got_their_requests(scenario: str) -> None:
    result = run(scenario)
    sent = {timing.request_id: timing.submit_ns for timing in result.timings}
    ended = {timing.request_id: timing.finish_ns for timing in result.timings}
    workers = range(len(result.logs))
    submitted = [entry for worker in workers for entry in times_of(result, worker, Kind.SUBMIT)]
    finished = [entry for worker in workers for entry in times_of(result, worker, Kind.FINISH)]
    assert submitted
    assert finished
    assert {request: sent[request] for request, _ in submitted} == dict(submitted)
    assert {request: ended[request] for request, _ in finished} == dict(finished)


def test_a_copy_between_the_tiers_lands_later_than_it_began() -> None:
    result = run("smoke/host_link")
    begun, landed = dict(times_of(result, 0, Kind.START)), dict(times_of(result, 0, Kind.LAND))
    assert len(landed) > 10
    late = [landed[copy] - begun[copy] for copy in landed]
    assert min(late) > 0


def test_a_transfer_arrives_after_it_was_sent() -> None:
    result = run("reports/o67")
    sent, arrived = dict(times_of(result, 1, Kind.SEND)), dict(times_of(result, 1, Kind.ARRIVE))
    assert sent
    assert sent.keys() == arrived.keys()
    assert all(arrived[request] > sent[request] for request in sent)


def test_ops_as_they_stand_have_no_clock() -> None:
    assert run("smoke/ops").clocks == []
