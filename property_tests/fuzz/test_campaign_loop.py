"""The loop of a campaign: what is found does not depend on how it is cut, and nothing that dies loses any of it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model.builds import Build
from property_tests.fuzz import campaign as campaigns
from property_tests.fuzz import digest, engine_shards, helpers, machine_shards, shards
from property_tests.fuzz.campaign import CRASHES_BORNE, ENDING, Budget, Campaign, Keep, Note, RunShard
from property_tests.fuzz.crew import Alone, Crew, Processes, local
from property_tests.fuzz.ledger import Ledger
from property_tests.fuzz.order import SHRUNK, Order
from property_tests.fuzz.shrink import Shrunk, shrink
from sim.findings import Campaigned, Failure, ShardResult
from sim.optrace import Trace

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
    note: Note | None = None,
) -> Campaigned:
    """One session, in this process unless told otherwise."""
    ledger = Ledger(path, order, digest.of_code())
    try:
        budget, crew = Budget(seconds, examples), crew or Alone()
        return Campaign(order, budget, crew, ledger, run, keep=keep, tell=tell, note=note).run()
    finally:
        ledger.close()


def told_apart(failures: list[Failure]) -> list[Failure]:
    """The first failures of each law on each build."""
    lowest = sorted(failures, key=lambda failure: failure.seed)
    places = [(failure.law, failure.minimal.build) for failure in lowest]
    return [failure for n, failure in enumerate(lowest) if places[:n].count(places[n]) < SHRUNK]


def found(done: Campaigned) -> tuple[object, ...]:
    """All that must not depend on how a campaign was cut."""
    return (*(getattr(done.totals, name) for name in SUMS), done.causes, done.further)


@pytest.fixture(scope="module")
def serial() -> ShardResult:
    """The same examples in one piece."""
    return helpers.run_shard(ORDER, 0, 48, None)


def test_sums_are_those_of_one_piece(serial: ShardResult) -> None:
    done = campaign()
    assert [getattr(done.totals, name) for name in SUMS] == [getattr(serial, name) for name in SUMS]
    assert serial.failures and done.failures == len(serial.failures)
    assert {cause.key for cause in done.causes} == {failure.cause for failure in told_apart(serial.failures)}
    assert (done.interrupted, done.crashes, done.resumed) == (False, [], 0)


def test_causes_are_told_apart_counted_and_listed_shortest_first(serial: ShardResult) -> None:
    def twice(order: Order, first: int, count: int, deadline: float | None) -> ShardResult:
        result = helpers.run_shard(order, first, count, deadline)
        result.failures += [replace(failure, seed=failure.seed + 1000) for failure in result.failures]
        return result

    done = campaign(run=twice)
    assert done.failures == 2 * len(serial.failures)
    assert sum(cause.count for cause in done.causes) + done.further.total() == done.failures
    lengths = [len(cause.kinds) for cause in done.causes]
    assert lengths == sorted(lengths)
    assert {cause.seed for cause in done.causes} <= {failure.seed for failure in serial.failures}


def test_a_failure_is_kept_once_for_its_cause(serial: ShardResult) -> None:
    kept: list[Failure] = []

    def keep(failure: Failure) -> str:
        kept.append(failure)
        return f"{failure.law}-{len(kept)}"

    done = campaign(keep=keep)
    assert len(kept) == len(done.causes) == len({failure.cause for failure in told_apart(serial.failures)})
    assert {cause.folder for cause in done.causes} == {f"{one.law}-{place}" for place, one in enumerate(kept, 1)}


def test_causes_and_what_is_kept_of_them_do_not_depend_on_how_a_campaign_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cut(size: int, swap: bool = False) -> tuple[object, ...]:
        def keep(failure: Failure) -> str:
            folders[name := f"{failure.law} {failure.minimal.build} {failure.kinds}"] = failure.seed
            return name

        folders: dict[str, int] = {}
        ledger = Ledger(None, order, digest.of_code())
        one = Campaign(
            order, Budget(examples=32), Alone(), ledger, shards.runner(order), keep=keep, drop=folders.__delitem__
        )
        if swap:  # the second half comes in first
            ends = [(16, 32), (0, 16)]
            monkeypatch.setattr(one._numbers, "take", lambda *_: ends.pop(0))
        monkeypatch.setattr("property_tests.fuzz.campaign.LARGEST_SHARD", size)
        one._size = size
        done = one.run()
        assert done.totals.examples == 32
        assert {cause.folder: cause.seed for cause in done.causes} == folders
        return done.causes, done.further, folders

    def once(trace: Trace, build: Build, *, consult: bool) -> Shrunk | None:
        """Shrunk a little; a program that comes again has been shrunk before."""
        if trace.seed not in shrunk:
            shrunk[trace.seed] = shrink(trace, build, runs=80, consult=consult)
        return shrunk[trace.seed]

    shrunk: dict[int, Shrunk | None] = {}
    order = Order(("target-only",), "swarm", seed=1)
    monkeypatch.setattr(engine_shards, "shrink", once)
    causes, further, _ = whole = cut(32)
    assert causes and further
    assert cut(8) == whole
    assert cut(16, swap=True) == whole


def test_of_two_failures_of_one_cause_in_a_shard_the_lowest_seed_is_kept(serial: ShardResult) -> None:
    def alike(order: Order, first: int, count: int, deadline: float | None) -> ShardResult:
        return ShardResult(count, failures=[replace(failure, seed=seed) for seed in (first + 2, first, first + 1)])

    failure, kept = serial.failures[0], list[int]()

    def keep(failure: Failure) -> str:
        kept.append(failure.seed)
        return "folder"

    (cause,) = campaign(3, run=alike, keep=keep).causes
    assert (kept, cause.seed, cause.count, cause.folder) == ([0], 0, 3, "folder")


def test_a_lower_seed_on_another_build_replaces_the_folder_of_its_cause(serial: ShardResult) -> None:
    def alike(order: Order, first: int, count: int, deadline: float | None) -> ShardResult:
        minimal = replace(failure.minimal, build=order.builds[first == 0])
        return ShardResult(1, failures=[replace(failure, minimal=minimal, seed=100 - first)])

    failure, folders = serial.failures[0], set[str]()

    def keep(failure: Failure) -> str:
        folders.add(failure.minimal.build)
        return failure.minimal.build

    ledger = Ledger(None, ORDER, digest.of_code())
    one = Campaign(ORDER, Budget(examples=2), Alone(), ledger, alike, keep=keep, drop=folders.remove)
    (cause,) = one.run().causes
    assert (cause.seed, cause.build, cause.count) == (99, ORDER.builds[0], 2)
    assert folders == {cause.folder} == {cause.build}


def test_machines_that_time_cut_short_run_the_rest_later(tmp_path: Path) -> None:
    def late(order: Order, first: int, count: int, deadline: float | None) -> ShardResult:
        return machine_shards.run_shard(order, first, count, time.monotonic() if first else None)

    order = Order(("unified",), "machine", "cache")
    path = tmp_path / "ledger.jsonl"
    assert campaign(None, seconds=0.5, run=late, path=path, order=order).totals.examples == 16
    whole = campaign(16, run=machine_shards.run_shard, path=path, order=order)
    assert found(whole) == found(campaign(32, run=machine_shards.run_shard, order=order))


def test_shards_of_machines_end_where_the_build_changes() -> None:
    numbers = campaigns._Numbers([(0, 5), (32, 48)])
    assert [numbers.take(16, 16) for _ in range(3)] == [(5, 16), (16, 32), (48, 64)]


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


@pytest.fixture
def listening() -> Iterator[None]:
    """Ctrl-C is heard here, also where a shell runs the suite in the background."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


class Silent(Executor):
    """Takes calls, and nobody ever answers them."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return Future()


class Lost(Alone):
    """A crew whose scheduler went: what it was handed stays open for ever, and no other is to be had."""

    def __init__(self) -> None:
        super().__init__()
        self.executor, self.lanes, self.here, self.unreachable = Silent(), 2, False, True

    def renew(self) -> None:
        raise OSError("the scheduler is gone")


def test_calls_that_stay_open_since_the_scheduler_went_do_not_hold_a_campaign_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("property_tests.fuzz.campaign.TELL_S", 0.1)
    done = campaign(24, Lost())
    assert (done.lost, done.totals.examples, done.crashes) == ("the scheduler is gone", 0, [])


@pytest.mark.usefixtures("listening")
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
    ledger = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    last = max(line["end"] for line in ledger if "end" in line)  # a shard given up before it leaves a gap
    whole = campaign(last - ran + 5, path=tmp_path / "ledger.jsonl")
    assert (whole.totals.examples, whole.resumed, whole.interrupted) == (last + 5, ran, False)
    assert found(whole) == found(campaign(last + 5))


@pytest.mark.usefixtures("listening")
def test_the_first_ctrl_c_is_answered_while_the_shard_still_runs() -> None:
    def pressed(order: Order, first: int, count: int, deadline: float | None) -> ShardResult:
        os.kill(os.getpid(), signal.SIGINT)
        heard.append(list(said))
        return helpers.run_shard(order, first, count, deadline)

    said: list[str] = []
    heard: list[list[str]] = []
    done = campaign(1000, run=pressed, note=said.append)
    assert done.interrupted and done.totals.examples > 0
    assert heard == [[ENDING]] and said == [ENDING]


@pytest.mark.usefixtures("listening")
def test_a_second_ctrl_c_ends_it_at_once() -> None:
    def press(so_far: Campaigned) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    done = campaign(None, Processes(2), seconds=500.0, tell=press)
    assert done.interrupted


def test_a_worker_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    order = replace(ORDER, seed=4)

    def elsewhere(order: Order, first: int, count: int, deadline: float | None) -> ShardResult:
        raise AssertionError("it must not run")

    versions = iter(range(99))
    monkeypatch.setattr("property_tests.fuzz.campaign.digest.of_texts", lambda builds: f"{next(versions)}")
    done = campaign(order=order, run=elsewhere)
    assert "expected workers with the code of the campaign" in done.crashes[0].what
    assert done.totals.examples == 0


def test_a_worker_with_another_rule_of_the_users_or_without_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere() -> str:
        digest.of_texts.cache_clear()  # another process has not read it yet
        with pytest.raises(campaigns.OtherCode) as caught:
            campaigns.work(helpers.run_shard, Order((text,)), campaigns.Shard(0, 1), None, code)
        return str(caught.value)

    monkeypatch.syspath_prepend(str(tmp_path))
    rule, text = tmp_path / "claim_of_a_user.py", "unified+claim=claim_of_a_user:Mine"
    rule.write_text("from model.rules.claim import JointMinimum\nclass Mine(JointMinimum): ...\n")
    code = digest.of_texts((text,))
    rule.write_text("# another\n" + rule.read_text())
    assert f"expected workers with the code of the campaign, {code}, found one with" in elsewhere()
    rule.unlink()
    monkeypatch.delitem(sys.modules, "claim_of_a_user")
    assert "expected workers that have the builds of the campaign" in elsewhere()
