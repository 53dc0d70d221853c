"""``kvtwin drill --blind``: faults without their scenarios, in the table, as JSON, and with its exit codes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any

import pytest

from model.faults import FAULTS
from property_tests.cli.conftest import Command
from property_tests.fuzz import helpers
from property_tests.fuzz.blind import Drill, tasks
from property_tests.fuzz.crew import Processes

NAMED = ("drill", "--blind", "raw-keys", "--fault", "store-at-zero")


def test_the_table_names_the_law_that_caught_each_fault_by_each_driver(kvtwin: Command) -> None:
    answer = kvtwin(*NAMED, "--workers", "1")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.count("raw-keys") == answer.out.count("store-at-zero") == 2
    assert "swarm: caught 2 of 2 (100.0%), median" in answer.out
    assert "bytes: caught 2 of 2 (100.0%), median" in answer.out


def test_the_document_says_whether_it_was_the_right_law(kvtwin: Command) -> None:
    document = kvtwin(*NAMED, "--driver", "swarm", "--workers", "1", "--json").json()
    for row in document["faults"]:
        fires = FAULTS[row["fault"]].fires
        place = fires.index(row["law"]) if row["law"] in fires else -1
        assert row["verdict"] == ("other" if place < 0 else "first" if place == 0 else "follows")
        assert 1 <= row["examples"] <= 2000 and row["requests"] >= 1
    (total,) = document["drivers"]
    assert (total["driver"], total["caught"], total["share"]) == ("swarm", 2, 1.0)
    assert sum(total["by_verdict"].values()) == 2
    assert (document["exit_code"], document["interrupted"]) == (0, False)


def test_a_fault_that_is_missed_is_1(kvtwin: Command) -> None:
    options = ("drill", "--blind", "fallback-cursor", "--budget", "1", "--workers", "1")
    document = kvtwin(*options, "--json").json()
    assert [(row["driver"], row["verdict"], row["law"], row["examples"]) for row in document["faults"]] == [
        ("swarm", "missed", "", 1),
        ("bytes", "missed", "", 1),
    ]
    assert [total["share"] for total in document["drivers"]] == [0.0, 0.0]
    told = kvtwin(*options, "--driver", "swarm")
    assert told.code == 1 and "caught 0 of 1 (0.0%)" in told.out


def test_without_names_every_fault_is_given_to_both_drivers() -> None:
    wanted = tasks((), (), 10, 0)
    assert [(task.fault, task.driver) for task in wanted] == [(n, d) for n in FAULTS for d in ("swarm", "bytes")]


@pytest.mark.parametrize(
    "options",
    [
        ("--blind", "raw-key"),
        ("--blind", "--driver", "luck"),
        ("--blind", "--budget", "0"),
        ("--budget", "3"),
        ("--blind", "--device", "cpu"),
        ("--blind", "--check", "incremental"),
        ("--driver", "swarm"),
        ("--workers", "2"),
    ],
)
def test_what_cannot_be_drilled_is_one_line(kvtwin: Command, options: tuple[str, ...]) -> None:
    answer = kvtwin("drill", *options)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)


def test_ctrl_c_keeps_the_rows_that_are_done(kvtwin: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def progress(label: str) -> Iterator[Callable[[int, int], None]]:
        def tick(done: int, total: int) -> None:
            if done == 3:
                raise KeyboardInterrupt

        yield tick

    monkeypatch.setattr("reports.terminal.progress", progress)
    answer = kvtwin(*NAMED, "--workers", "1", "--json")
    document = answer.json()
    assert (answer.code, answer.err) == (130, "kvtwin: interrupted\n")
    assert document["interrupted"]
    assert [(row["fault"], row["driver"]) for row in document["faults"]] == [
        ("raw-keys", "swarm"),
        ("raw-keys", "bytes"),
        ("store-at-zero", "swarm"),
    ]


def test_a_killed_process_costs_no_fault_its_hunt() -> None:
    def kill_one(done: int, total: int) -> None:
        if done == 1:
            next(iter(crew._pool._processes.values())).kill()

    crew = Processes(2)
    wanted = tasks(("raw-keys", "store-at-zero", "target-cursor"), ("swarm",), 50, 0)
    rows, interrupted = Drill(wanted, crew, kill_one).run()
    assert not interrupted
    assert [row.fault for row in rows] == ["raw-keys", "store-at-zero", "target-cursor"]
    assert all(row.law and not row.crash for row in rows)


def test_a_process_that_died_before_anything_was_asked_of_it_costs_nothing() -> None:
    crew = Processes(1)
    dying = crew.executor.submit(os.kill, os.getpid(), 0)
    dying.result(timeout=60)
    crew.kill()
    until = time.monotonic() + 30
    while not crew._pool._broken:
        assert time.monotonic() < until
        time.sleep(0.01)
    rows, interrupted = Drill(tasks(("raw-keys",), ("swarm",), 50, 0), crew).run()
    assert not interrupted and [row.law != "" for row in rows] == [True]


def test_only_what_ran_beside_a_process_that_died_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill_one(done: int, total: int) -> None:
        if done == 1:
            crew.kill()

    def watched(running: dict[Future[Any], Any], **options: Any) -> Any:
        sizes.append(len(running))
        return wait(running, **options)

    sizes: list[int] = []
    monkeypatch.setattr("property_tests.fuzz.blind.wait", watched)
    crew = Processes(1)
    wanted = tasks(sorted(FAULTS)[:8], ("swarm",), 2, 0)
    rows, _ = Drill(wanted, crew, kill_one).run()
    assert len(rows) == 8
    alone = sizes.index(1)
    assert max(sizes[:alone]) == 2 == max(sizes[alone:])


def test_a_hunt_that_does_not_come_back_is_killed_and_the_others_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("property_tests.fuzz.blind.SILENT_S", 12.0)
    monkeypatch.setattr("property_tests.fuzz.blind.SLOW_S", 0.0)
    wanted = tasks(("store-at-zero", "raw-keys", "target-cursor"), ("swarm",), 50, 0)
    rows, interrupted = Drill(wanted, Processes(1), run=helpers.deaf_to_raw_keys).run()
    assert not interrupted
    assert [(row.fault, row.crash) for row in rows if row.crash] == [
        ("raw-keys", "it did not end within 12 s and was killed")
    ]
    assert [row.fault for row in rows if row.law] == ["store-at-zero", "target-cursor"]
