"""Ctrl-C at any time, and streams and disks that take no more: one line, and what was found is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from property_tests.cli.conftest import Command
from sim.result import RunResult
from sim.run import run_scenario

KVTWIN = [sys.executable, "-m", "kvtwin"]


# As the command starts, told when its first line has run: how long Python needs up to there is not kvtwin's.
STARTING = """
from reports import interrupts
interrupts.leave_at_once()
print("up", flush=True)
import runpy, sys
sys.argv = ["kvtwin", *sys.argv[1:]]
runpy.run_module("kvtwin", run_name="__main__")
"""


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.3, 0.6])
def test_ctrl_c_while_it_starts_is_one_line(after_s: float) -> None:
    command = [sys.executable, "-c", STARTING, "run", "agentic"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert (process.returncode, told) == (130, "kvtwin: interrupted\n")


def test_ctrl_c_in_a_drill_keeps_the_faults_that_were_run_and_judges_no_other(
    kvtwin: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def third_is_cut(*arguments: Any, **options: Any) -> RunResult:
        done.append(1)
        return replace(run_scenario(*arguments, **options), interrupted=len(done) == 3)

    done: list[int] = []
    monkeypatch.setattr("reports.drill.run_scenario", third_is_cut)
    answer = kvtwin("drill", "raw-keys", "trim-only", "--json")
    assert (answer.code, answer.err) == (130, "kvtwin: interrupted\n")
    told = json.loads(answer.out)
    assert told["interrupted"]
    assert [(fault["name"], fault["verdict"]) for fault in told["faults"]] == [("raw-keys", "caught")]


def test_ctrl_c_in_the_table_of_figures_ends_it(kvtwin: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "reports.figures.base.run_scenario",
        lambda *given, **more: replace(run_scenario(*given, **more), interrupted=True),
    )
    answer = kvtwin("seeds", "X5")
    assert (answer.code, answer.err) == (130, "kvtwin: interrupted\n")


def ctrl_c_in(build: str) -> Callable[[str], object]:
    """Progress bars; the user presses Ctrl-C in the middle of ``build``."""

    @contextmanager
    def progress(label: str) -> Iterator[Callable[[int, int], None]]:
        def tick(done: int, total: int) -> None:
            if label.endswith(f" on {build}"):
                raise KeyboardInterrupt

        yield tick

    return progress


def test_ctrl_c_keeps_the_finished_builds_of_a_comparison(
    kvtwin: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("reports.terminal.progress", ctrl_c_in("unified"))
    calls = ("compare", "hello", "mtp_chain", "--builds", "paired-22,unified-page,unified", "--out", "out")
    answer = kvtwin(*calls)
    assert (answer.code, answer.err) == (130, "kvtwin: interrupted\n")
    assert "interrupted: no result of unified" in answer.out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"kvtwin.json", "hello"}
    document = json.loads((tmp_path / "out/hello/comparison.json").read_text())
    assert [build["name"] for build in document["builds"]] == ["paired-22", "unified-page"]
    assert (document["interrupted"], document["left_out"], document["exit_code"]) == (True, ["unified"], 130)
    assert "**Interrupted**" in (tmp_path / "out/hello/comparison.md").read_text()


def test_the_help_names_every_exit_code(kvtwin: Command) -> None:
    told = kvtwin("--help").out
    assert all(f"{code} " in told.split("Exit codes:")[1] for code in (0, 1, 2, 3, 4, 130))


def test_a_full_disk_is_not_called_a_defect(kvtwin: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("reports.run_folder.save_trace", full)
    answer = kvtwin("run", "hello", "--out", "run")
    assert (answer.code, answer.err) == (4, "kvtwin: cannot write run: No space left on device\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [("run", "hello"), ("builds",), ("schema",), ("run", "hello", "--json")])
def test_a_standard_output_that_takes_no_more_is_one_line(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*KVTWIN, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 4
    assert done.stderr == "kvtwin: cannot write to standard output: No space left on device\n"


def test_a_closed_standard_output_is_one_line() -> None:
    done = subprocess.run(["sh", "-c", f"{sys.executable} -m kvtwin builds >&-"], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 4
    assert done.stderr == "kvtwin: cannot write to standard output: Bad file descriptor\n"


COMPARED = ("compare", "hello", "--builds", "target-only,unified")


@pytest.mark.parametrize(
    ("encoding", "commands"),
    [("latin-1", [("run", "hello"), COMPARED]), ("ascii", [("run", "hello"), COMPARED, ("faults",)])],
)
def test_an_encoding_without_our_dashes_and_boxes_ends_no_run(encoding: str, commands: list[tuple[str, ...]]) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for arguments in commands:
        done = subprocess.run([*KVTWIN, *arguments], env=environment, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
        done.stdout.decode(encoding)
