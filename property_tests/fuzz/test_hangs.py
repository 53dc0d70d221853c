"""A hang on a shipped build, and one where no law is judged: each is told of the example that it came in."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from model.scheduler import Scheduler
from property_tests.fuzz import engine_shards, helpers, machine_shards, swarm
from property_tests.fuzz.cache_swarm import CacheSwarm
from property_tests.fuzz.machines import engine as machines
from property_tests.fuzz.machines.sim import SimMachine
from property_tests.fuzz.order import Order
from property_tests.fuzz.patience import patience
from property_tests.fuzz.swarm import Driver
from property_tests.fuzz.test_campaign_loop import campaign
from sim.crashes import HANG, Hang
from sim.findings import ShardResult

SHIPPED = ("unified",)


@pytest.fixture
def hangs(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str, int], None]:
    """Let a function not come back from its call number so-and-so; examples may take a second."""
    monkeypatch.setattr("property_tests.fuzz.patience.EXAMPLE_S", 1.0)

    def at(owner: Any, name: str, call: int) -> None:
        usual, calls = getattr(owner, name), 0

        def hanging(*given: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            while calls == call:
                pass
            return usual(*given, **named)

        monkeypatch.setattr(owner, name, hanging)

    return at


@pytest.mark.parametrize(
    ("layer", "owner", "name", "call"),
    [
        ("sim", Scheduler, "_chunk", 10),
        ("sim", SimMachine, "values", 2),
        ("engine", Driver, "fruitless", 40),
        ("cache", CacheSwarm, "draw", 40),
    ],
)
def test_a_hang_of_a_machine_on_a_shipped_build_is_a_failure(
    hangs: Callable[[Any, str, int], None], layer: str, owner: Any, name: str, call: int
) -> None:
    """In the model, and where the machine or its driver is at work."""
    hangs(owner, name, call)
    done = campaign(4, run=machine_shards.run_shard, order=Order(SHIPPED, "machine", layer))
    assert (done.totals.examples, done.crashes) == (4, [])
    assert {(cause.law, cause.build) for cause in done.causes} == {(HANG, *SHIPPED)}
    assert any("within 1 s, found it in property_tests.fuzz.test_hangs" in cause.message for cause in done.causes)


def test_a_hang_between_two_ops_of_the_cache_swarm_is_a_failure(hangs: Callable[[Any, str, int], None]) -> None:
    hangs(CacheSwarm, "draw", 40)
    done = campaign(4, run=machine_shards.run_shard, order=Order(SHIPPED, "swarm", "cache"))
    assert (done.totals.examples, done.crashes, [cause.law for cause in done.causes]) == (4, [], [HANG])
    assert done.causes[0].kinds


@pytest.mark.parametrize(("driver", "owner"), [("swarm", swarm), ("machine", machines)])
def test_a_hang_before_there_is_a_program_is_a_crash_of_its_example_and_loses_no_other(
    hangs: Callable[[Any, str, int], None], driver: str, owner: Any
) -> None:
    hangs(owner, "setup", 4)
    run = engine_shards.run_shard if driver == "swarm" else machine_shards.run_shard
    done = campaign(6, run=run, order=Order(SHIPPED, driver))
    assert [crash.example for crash in done.crashes] == [3]
    assert "within 1 s" in done.crashes[0].what
    assert (done.totals.examples, done.causes) == (5, [])


def kept() -> bool:
    """Whether any limit is still kept."""
    watchers = [thread for thread in threading.enumerate() if thread.name == "patience"]
    for watcher in watchers:
        watcher.join(2.0)
    return any(watcher.is_alive() for watcher in watchers) or signal.getitimer(signal.ITIMER_REAL)[0] > 0.0


def test_a_limit_that_a_hang_kept_from_being_left_ends_with_the_next_one() -> None:
    """A Hang may come as the limit is about to be left, which then does not happen."""

    def example() -> bool:
        left_behind = patience(60.0)
        left_behind.__enter__()
        with patience(60.0):
            pass
        return kept()

    with ThreadPoolExecutor(1) as worker:
        assert [example(), worker.submit(example).result()] == [False, False]


def test_a_worker_keeps_no_limit_behind_a_shard() -> None:
    def shard(order: Order, first: int, count: int, deadline: float | None) -> ShardResult:
        patience(60.0).__enter__()
        return helpers.run_shard(order, first, count, deadline)

    assert campaign(2, run=shard).totals.examples == 2
    assert not kept()


def test_a_hang_while_a_limit_begins_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "patience":
            raise Hang("early")

    def enter() -> None:
        with patience(60.0):
            raise AssertionError

    with ThreadPoolExecutor(1) as worker:
        worker.submit(kept).result()  # its thread is there
        monkeypatch.setattr(threading.Thread, "start", interrupted)
        assert isinstance(worker.submit(enter).exception(), Hang)
        assert not worker.submit(kept).result()


def test_what_takes_no_notice_of_a_hang_is_left_in_peace_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("property_tests.fuzz.patience.AGAIN_S", 0.02)
    monkeypatch.setattr("property_tests.fuzz.patience.TIMES", 3)

    def stubborn() -> int:
        hangs, until = 0, time.monotonic() + 0.4
        with patience(0.02):
            while time.monotonic() < until:
                try:
                    while time.monotonic() < until:
                        pass
                except Hang:
                    hangs += 1
        return hangs

    with ThreadPoolExecutor(1) as worker:
        assert [stubborn(), worker.submit(stubborn).result()] == [3, 3]
