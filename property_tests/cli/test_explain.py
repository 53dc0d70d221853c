"""``kvtwin explain``: from a violation back to the events that led to it."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from property_tests.cli.conftest import Command

BUILD = "target-only"
LONGEST = 35  # lines of a story that a person reads in one go


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
        assert event.get("request") == violation["request"] or of_page or event["event"] == "skip"


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


TELLING = {
    "no-draft-rollback": (
        "the forward pass is allocated but not queued, so skipped",
        "found target capacity 20, history 13, 5 blocks on 5 pages; "
        "draft capacity 24, history 13, 6 blocks on 6 pages; cursor 10; base page 0",
    ),
    "base-not-rolled-back": ("the forward pass of this iteration fails", "cursor 8; base page 0, found", "base page 3"),
    "slot-loss-zero": (
        "the drafter's base is page 0, its length 0",
        "expected cells from offset 4 on, found the cell at offset 0 of a page published for its first 4",
    ),
    "evict-target-only": ("suspended: the target pool gives up its locks, the draft pool keeps them",),
    "discounted-budget": (
        "claims 20 cached tokens",
        "the pass schedules 2 chunks and 0 verify steps",
        "prefills [20, 44) in row slot 1, 24 tokens, its last chunk",
        "found 47 tokens: 44 of chunks, 3 drafts behind last chunks, 0 of verify steps",
    ),
    "chunk-floored-to-nothing": (
        "it stands at 0 of 34 tokens with a claim of 20, and no pass schedules a chunk or a step of it at all",
    ),
    "hold-leak": ("found a target sequence with a claim of 16 tokens, 6 pages; cursor 16",),
    "late-output": (
        "preempted: gives up its pages, its context is 14 tokens now; it is owner 4 from here on",
        "iteration 1 was dispatched before that, and its result settles after it",
    ),
    "batch-row-kept": (
        "it goes on in its old row, and is not bound to one since iteration 6",
        "owner 4 is bound to row slot 2",
        "row slot 2 still belongs to another request; expected owner 3 (request 2), found owner 4 (request 3)",
    ),
    "recompute-counted": (
        "the counts differ in cached: 0 happened, 42 reported; "
        "claimed at the admissions: 0, 0, 14, 14, 14, 0, only the first is a hit",
    ),
    "kept-provisional": (
        "the step of iteration 3 commits [14, 17): position 15 is accepted, but its cell is left as the draft it was",
        "reads a cell that holds a draft: an accepted token was never written there",
    ),
}


@pytest.mark.parametrize("fault", TELLING)
def test_the_story_of_a_fault_tells_its_cause(kvtwin: Command, fault: str) -> None:
    assert kvtwin("run", "--build", f"fault:{fault}", "--out", "faulty").code == 1
    story = kvtwin("explain", "faulty", "1").out
    for words in TELLING[fault]:
        assert words in story
    assert "None" not in story and "(((" not in story
    assert len(story.splitlines()) <= LONGEST


def test_a_page_is_followed_through_its_eviction_to_its_next_owner(kvtwin: Command) -> None:
    kvtwin("run", "--build", "fault:publish-unwritten", "--out", "faulty")
    story = kvtwin("explain", "faulty", "1").out
    before, after = story.split("pages 0, 6, 5 of pool draft (page 0 among them): evicted from the cache")
    assert "owner 1 is granted pages 0, 1 of pool draft (page 0 among them)" in before
    assert "owner 2 is granted page 5, 6, 0, then 1, 4, 2, 3 of pool draft (page 0 among them)" in after


def test_a_story_of_two_workers_tells_the_transfer(kvtwin: Command, tmp_path: Path) -> None:
    kvtwin("run", "o58", "--build", "fault:abort-frees-destination", "--out", "broken")
    story = kvtwin("explain", "broken", "1").out
    begins, granted, arrives = (
        story.index(words) for words in ("its transfer begins: owner 1", "owner 2 is granted page", "has arrived")
    )
    assert begins < granted < arrives


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"event": "iteration", "chunks": 1, "steps": 1}, "the pass schedules 1 chunk and 1 verify step"),
        ({"event": "iteration", "chunks": 0, "steps": 2}, "the pass schedules 0 chunks and 2 verify steps"),
        ({"event": "finish", "output": 1}, "finished after 1 token"),
        (
            {"event": "submit", "prompt": 1, "max_new_tokens": 2000},
            "arrives with a prompt of 1 token, for at most 2,000",
        ),
        (
            {"event": "copy", "tokens": 1, "source": 4, "target": 5, "pool": "draft"},
            "the first token of page 4 is copied to page 5 of pool draft",
        ),
        (
            {"event": "copy", "tokens": 3, "source": 4, "target": 5, "pool": "draft"},
            "the first 3 tokens of page 4 are copied to page 5 of pool draft",
        ),
    ],
)
def test_one_is_told_as_one(event: dict[str, object], said: str) -> None:
    assert import_module("reports.sentences").sentence(event, {}) == said
