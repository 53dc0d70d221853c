"""``kvtwin sweep``: what it prints, the folder that it leaves, and its exit codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from model.builds import BUILDS
from property_tests.cli.conftest import Command
from sim.sweep.grids import GRIDS

QUICK = ("--every", "30", "--workers", "1")


def test_a_sweep_says_what_it_ran_and_reached(kvtwin: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    answer = kvtwin("sweep", "--what", "lengths,suspend", "--builds", "paired-22,unified", *QUICK)
    assert (answer.code, answer.err) == (0, "")
    assert "combinations on 2 builds: no law broke" in answer.out
    assert "suspensions" in answer.out.split("Reached in all:")[1]
    assert max(map(len, answer.out.splitlines())) <= 100


def test_the_document_names_grids_axes_builds_and_states(kvtwin: Command) -> None:
    document = kvtwin("sweep", "--what", "eviction", *QUICK, "--json").json()
    correct = [build.name for build in BUILDS.values() if build.correct]
    assert (document["builds"], document["exit_code"], document["findings"]) == (correct, 0, [])
    (grid,) = document["grids"]
    assert grid["axes"]["pool"] == ["target", "draft", "both"]
    assert document["done"] == document["planned"] == grid["combinations"] * len(correct)
    assert list(grid["by_build"]) == correct
    assert grid["reached"]["evicted from target"] > 0


def test_a_broken_law_is_1_and_leaves_scenarios_that_repeat_it(kvtwin: Command, tmp_path: Path) -> None:
    options = ("--what", "lengths", "--builds", "unified,fault:copy-in-place", "--every", "4", "--workers", "1")
    answer = kvtwin("sweep", *options, "--out", "found")
    assert answer.code == 1
    assert "a law broke in" in answer.out
    files = sorted((tmp_path / "found").glob("*.yaml"))
    assert files and all("copy-in-place" in file.name for file in files)
    repeated = kvtwin("run", files[0], "--json").json()["runs"][0]
    assert repeated["violations"][0]["code"] == "OWN"
    assert kvtwin("run", files[0], "--build", "unified").code == 0


def test_grids_are_listed_with_their_questions(kvtwin: Command) -> None:
    assert [row["name"] for row in kvtwin("sweep", "--list", "--json").json()] == list(GRIDS)
    told = kvtwin("sweep", "--list", "--full", "--what", "orders").out
    assert GRIDS["orders"].question in told
    assert f"{len(GRIDS['orders'].points(True)):,} combinations" in told


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("--what", "length", "'lengths'"),
        ("--builds", "unifid", "'unified'"),
        ("--builds", "unified,unified", "each build once"),
        ("--workers", "0", "--workers"),
    ],
)
def test_what_nobody_knows_is_one_line(kvtwin: Command, option: str, value: str, hint: str) -> None:
    answer = kvtwin("sweep", option, value)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert hint in answer.err


def test_a_grid_that_reached_nothing_of_what_it_is_for_is_3(kvtwin: Command) -> None:
    # Builds whose drafter is unpaired claim nothing jointly, and their first combination parts before a whole page.
    answer = kvtwin("sweep", "--what", "lengths", "--builds", "target-21", *QUICK)
    assert answer.code == 3
    assert "nothing checked (lengths)" in answer.out


def test_ctrl_c_shows_what_was_found(kvtwin: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    @contextmanager
    def progress(label: str) -> Iterator[Callable[[int, int], None]]:
        def tick(done: int, total: int) -> None:
            raise KeyboardInterrupt

        yield tick

    monkeypatch.setattr("reports.terminal.progress", progress)
    answer = kvtwin("sweep", "--what", "lengths", "--builds", "unified", "--workers", "1", "--out", "part")
    assert answer.code == 130
    assert "64 of 192 combinations on 1 build: interrupted; no law broke until then" in answer.out
    assert (tmp_path / "part" / "sweep.json").exists()
