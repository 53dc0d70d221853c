"""``kvtwin check``: what it prints, writes and exits with."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from property_tests.cli.conftest import Command

DOCS = Path(__file__).resolve().parents[2] / "docs"
SOUND = {"trtllm-events": DOCS / "trtllm_events.json", "vllm-events": DOCS / "vllm_events.jsonl"}
STALE = DOCS / "vllm_events_stale.jsonl"


@pytest.mark.parametrize("format", SOUND)
def test_a_sound_log_is_fine_and_says_what_was_checked_and_what_was_not(kvtwin: Command, format: str) -> None:
    answer = kvtwin("check", SOUND[format])
    assert (answer.code, answer.err) == (0, "")
    assert f"({format}): no law broken in " in answer.out
    assert "not checked: LOSSLESS  no event tells of outputs" in answer.out
    assert answer.out == kvtwin("check", SOUND[format], "--format", format).out


@pytest.mark.parametrize("format", SOUND)
def test_every_invariant_is_checked_or_has_a_reason(kvtwin: Command, format: str) -> None:
    report = kvtwin("check", SOUND[format], "--json").json()
    checked = {law["code"] for law in report["laws"] if law["evaluations"]}
    assert checked.isdisjoint(report["not_checked"])
    known = {law["name"] for law in kvtwin("invariants", "--json").json()}
    assert checked | set(report["not_checked"]) == known | {"LOSSLESS"}
    assert all(report["not_checked"].values())
    assert report["evaluations"] == sum(law["evaluations"] for law in report["laws"])
    assert (report["schema_version"], report["format"], report["verdict"], report["findings"]) == (
        1,
        format,
        "fine",
        [],
    )


def test_a_broken_law_is_told_with_its_line_and_kept_in_the_folder(kvtwin: Command, tmp_path: Path) -> None:
    answer = kvtwin("check", STALE, "--out", "found")
    assert answer.code == 1
    assert "2 breaks of laws" in answer.out and "parent-stored" in answer.out
    kept = json.loads((tmp_path / "found" / "check.json").read_text())
    assert [(one["code"], one["line"], one["event"]) for one in kept["findings"]] == [("PUB", 7, 6), ("REF", 7, 6)]
    assert kept == kvtwin("check", STALE, "--json").json()
    text = (tmp_path / "found" / "check.md").read_text()
    assert text.startswith("**") and "| 7 | 6 | PUB parent-stored |" in text
    assert kvtwin("check", STALE, "--out", "found").code == 1  # a folder of kvtwin's may be replaced


def test_a_log_that_allows_no_check_is_told_as_that(kvtwin: Command, tmp_path: Path) -> None:
    (tmp_path / "new.jsonl").write_text('{"type": "BlockPainted"}\n')
    answer = kvtwin("check", "new.jsonl", "--format", "vllm-events")
    assert answer.code == 3
    assert "nothing could be checked in 0 events" in answer.out
    assert "passed over: event type BlockPainted (1 times)" in answer.out


def test_input_that_cannot_be_read_is_one_line(kvtwin: Command, tmp_path: Path) -> None:
    (tmp_path / "cut.jsonl").write_text('{"event_id": 0,\n')
    for arguments, place in (
        (["cut.jsonl"], "cut.jsonl:1: expected one JSON value"),
        (["nowhere"], "nowhere: expected"),
    ):
        answer = kvtwin("check", *arguments, "--out", "found")
        assert (answer.code, answer.out, len(answer.err.splitlines())) == (2, "", 1)
        assert place in answer.err
    assert kvtwin("check", STALE, "--format", "other").code == 2
    assert kvtwin("check", STALE, "--format", "trtllm-events").code == 2
    assert not (tmp_path / "found").exists()


@pytest.mark.parametrize("log", [*SOUND.values(), STALE], ids=lambda log: log.name)
def test_what_it_prints_is_by_the_schema_that_it_prints(kvtwin: Command, log: Path) -> None:
    schema = kvtwin("schema", "check").json()
    jsonschema.Draft202012Validator.check_schema(schema)
    report = kvtwin("check", log, "--json").json()
    jsonschema.validate(report, schema)
    del report["laws"][0]["needs"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, schema)


def test_markup_in_a_log_is_text(kvtwin: Command, tmp_path: Path) -> None:
    event = {"event_id": 0, "data": {"type": "removed", "block_hashes": ["[bold]x[/bold]", "[/]"]}, "window_size": 8}
    (tmp_path / "log[red].json").write_text(json.dumps([event]))
    answer = kvtwin("check", "log[red].json")
    assert answer.code == 1
    assert "log[red].json" in answer.out and "[bold]x[/bold]" in answer.out


def test_a_run_folder_is_held_to_its_own_log(kvtwin: Command, tmp_path: Path) -> None:
    assert kvtwin("run", "hello", "--out", "run").code == 0
    answer = kvtwin("check", "run", "--json")
    report = answer.json()
    assert (answer.code, report["format"], report["verdict"]) == (0, "kvtwin", "fine")
    assert {law["law"]: law["evaluations"] for law in report["laws"]}["reported"] > 6
    result = tmp_path / "run" / "result.json"
    document = json.loads(result.read_text())
    document["totals"]["prefilled_tokens"] += 1
    result.write_text(json.dumps(document))
    rows = (tmp_path / "run" / "requests.csv").read_text().splitlines()
    (tmp_path / "run" / "requests.csv").write_text("\n".join([*rows[:1], *rows[2:], rows[1].replace("0", "5", 1)]))
    answer = kvtwin("check", "run", "--json")
    assert answer.code == 1
    assert {one["law"] for one in answer.json()["findings"]} == {"reported"}
    assert kvtwin("check", "run/events.jsonl").code == 0  # the log alone has nothing to contradict


def test_a_folder_or_file_beside_the_log_that_cannot_be_read_is_one_line(kvtwin: Command, tmp_path: Path) -> None:
    assert kvtwin("run", "hello", "--out", "run").code == 0
    for name, text in (
        ("result.json", "{"),
        ("result.json", "[]"),
        ("requests.csv", "a,b\n1,2\n"),
        ("events.jsonl", ""),
    ):
        path = tmp_path / "run" / name
        before = path.read_text()
        path.write_text(text)
        answer = kvtwin("check", "run")
        assert (answer.code, len(answer.err.splitlines())) == (2, 1) and name in answer.err
        path.write_text(before)
    (tmp_path / "empty").mkdir()
    assert "found no events.jsonl" in kvtwin("check", "empty").err
