"""A program that does not end is a failure that names the rule, and a process that does not come back is killed."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from property_tests.fuzz import engine_shards, helpers, machine_shards
from property_tests.fuzz.cache_replay import replay
from property_tests.fuzz.crew import Processes
from property_tests.fuzz.order import Order
from property_tests.fuzz.patience import patience
from property_tests.fuzz.test_campaign_loop import campaign
from sim.cacheops import CacheProgram
from sim.crashes import Hang
from sim.findings import ShardResult
from sim.rulespec import find

LOOP = "from model.rules.claim import JointMinimum\n\n\nclass Mine(JointMinimum):\n    def decide(self, view):\n"
LATE = """\
from model.rules.claim import JointMinimum


class Mine(JointMinimum):
    decided = 0

    def decide(self, view):
        Mine.decided += 1
        if Mine.decided == 8:
            open("hung", "w").close()
            while True:
                view.page_size
        if Mine.decided >= 2:
            raise ValueError("wrong")
        return super().decide(view)
"""
BUILD = "unified+claim=looping_claim:Mine"


@pytest.fixture
def looping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A build whose claim rule does not come to a decision; examples may take half a second."""
    (tmp_path / "looping_claim.py").write_text(LOOP + "        while True:\n            view.page_size\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("property_tests.fuzz.patience.EXAMPLE_S", 0.5)
    return BUILD


def test_a_rule_that_loops_for_ever_is_a_failure_that_names_it(looping: str) -> None:
    done = campaign(2, run=engine_shards.run_shard, order=Order((looping,)))
    assert done.totals.examples == 2
    assert {(cause.law, cause.build) for cause in done.causes} == {("HANG", looping)}
    assert "found it in looping_claim.Mine.decide" in done.causes[0].message
    assert engine_shards.hunt(find(looping), "swarm", 5, shrinks=True).law == "HANG"


@pytest.mark.parametrize("layer", ["cache", "engine", "sim"])
def test_a_program_of_a_machine_that_does_not_end_is_a_failure_that_names_the_rule(looping: str, layer: str) -> None:
    order = Order((looping,), "machine", layer)
    done = campaign(2, run=machine_shards.run_shard, order=order)
    assert (done.totals.examples, done.crashes) == (2, [])
    assert {cause.law for cause in done.causes} == {"HANG"}
    assert "found it in looping_claim.Mine.decide" in done.causes[0].message
    assert machine_shards.hunt(find(looping), layer, 2, shrinks=True).law == "HANG"


def test_a_program_of_the_cache_swarm_that_does_not_end_is_a_failure_and_runs_again(looping: str) -> None:
    done = machine_shards.run_shard(Order((looping,), "swarm", "cache"), 0, 2)
    assert done.examples == 2
    assert [failure.law for failure in done.failures] == ["HANG", "HANG"]
    program = done.failures[0].minimal
    assert isinstance(program, CacheProgram) and program.ops
    again = replay(program, find(looping), "incremental").violations[0]
    told = done.failures[0].violation.message  # the line is that of the moment
    assert (again.code, again.message.partition(" (")[0]) == ("HANG", told.partition(" (")[0])
    assert machine_shards.hunt(find(looping), "cache", 2, shrinks=True, driver="swarm").law == "HANG"


def test_on_a_worker_of_a_cluster_an_example_has_the_same_limit(looping: str) -> None:
    """Such a worker runs its shards in a thread that no signal reaches."""
    with ThreadPoolExecutor(1) as worker:
        shard = worker.submit(engine_shards.run_shard, Order((looping,)), 0, 1)
        machines = worker.submit(machine_shards.run_shard, Order((looping,), "machine", "sim"), 0, 1)
        failures = shard.result().failures + machines.result().failures
    assert [failure.law for failure in failures] == ["HANG", "HANG"]
    assert all("within 0.5 s, found it in looping_claim.Mine.decide" in one.violation.message for one in failures)


def test_a_thread_that_ends_in_time_is_not_disturbed_and_a_late_one_can_be_sent() -> None:
    def slow(seconds: float) -> float:
        until = time.monotonic() + seconds
        with patience(0.2):
            while time.monotonic() < until:
                pass
        until = time.monotonic() + 1.5
        while time.monotonic() < until:  # it stays in peace behind its limit
            pass
        return seconds

    with ThreadPoolExecutor(1) as worker:
        assert worker.submit(slow, 0.0).result() == 0.0
        late = worker.submit(slow, 5.0).exception()
    assert isinstance(late, Hang) and "within 0.2 s" in str(late) and "test_patience" in str(late)
    sent = pickle.loads(pickle.dumps(late))
    assert (type(sent), str(sent)) == (Hang, str(late))


def test_a_failure_is_not_shrunk_into_a_program_that_does_not_end(looping: str, tmp_path: Path) -> None:
    (tmp_path / "late_claim.py").write_text(LATE)
    failure = engine_shards.hunt(find("unified+claim=late_claim:Mine"), "swarm", 20, shrinks=True).failure
    assert failure is not None and failure.law == "CRASH"
    assert (tmp_path / "hung").exists(), "one of the programs that were tried did not end"


def test_machines_that_do_not_end_are_crashes_of_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    def hanging(order: Order, first: int, count: int, deadline: float | None) -> ShardResult:
        with patience(0.1 if first <= 3 < first + count else 5.0):
            while first <= 3 < first + count:
                pass
        return helpers.run_shard(order, first, count, deadline)

    monkeypatch.setattr("property_tests.fuzz.campaign.FIRST_SHARD", 3)
    done = campaign(9, run=hanging)
    assert [crash.example for crash in done.crashes] == [3]
    assert "within 0.1 s" in done.crashes[0].what and "hanging" in done.crashes[0].what
    assert done.totals.examples == 8


def test_what_ends_in_time_is_not_disturbed() -> None:
    with patience(0.1):
        ended = True
    time.sleep(0.15)
    assert ended
    with pytest.raises(Hang, match=r"within 0\.1 s"), patience(0.1):
        time.sleep(5)


def test_a_process_that_does_not_come_back_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("property_tests.fuzz.campaign.SILENT_S", 1.5)
    done = campaign(1, Processes(1), helpers.deaf)
    assert [(crash.example, crash.what) for crash in done.crashes] == [
        (0, "RuntimeError: the process that ran it died")
    ]


def test_a_session_that_is_over_does_not_wait_for_a_process_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("property_tests.fuzz.campaign.LATE_S", 0.5)
    began = time.monotonic()
    done = campaign(None, Processes(1), helpers.deaf, seconds=1.5)
    assert time.monotonic() - began < 30.0
    assert done.totals.examples == 0


def test_a_pool_that_was_told_to_drop_its_calls_breaks_as_any_other() -> None:
    crew = Processes(1)
    running = [crew.executor.submit(time.sleep, 60.0) for _ in range(4)]
    crew.drop(running)
    while not running[0].running():
        time.sleep(0.05)
    crew.kill()
    assert not wait(running, timeout=30).not_done
    assert all(isinstance(future.exception(), BrokenExecutor) for future in running)
    crew.leave(True)
