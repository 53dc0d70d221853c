"""``kvtwin explain``: from a violation back to the events that led to it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from property_tests.cli.conftest import Command

BUILD = "target-only"


@pytest.fixture
def broken(kvtwin: Command, tmp_path: Path) -> Path:
    """The folder of a run that breaks a law: a repeat on a build whose drafter never saw the prefix."""
    assert kvtwin("run", "x05_repeat", "--build", BUILD, "--out", "broken").code == 1
    return tmp_path / "broken"


def test_the_table_names_the_place_and_the_next_command(kvtwin: Command) -> None:
    answer = kvtwin("run", "x05_repeat", "--build", BUILD, "--out", "broken")
    (run,) = kvtwin("run", "x05_repeat", "--build", BUILD, "--json").json()["runs"]
    first = run["violations"][0]
    (row,) = re.findall(rf"^. 1 +. {first['code']} .*$", answer.out, re.MULTILINE)
    for key in ("request", "pool", "page", "position", "step"):
        assert first[key] is None or str(first[key]) in row
    assert "how it came about: kvtwin explain broken 1" in answer.out


def test_without_a_folder_the_next_command_makes_one(kvtwin: Command, tmp_path: Path) -> None:
    answer = kvtwin("run", "x05_repeat", "--build", BUILD)
    (line,) = re.findall(r"how it came about: (.*)", answer.out)
    make, tell = (words.split()[1:] for words in line.split("; "))
    assert kvtwin(*make).code == 1
    assert kvtwin(*tell).code == 0


def test_the_story_ends_with_the_violation_and_starts_with_the_request(kvtwin: Command, broken: Path) -> None:
    violation = json.loads((broken / "violations.json").read_text())[0]
    lines = kvtwin("explain", broken, "1").out.strip().splitlines()
    assert violation["message"] in lines[0]
    assert violation["message"] in lines[-1]
    assert f"The law {violation['code']}: " in lines[1]
    of_request = [line for line in lines if re.match(rf" *[\d,]+ +{violation['request']}  ", line)]
    assert "arrives with a prompt of 8,269 tokens" in of_request[0]
    assert any("claims 8,268 cached tokens" in line for line in of_request)


def test_a_story_holds_only_what_led_up_to_the_violation(kvtwin: Command, broken: Path) -> None:
    told = kvtwin("explain", broken, "1", "--json").json()
    violation = told["violation"]
    assert told["events"]
    for event in told["events"]:
        assert event["iteration"] <= violation["step"]
        touched = [*event.get("slots", ()), *(event.get(key) for key in ("slot", "source", "target", "page"))]
        of_page = (
            violation["page"] is not None and event.get("pool") == violation["pool"] and violation["page"] in touched
        )
        assert event.get("request") == violation["request"] or of_page


def test_a_code_means_its_first_violation(kvtwin: Command, broken: Path) -> None:
    violations = json.loads((broken / "violations.json").read_text())
    for code in sorted({violation["code"] for violation in violations}):
        told = kvtwin("explain", broken, code.lower(), "--json").json()
        assert told["violation"] == next(violation for violation in violations if violation["code"] == code)


@pytest.mark.parametrize("wanted", ["0", "99999", "METRIC", "x", "-1"])
def test_a_violation_that_is_not_there_is_bad_input(kvtwin: Command, broken: Path, wanted: str) -> None:
    answer = kvtwin("explain", "--", broken, wanted)
    assert answer.code == 2
    assert "expected a violation from 1 to" in answer.err


def test_a_run_without_violations_has_nothing_to_explain(kvtwin: Command) -> None:
    kvtwin("run", "hello", "--out", "fine")
    answer = kvtwin("explain", "fine", "1")
    assert answer.code == 2
    assert "expected a run with a violation, found one without" in answer.err


def test_a_run_without_its_events_says_so(kvtwin: Command) -> None:
    kvtwin("run", "x05_repeat", "--build", BUILD, "--out", "broken", "--no-events")
    answer = kvtwin("explain", "broken", "1")
    assert answer.code == 2
    assert "the run was made with --no-events" in answer.err
