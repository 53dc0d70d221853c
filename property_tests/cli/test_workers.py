"""Several workers on the command line: a run of them, its folder and trace, its story, and what ranks look like."""

from __future__ import annotations

import json
from pathlib import Path

from property_tests.cli.conftest import Command


def test_the_story_of_ranks_says_whose_line_it_is(kvtwin: Command, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = kvtwin("run", "reports/o81", "--build", "fault:host-rank-divergent", "--out", str(folder), "--json").json()
    (violation,) = run["runs"][0]["violations"]
    assert (violation["code"], violation["request"], violation["worker"]) == ("RANK", 2, None)
    told = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert {event["worker"] for event in told} == {0, 1}
    assert [event["iteration"] for event in told] == sorted(event["iteration"] for event in told)
    story = kvtwin("explain", str(folder), "RANK").out
    assert "worker 0: is admitted as owner 3, claims 23 cached tokens" in story
    assert "worker 1: is admitted as owner 3, claims 16 cached tokens" in story


def test_the_trace_of_a_fleet_in_its_folder_repeats_the_run(kvtwin: Command, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (first,) = kvtwin("run", "reports/o31", "--out", str(folder), "--json").json()["runs"]
    (again,) = kvtwin("run", "--ops", str(folder / "ops.jsonl"), "--json").json()["runs"]
    assert again["digests"] == first["digests"]
    assert [pool["name"] for pool in first["pools"]] == ["target@0", "draft@0", "target@1", "draft@1"]


def test_a_violation_of_one_worker_is_told_from_that_workers_events(kvtwin: Command, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    kvtwin("run", "reports/o38", "--build", "fault:dummy-left-behind", "--out", str(folder))
    story = kvtwin("explain", str(folder), "REF").out
    assert "REF broke (worker 1, pool target, step 3): pages of a dummy whose step is over" in story
    assert "a dummy, owner 2, runs along in row slot 4 from position 0" in story
    assert "request 0" not in story
