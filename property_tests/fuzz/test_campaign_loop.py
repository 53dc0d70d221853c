"""The loop of a campaign: what is found does not depend on how it is cut, and nothing that dies loses any of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from property_tests.fuzz import digest, helpers
from property_tests.fuzz.campaign import CRASHES_BORNE, Budget, Campaign, Keep, RunShard
from property_tests.fuzz.crew import Alone, Crew, Processes, local
from property_tests.fuzz.ledger import Ledger
from property_tests.fuzz.order import Order
from sim.findings import Campaigned, Failure, ShardResult

ORDER = Order(("unified", "fault:raw-keys"), seed=3)
SUMS = ("examples", "steps", "skips", "evaluations", "features")


def campaign(
    examples: int | None = 48,
    crew: Crew | None = None,
    run: RunShard = helpers.run_shard,
    path: Path | None = None,
    *,
    seconds: float | None = None,
    keep: Keep | None = None,
    order: Order = ORDER,
    tell: Callable[[Campaigned], None] | None = None,
) -> Campaigned:
    """One session, in this process unless told otherwise."""
    ledger = Ledger(path, order, digest.of_code())
    try:
        return Campaign(order, Budget(seconds, examples), crew or Alone(), ledger, run, keep=keep, tell=tell).run()
    finally:
        ledger.close()


def found(done: Campaigned) -> tuple[object, ...]:
    """All that must not depend on how a campaign was cut."""
    return (*(getattr(done.totals, name) for name in SUMS), done.causes)


@pytest.fixture(scope="module")
def serial() -> ShardResult:
    """The same examples in one piece."""
    return helpers.run_shard(ORDER, 0, 48, None)


def test_sums_are_those_of_one_piece(serial: ShardResult) -> None:
    done = campaign()
    assert [getattr(done.totals, name) for name in SUMS] == [getattr(serial, name) for name in SUMS]
    assert serial.failures and done.failures == len(serial.failures)
    assert {cause.key for cause in done.causes} == {failure.cause for failure in serial.failures}
    assert (done.interrupted, done.crashes, done.resumed) == (False, [], 0)


def test_causes_are_told_apart_counted_and_listed_shortest_first(serial: ShardResult) -> None:
    def twice(order: Order, first: int, count: int, deadline: float | None) -> ShardResult:
        result = helpers.run_shard(order, first, count, deadline)
        result.failures += [replace(failure, seed=failure.seed + 1000) for failure in result.failures]
        return result

    done = campaign(run=twice)
    assert done.failures == 2 * len(serial.failures)
    assert sum(cause.count for cause in done.causes) == done.failures
    lengths = [len(cause.kinds) for cause in done.causes]
    assert lengths == sorted(lengths)
    assert {cause.seed for cause in done.causes} <= {failure.seed for failure in serial.failures}


def test_a_failure_is_kept_once_for_its_cause(serial: ShardResult) -> None:
    kept: list[Failure] = []

    def keep(failure: Failure) -> str:
        kept.append(failure)
        return f"{failure.law}-{len(kept)}"

    done = campaign(keep=keep)
    assert len(kept) == len(done.causes) == len({failure.cause for failure in serial.failures})
    assert {cause.folder for cause in done.causes} == {f"{one.law}-{place}" for place, one in enumerate(kept, 1)}


def test_a_killed_process_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(helpers.ONCE, str(tmp_path / "died"))
    done = campaign(crew=Processes(2), run=helpers.dying_once)
    assert (tmp_path / "died").exists()
    assert found(done) == found(campaign())
    assert done.crashes == []


def test_an_example_that_kills_its_process_each_time_is_named_and_the_others_run() -> None:
    done = campaign(4, Processes(1), helpers.dying_at_2)
    assert [(crash.example, crash.what) for crash in done.crashes] == [
        (2, "RuntimeError: the process that ran it died")
    ]
    assert done.totals.examples == 3


def test_an_example_that_crashes_the_harness_twice_is_named_and_the_others_run() -> None:
    done = campaign(40, run=helpers.crashing_at_13)
    assert [(crash.example, crash.what) for crash in done.crashes] == [
        (13, "ZeroDivisionError: a defect of the harness")
    ]
    assert done.totals.examples == 39


def test_a_harness_that_always_crashes_does_not_go_on_for_ever() -> None:
    def broken(order: Order, first: int, count: int, deadline: float | None) -> ShardResult:
        raise ZeroDivisionError

    done = campaign(10_000, run=broken)
    assert len(done.crashes) == CRASHES_BORNE
    assert done.crashes[0].what == "ZeroDivisionError"
    assert done.totals.examples == 0 and not done.checked


def test_a_budget_of_time_ends_it(tmp_path: Path) -> None:
    done = campaign(None, seconds=0.6, path=tmp_path / "ledger.jsonl")
    assert done.totals.examples > 0
    assert 0.3 < done.seconds < 3.0


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_keeps_what_was_found_and_the_next_session_goes_on(tmp_path: Path, workers: int) -> None:
    def press(so_far: Campaigned) -> None:
        if so_far.totals.examples and not pressed:
            pressed.append(1)
            os.kill(os.getpid(), signal.SIGINT)

    pressed: list[int] = []
    cut = campaign(100_000, local(workers), path=tmp_path / "ledger.jsonl", tell=press)
    assert cut.interrupted
    ran = cut.totals.examples
    assert 0 < ran < 100_000
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    whole = campaign(5, path=tmp_path / "ledger.jsonl")
    assert (whole.totals.examples, whole.resumed, whole.interrupted) == (ran + 5, ran, False)
    assert found(whole) == found(campaign(ran + 5))


def test_a_second_ctrl_c_ends_it_at_once() -> None:
    def press(so_far: Campaigned) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    done = campaign(None, Processes(2), seconds=500.0, tell=press)
    assert done.interrupted


def test_a_worker_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    order = replace(ORDER, seed=4)

    def elsewhere(order: Order, first: int, count: int, deadline: float | None) -> ShardResult:
        raise AssertionError("it must not run")

    monkeypatch.setattr("property_tests.fuzz.campaign.digest.of_code", iter(f"{n}" for n in range(99)).__next__)
    done = campaign(order=order, run=elsewhere)
    assert "expected workers with the code of the campaign" in done.crashes[0].what
    assert done.totals.examples == 0
