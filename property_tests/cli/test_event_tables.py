"""``kvtwin tables``: an event log as one table for each kind of event."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from property_tests.cli.conftest import Command


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def read(folder: Path) -> list[dict[str, Any]]:
    """The events of all tables, in the order of the log."""
    found: dict[int, dict[str, Any]] = {}
    for path in folder.glob("*.parquet"):
        for row in pd.read_parquet(path).to_dict("records"):
            event: dict[str, Any] = {str(key): value for key, value in row.items()}
            event = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in event.items()}
            line = event.pop("line")
            found[line] = {"event": path.stem, **event}
    assert sorted(found) == list(range(1, len(found) + 1))
    return [found[line] for line in sorted(found)]


@pytest.mark.parametrize("scenario", ["smoke/hello", "smoke/host_link", "smoke/disturbed", "reports/o67"])
def test_the_tables_hold_every_event_of_the_log(kvtwin: Command, tmp_path: Path, scenario: str) -> None:
    kvtwin("run", scenario, "--out", "run")
    answer = kvtwin("tables", "run/events.jsonl", "--out", "tables", "--json")
    log = events(tmp_path / "run/events.jsonl")
    assert read(tmp_path / "tables") == log
    counts = Counter(event["event"] for event in log)
    assert (answer.code, answer.json()["events"], answer.json()["rows"]) == (0, len(log), dict(sorted(counts.items())))
    about = json.loads((tmp_path / "tables/tables.json").read_text())
    assert (about["rows"], about["format"]) == (answer.json()["rows"], "parquet")


def test_the_folder_of_a_run_stands_for_its_log(kvtwin: Command, tmp_path: Path) -> None:
    kvtwin("run", "hello", "--out", "run")
    answer = kvtwin("tables", "run", "--out", "tables")
    assert "158 events, written: tables" in answer.out
    assert read(tmp_path / "tables") == events(tmp_path / "run/events.jsonl")


def test_in_csv_a_list_is_its_values_with_blanks(kvtwin: Command, tmp_path: Path) -> None:
    kvtwin("run", "hello", "--out", "run")
    assert kvtwin("tables", "run", "--out", "tables", "--csv").code == 0
    log = [event for event in events(tmp_path / "run/events.jsonl") if event["event"] == "grant"]
    table = pd.read_csv(tmp_path / "tables/grant.csv", dtype={"slots": str})
    assert table["pool"].tolist() == [event["pool"] for event in log]
    assert table["slots"].tolist() == [" ".join(map(str, event["slots"])) for event in log]
    tags = pd.read_csv(tmp_path / "tables/mem_chunk.csv", dtype=str)["tags"].tolist()
    chunks = [event for event in events(tmp_path / "run/events.jsonl") if event["event"] == "mem_chunk"]
    assert tags == [" ".join(event["tags"]) for event in chunks]


STEP = '{"iteration":5,"event":"step","request":0,"slot":0,"width":8,"real_drafts":0}'
GRANT = '{"iteration":0,"event":"grant","pool":"target","owner":1,"slots":[0,1]}'
BAD_LINES = {
    "not JSON": ("{", "3: event: expected a line of an event log", "3: expected an event as JSON"),
    "cut": (STEP[:-5], "3: expected an event as JSON"),
    "two in one": (STEP + STEP, "3: expected an event as JSON"),
    "blank": ("", "3: expected an event as JSON"),
    "another kind": (STEP.replace("step", "stride"), "3: event: expected a line of an event log of kvtwin"),
    "no kind": ('{"iteration":5}', "3: event: expected a line of an event log of kvtwin"),
    "a list": (f"[{STEP}]", "3: event: expected a line of an event log of kvtwin"),
    "a field is missing": (STEP.replace('"slot":0,', ""), "3: slot: expected a whole number, found none"),
    "a text": (STEP.replace("8", '"8"'), "3: width: expected a whole number, found '8'"),
    "a fraction": (STEP.replace("8", "8.5"), "3: width: expected a whole number, found 8.5"),
    "null": (STEP.replace("8", "null"), "3: width: expected a whole number, found None"),
    "too large": (STEP.replace("8", "9223372036854775808"), "3: width: expected a whole number"),
    "a foreign field": (STEP.replace("width", "mood"), "3: width: expected a whole number, found none"),
    "one more field": (STEP.replace("}", ',"mood":1}'), "3: mood: expected no such field in an event of kind step"),
    "no list": (GRANT.replace("[0,1]", "0"), "3: slots: expected a list of whole numbers, found 0"),
    "a hole in a list": (GRANT.replace("0,1", "0,null"), "3: slots: expected a list of whole numbers, found [0, None]"),
    "a pool by number": (GRANT.replace('"target"', "0"), "3: pool: expected a text, found 0"),
    "not text": ("\udcff" + STEP, "3: expected an event as JSON"),
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_a_line_that_is_no_event_is_named_and_nothing_is_written(kvtwin: Command, tmp_path: Path, case: str) -> None:
    line, *expected = BAD_LINES[case]
    text = "\n".join([STEP, GRANT, line, STEP, GRANT]) + "\n"
    (tmp_path / "log.jsonl").write_bytes(text.encode(errors="surrogateescape"))
    answer = kvtwin("tables", "log.jsonl", "--out", "tables")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert any(f"kvtwin: log.jsonl:{words}" in answer.err for words in expected)
    assert {path.name for path in tmp_path.iterdir()} == {"log.jsonl"}


BAD_LOGS = {
    "nothing there": ("nowhere.jsonl", "nowhere.jsonl: expected a log of events: no such file"),
    "no log in it": ("folder", "folder/events.jsonl: expected a log of events: no such file"),
    "empty": ("empty.jsonl", "empty.jsonl: expected a log of events, found an empty file"),
}


@pytest.mark.parametrize("case", BAD_LOGS)
def test_a_log_that_is_none_is_one_line(kvtwin: Command, tmp_path: Path, case: str) -> None:
    log, expected = BAD_LOGS[case]
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.jsonl").touch()
    answer = kvtwin("tables", log, "--out", "tables")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"kvtwin: {expected}")
    assert not (tmp_path / "tables").exists()


def test_a_log_without_a_last_line_break_is_whole(kvtwin: Command, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(f"{STEP}\n{GRANT}")
    assert kvtwin("tables", "log.jsonl", "--out", "tables", "--json").json()["rows"] == {"grant": 1, "step": 1}
