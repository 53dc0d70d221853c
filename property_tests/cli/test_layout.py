"""What stands on a screen of 80 or of 200 columns: whole words, whole numbers, no blanks at the end of a line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from model.builds import BUILDS
from model.faults import FAULTS
from model.invariants import INVARIANTS
from property_tests.cli.conftest import Command

WIDTHS = [80, 200]


@pytest.mark.parametrize("columns", WIDTHS)
def test_builds_and_their_answers_are_whole_words(
    kvtwin: Command, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = kvtwin("builds").out
    lines = out.splitlines()
    assert max(map(len, lines)) <= columns
    assert [line for line in lines if line != line.rstrip()] == []
    for build in BUILDS.values():
        assert any(line.startswith(f"{build.name}  ") for line in lines)
    words = set(re.split(r"[\s,│]+", out))
    for rule, answer in BUILDS["unified"].rules.named().items():
        differs = len({build.rules.named()[rule] for build in BUILDS.values()}) > 1
        assert rule in words or not differs
        assert answer in words or not differs


@pytest.mark.parametrize("catalogue", ["faults", "invariants", "scenarios"])
@pytest.mark.parametrize("columns", WIDTHS)
def test_a_catalogue_breaks_no_word(
    kvtwin: Command, monkeypatch: pytest.MonkeyPatch, catalogue: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = kvtwin(catalogue).out
    assert max(map(len, out.splitlines())) <= columns
    words = set(re.split(r"[\s,│]+", out))
    names = {"faults": FAULTS, "invariants": INVARIANTS}.get(catalogue, {"smoke/hello": None})
    assert set(names) <= words
    if catalogue == "faults":
        assert {fault.scenario for fault in FAULTS.values()} <= words


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_place_of_a_violation_is_never_cut(kvtwin: Command, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    arguments = ("run", "x05_repeat", "--build", "target-only")
    (run,) = kvtwin(*arguments, "--json").json()["runs"]
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = kvtwin(*arguments).out.splitlines()
    for number, violation in enumerate(run["violations"], 1):
        places = [violation[key] for key in ("code", "request", "pool", "page", "position", "step")]
        pattern = r"[\s│]+".join(["–" if place is None else re.escape(str(place)) for place in (number, *places)])
        assert any(re.search(rf"^[\s│]*{pattern}\b", line) for line in lines)
    headings = ["#", "law", "request", "pool", "page", "position", "step"]
    assert any(re.split(r"[\s┃]+", line.strip("┃ "))[:7] == headings for line in lines)
    assert [line for line in lines if line != line.rstrip()] == []


def test_a_summary_says_which_laws_were_not_exercised(kvtwin: Command) -> None:
    (run,) = kvtwin("run", "hello", "--json").json()["runs"]
    idle = [code for code in INVARIANTS if not run["checked"].get(code)]
    assert idle
    out = " ".join(kvtwin("run", "hello").out.split())
    assert f"{len(INVARIANTS) - len(idle)} of {len(INVARIANTS)} laws" in out
    assert f"not exercised: {', '.join(idle)}" in out


def test_one_build_shows_its_rules(kvtwin: Command) -> None:
    row = kvtwin("builds", "paired-22", "--json").json()
    assert row["rules"] == BUILDS["paired-22"].rules.named()
    out = kvtwin("builds", "paired-22").out
    assert all(rule in out and answer in out for rule, answer in row["rules"].items())


def test_faults_tell_the_law_that_fires_first_from_those_that_may_follow(kvtwin: Command) -> None:
    rows = kvtwin("faults", "--json").json()
    assert {row["name"]: (row["first"], row["fires"]) for row in rows} == {
        fault.name: (fault.fires[0], list(fault.fires)) for fault in FAULTS.values()
    }
    out = kvtwin("faults").out
    assert "fires first" in " ".join(out.split()) and "may follow" in " ".join(out.split())


def test_only_declared_laws_of_a_historical_build_are_expected(kvtwin: Command) -> None:
    (found,) = kvtwin("compare", "hello", "--builds", "target-only,unified", "--json").json()["comparisons"]
    historical = found["builds"][0]
    assert set(historical["laws_broken"]) <= set(historical["laws_declared"]) == set(BUILDS["target-only"].must_fire)
    assert "INIT (expected)" in kvtwin("compare", "hello", "--builds", "target-only,unified").out


def test_a_law_that_a_historical_build_does_not_declare_is_named_plainly(
    kvtwin: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BUILDS, "target-only", replace(BUILDS["target-only"], must_fire=("FRONT",)))
    answer = kvtwin("compare", "hello", "--builds", "target-only,unified")
    assert re.search(r"laws broken\W+INIT\W+none", answer.out)
    assert "(expected)" not in answer.out


def test_a_law_that_a_build_declares_to_break_is_not_told_as_a_surprise(kvtwin: Command) -> None:
    answer = kvtwin("run", "hello", "--build", "target-only")
    assert answer.code == 1
    assert "law INIT broke, as this build declares" in answer.out
    assert "expected to hold" not in answer.out


def test_a_single_request_is_not_plural(kvtwin: Command, tmp_path: Path) -> None:
    row = '{"timestamp": 0, "input_length": 600, "output_length": 4, "hash_ids": [1, 2]}\n'
    (tmp_path / "one.jsonl").write_text(row)
    answer = kvtwin("compare", "--trace", "one.jsonl", "--format", "mooncake", "--builds", "unified")
    assert "1 request, K" in answer.out
