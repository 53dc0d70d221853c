"""``kvtwin builds``: who answers what, which change brought it, and what differs between two builds."""

from __future__ import annotations

import re

import pytest

from model.builds import BUILDS, DEFAULT_BUILD
from model.faults import FAULTS
from model.provenance import BROUGHT_BY
from model.rules.base import Rules
from property_tests.cli.conftest import Command

ANSWERS = {name: build.rules.named() for name, build in BUILDS.items()}
TOLD = [rule for rule in Rules().named() if len({answers[rule] for answers in ANSWERS.values()}) > 1]


def test_every_answer_with_a_source_is_some_builds_answer() -> None:
    given = {pair for answers in ANSWERS.values() for pair in answers.items()}
    assert [pair for pair in BROUGHT_BY if pair not in given] == []


def test_the_document_says_which_change_brought_each_answer(kvtwin: Command) -> None:
    rows = {row["name"]: row for row in kvtwin("builds", "--json").json()}
    assert list(rows) == list(BUILDS)
    assert rows[DEFAULT_BUILD]["changes"] == []
    for name, row in rows.items():
        changed = {change["rule"]: change["answer"] for change in row["changes"]}
        usual = ANSWERS[DEFAULT_BUILD]
        assert changed == {rule: answer for rule, answer in ANSWERS[name].items() if answer != usual[rule]}
        assert all(change["brought_by"] for change in row["changes"])
    keys = next(change for change in rows["joint-18093"]["changes"] if change["rule"] == "keys")
    assert keys == {"rule": "keys", "answer": "shifted-stream", "brought_by": "#18093 (seed 004)"}


def test_the_matrix_has_a_mark_for_each_build_and_rule(kvtwin: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    lines = kvtwin("builds").out.splitlines()
    assert max(map(len, lines)) <= 110
    start = next(place for place, line in enumerate(lines) if line.startswith("build "))
    assert lines[start].split() == ["build", *TOLD]
    marks = {line.split()[0]: line.split()[1:] for line in lines[start + 1 : start + 1 + len(BUILDS)]}
    assert list(marks) == list(BUILDS)
    assert set(marks[DEFAULT_BUILD]) == {"·"}
    legend, rule = {}, ""
    for line in lines[start:]:
        if cells := re.match(r"│ (.{1,40}?) *│ (\S) │ (\S+) ", line):
            rule = cells[1].strip() or rule
            legend[rule, cells[2]] = cells[3]
    for name, answers in ANSWERS.items():
        assert {rule: legend[rule, mark] for rule, mark in zip(TOLD, marks[name], strict=True)} == {
            rule: answers[rule] for rule in TOLD
        }


def test_a_narrow_screen_names_what_is_not_the_defaults(kvtwin: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = kvtwin("builds").out
    assert re.search(r"^mirror-21281: layout a, claim a, retention a", out, re.MULTILINE)
    assert re.search(rf"^{DEFAULT_BUILD}: the default everywhere$", out, re.MULTILINE)


def test_two_builds_show_answers_sources_and_fields_that_differ(kvtwin: Command) -> None:
    rows = {row["name"]: row for row in kvtwin("builds", "unified-page", "unified", "--json").json()}
    assert list(rows) == ["claim"]
    assert rows["claim"]["fields"] == {"boundary": [True, False]}
    assert rows["claim"]["brought_by"]["unified"] == "#22 (seed 000)"
    out = kvtwin("builds", "unified-page", "unified").out
    assert "boundary: yes → no" in out
    assert "windowed-pair-page-boundary, by unified layout (seed 003), before partial endpoints" in out


def test_a_build_and_itself_differ_in_nothing(kvtwin: Command) -> None:
    answer = kvtwin("builds", "unified", "unified")
    assert (answer.code, answer.out) == (0, "unified and unified answer every rule alike.\n")


@pytest.mark.parametrize("name", ["raw-keys", "trim-only", "slot-loss-zero", "evict-target-only", "release-early"])
def test_a_fault_differs_from_its_build_in_the_rule_it_breaks(kvtwin: Command, name: str) -> None:
    fault = FAULTS[name]
    (row,) = kvtwin("builds", f"fault:{name}", fault.base, "--json").json()
    assert row["name"] == fault.rule
    assert row["brought_by"][f"fault:{name}"] == ", ".join(fault.sources)
