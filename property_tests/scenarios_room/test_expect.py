"""Expectations: what holds for which build, and what a run missed of it."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from property_tests.scenarios_room.helpers import parse
from scenarios.expect import Expectation


@dataclass
class Record:
    cached_tokens: int = 0
    draft_cached_tokens: int = 0
    prefilled_tokens: int = 0
    output_tokens: int = 0


def expectation(text: str, build: str = "unified") -> Expectation:
    """The expectations of ``build`` in a scenario of four requests."""
    scenario = parse("workload: {sessions: [{prompt: 9, output: 4, copies: 4}]}\n" + text)
    return scenario.expect.for_build(build)


RECORDS = {0: Record(0), 1: Record(8), 2: Record(8), 3: Record(9)}
TOTALS = SimpleNamespace(prefilled_tokens=100, cached_tokens=25)


def test_a_scenario_without_expectations_still_expects_every_law_to_hold() -> None:
    promise = expectation("")
    assert promise.missed(RECORDS, TOTALS, []) == []
    assert promise.missed(RECORDS, TOTALS, ["INIT"]) == ["law INIT: expected to hold, but it broke"]


def test_requests_are_named_singly_or_as_a_range() -> None:
    promise = expectation("expect: {requests: {0: {cached_tokens: 0}, 1-3: {cached_tokens: 8}}}\n")
    assert promise.missed(RECORDS, TOTALS, []) == ["request 3: cached_tokens: expected 8, found 9"]


def test_a_request_that_never_came_is_missed() -> None:
    promise = expectation("expect: {requests: {3: {cached_tokens: 9}}}\n")
    assert promise.missed({}, TOTALS, []) == ["request 3: expected to run, but there is no such request"]


def test_totals_are_exact_or_within_a_share_or_between_bounds() -> None:
    for text, lines in (
        ("{prefilled_tokens: 100, cached_tokens: {value: 24, within: 0.05}}", 0),
        ("{prefilled_tokens: 101}", 1),
        ("{prefilled_tokens: {value: 104, within: 0.03}}", 1),
        ("{prefilled_tokens: {min: 100, max: 100}}", 0),
        ("{prefilled_tokens: {min: 101}}", 1),
        ("{prefilled_tokens: {max: 99}}", 1),
    ):
        assert len(expectation(f"expect: {{totals: {text}}}\n").missed(RECORDS, TOTALS, [])) == lines, text


def test_peak_pages_are_checked_by_pool() -> None:
    promise = expectation("expect: {peak_pages: {draft: {min: 2, max: 4}}}\n")
    assert promise.missed(RECORDS, TOTALS, [], {"draft": 3}) == []
    assert promise.missed(RECORDS, TOTALS, [], {"draft": 5}) == ["peak pages of pool draft: expected 2 to 4, found 5"]
    assert promise.missed(RECORDS, TOTALS, []) == ["peak pages of pool draft: expected 2 to 4, found nothing"]


def test_laws_that_must_break_are_all_named_and_others_are_tolerated_only_by_name() -> None:
    promise = expectation("expect: {violations: [INIT, FRONT], may: [KEY]}\n")
    assert promise.missed(RECORDS, TOTALS, ["INIT", "FRONT"]) == []
    assert promise.missed(RECORDS, TOTALS, ["INIT", "FRONT", "KEY"]) == []
    assert promise.missed(RECORDS, TOTALS, ["INIT", "OWN"]) == [
        "law FRONT: expected to break, but it held",
        "law OWN: expected to hold, but it broke",
    ]


BY_BUILD = """\
expect:
  requests: {0: {cached_tokens: 0}, 1-2: {cached_tokens: 8}, 3: {cached_tokens: 9}}
  totals: {prefilled_tokens: 100, cached_tokens: 25}
  by_build:
    paired-22: {requests: {3: {cached_tokens: 4}}, totals: {cached_tokens: 20}}
    target-only: {violations: [INIT], requests: null, totals: null}
    joint-backoff: {violations: null}
"""


def test_a_build_inherits_what_it_does_not_say_itself() -> None:
    paired = expectation(BY_BUILD, "paired-22")
    assert sorted(paired.missed(RECORDS, TOTALS, [])) == [
        "request 3: cached_tokens: expected 4, found 9",
        "total cached_tokens: expected 20, found 25",
    ]
    assert expectation(BY_BUILD, "unified-page").missed(RECORDS, TOTALS, []) == []


def test_null_expects_nothing() -> None:
    assert expectation(BY_BUILD, "target-only").missed({}, TOTALS, ["INIT"]) == []
    assert expectation(BY_BUILD, "joint-backoff").missed(RECORDS, TOTALS, ["INIT", "OWN"]) == []
