"""``--out``: a folder that is there whole or not at all, and from which a run can be repeated."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from property_tests.cli.conftest import Command

RUN_FILES = {"kvtwin.json", "result.json", "requests.csv", "speculation.jsonl", "violations.json", "ops.jsonl"}
OF_EVENTS = {"events.jsonl", "course"}
RUN_FILES |= OF_EVENTS


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_leaves_its_files(kvtwin: Command, tmp_path: Path) -> None:
    assert kvtwin("run", "hello", "--out", "deep/run").code == 0
    assert names(tmp_path / "deep" / "run") == RUN_FILES
    assert names(tmp_path / "deep") == {"run"}
    result = json.loads((tmp_path / "deep/run/result.json").read_text())
    with (tmp_path / "deep/run/requests.csv").open() as file:
        requests = list(csv.DictReader(file))
    assert sum(int(row["prefilled_tokens"]) for row in requests) == result["totals"]["prefilled_tokens"]
    assert [row["session"] for row in requests] == ["cold", "repeat", "branch"]
    assert json.loads((tmp_path / "deep/run/violations.json").read_text()) == []


def test_the_event_log_has_decisions_and_memory_in_the_order_of_iterations(kvtwin: Command, tmp_path: Path) -> None:
    kvtwin("run", "hello", "--out", "run")
    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    iterations = [event["iteration"] for event in events]
    assert iterations == sorted(iterations)
    assert {"submit", "claim", "chunk", "step", "settle", "publish", "mem_step", "mem_chunk"} <= {
        event["event"] for event in events
    }


def test_a_dummy_is_told_with_the_iteration_that_it_runs_in(kvtwin: Command, tmp_path: Path) -> None:
    kvtwin("run", "o31", "--out", "run")
    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    planned, ran = (
        {(event["worker"], event["iteration"], event["owner"]) for event in events if event["event"] == kind}
        for kind in ("dummy", "mem_dummy")
    )
    assert planned == ran
    assert len(planned) > 3


def test_the_event_log_can_be_left_out(kvtwin: Command, tmp_path: Path) -> None:
    kvtwin("run", "hello", "--out", "run", "--no-events")
    assert names(tmp_path / "run") == RUN_FILES - OF_EVENTS


def test_several_runs_leave_a_folder_each(kvtwin: Command, tmp_path: Path) -> None:
    assert kvtwin("run", "hello", "mtp_chain", "--out", "runs").code == 0
    assert names(tmp_path / "runs") == {"kvtwin.json", "hello", "mtp_chain"}


@pytest.mark.parametrize("scenario", ["hello", "disturbed", "mtp_chain"])
def test_a_run_repeats_from_its_ops_to_the_same_digests(kvtwin: Command, scenario: str) -> None:
    kvtwin("run", scenario, "--out", "run")
    (first,) = kvtwin("run", scenario, "--json").json()["runs"]
    answer = kvtwin("run", "--ops", "run/ops.jsonl", "--json")
    (again,) = answer.json()["runs"]
    assert answer.code == 0
    assert again["digests"] == first["digests"]
    assert again["totals"] == first["totals"]
    assert again["acceptance"]["mode"] == "recorded"


def test_a_trace_whose_digest_does_not_come_out_again_is_reported(kvtwin: Command, tmp_path: Path) -> None:
    kvtwin("run", "hello", "--out", "run")
    ops = tmp_path / "run/ops.jsonl"
    lines = ops.read_text().splitlines()
    end = json.loads(lines[-1])
    end["decision_digest"] = "0" * 64
    ops.write_text("\n".join([*lines[:-1], json.dumps(end)]) + "\n")
    answer = kvtwin("run", "--ops", ops)
    assert answer.code == 1
    assert "decision digest: expected 0000" in answer.out


def test_a_cut_trace_of_ops_is_bad_input(kvtwin: Command, tmp_path: Path) -> None:
    kvtwin("run", "hello", "--out", "run")
    ops = tmp_path / "run/ops.jsonl"
    ops.write_text("\n".join(ops.read_text().splitlines()[:-1]) + "\n")
    answer = kvtwin("run", "--ops", ops)
    assert answer.code == 2
    assert "ops.jsonl" in answer.err


def test_ops_that_cannot_apply_are_told_before_what_comes_of_them(kvtwin: Command, tmp_path: Path) -> None:
    kvtwin("run", "hello", "--out", "run")
    ops = tmp_path / "run/ops.jsonl"
    header, *rest, end = ops.read_text().splitlines()
    unheard = [json.dumps({"op": "cancel", "request": 99})] * 2
    kept = [*unheard, *rest[:-3]]
    last = {**json.loads(end), "end": len(kept)}
    ops.write_text("\n".join([header, *kept, json.dumps(last)]) + "\n")
    out = kvtwin("run", "--ops", ops).out
    note = out.index("not applied, the first: op 0 (cancel): request 99 is not live")
    assert note < out.index("missed: ")


def test_an_engine_that_cannot_be_is_bad_input(kvtwin: Command, tmp_path: Path) -> None:
    kvtwin("run", "hello", "--out", "run")
    ops = tmp_path / "run/ops.jsonl"
    ops.write_text(ops.read_text().replace('"page_size":4', '"page_size":0', 1))
    answer = kvtwin("run", "--ops", ops)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "ops.jsonl:1: config.limits.page_size: expected a whole number from 1, found 0" in answer.err


def test_an_older_run_is_replaced(kvtwin: Command, tmp_path: Path) -> None:
    kvtwin("run", "hello", "--out", "run")
    kvtwin("run", "mtp_chain", "--out", "run")
    assert json.loads((tmp_path / "run/result.json").read_text())["scenario"] == "mtp_chain"
    assert names(tmp_path) == {"run"}


@pytest.mark.parametrize("command", [("run", "hello"), ("compare", "hello")])
def test_what_kvtwin_did_not_write_is_never_replaced(kvtwin: Command, tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter1.txt").write_text("dear reader")
    (tmp_path / "note").write_text("milk")
    for target in ("thesis", "note"):
        answer = kvtwin(*command, "--out", target)
        assert answer.code == 2
        assert answer.err.startswith(f"kvtwin: {target}: expected ")
    assert (tmp_path / "thesis/chapter1.txt").read_text() == "dear reader"
    assert (tmp_path / "note").read_text() == "milk"


@pytest.mark.parametrize(
    ("command", "writer"),
    [
        (("run", "hello"), "reports.run_folder.save_trace"),
        (("compare", "hello", "--builds", "unified"), "reports.comparison_files.markdown"),
    ],
)
def test_a_crash_while_writing_leaves_the_older_folder_as_it_was(
    kvtwin: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], writer: str
) -> None:
    kvtwin(*command, "--out", "run")
    before = contents(tmp_path / "run")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, full)
    assert kvtwin(*command, "--out", "run").code == 4
    assert kvtwin(*command, "--out", "new").code == 4
    assert names(tmp_path) == {"run"}
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize(
    "command",
    [
        ["check", "{0}"],
        ["tables", "{0}"],
        ["tables", "{0}/events.jsonl"],
        ["compare", "mine={0}", "hello", "--builds", "unified"],
        ["run", "--ops", "{0}/ops.jsonl", "--build", "paired-22"],
    ],
)
def test_no_command_replaces_what_it_reads(kvtwin: Command, tmp_path: Path, command: list[str]) -> None:
    kvtwin("run", "hello", "--out", "deep/run")
    before = contents(tmp_path / "deep")
    read = [word.format("deep/run") for word in command]
    for out in ("deep/run", "deep/../deep/run"):
        answer = kvtwin(*read, "--out", out)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith(
            f"kvtwin: {Path(out)}: expected a folder to write to other than what is read, deep/"
        )
        assert answer.err.count("\n") == 1
    assert contents(tmp_path / "deep") == before


def test_a_folder_of_several_runs_is_not_replaced_by_a_comparison_of_them(kvtwin: Command, tmp_path: Path) -> None:
    kvtwin("run", "hello", "x06", "--out", "runs")
    before = contents(tmp_path / "runs")
    answer = kvtwin("compare", "runs", "--out", "runs")
    assert answer.code == 2 and "expected a folder to write to other than what is read, runs/" in answer.err
    assert contents(tmp_path / "runs") == before


def test_a_scenario_has_the_name_of_its_folder_of_results_without_harm(kvtwin: Command) -> None:
    assert [kvtwin("run", "hello", "--out", "hello").code for _ in range(2)] == [0, 0]
