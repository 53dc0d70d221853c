"""A program that does not end is a failure that names the rule, and a process that does not come back is killed."""

from __future__ import annotations

import time
from concurrent.futures import BrokenExecutor, wait
from pathlib import Path

import pytest

from property_tests.fuzz import engine_shards, helpers
from property_tests.fuzz.crew import Processes
from property_tests.fuzz.order import Order
from property_tests.fuzz.patience import Hang, patience
from property_tests.fuzz.test_campaign_loop import campaign
from sim.findings import ShardResult
from sim.rulespec import find

LOOP = "from model.rules.claim import JointMinimum\n\n\nclass Mine(JointMinimum):\n    def decide(self, view):\n"
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
