"""kvtwin's own event log: what correct runs leave breaks no law, and what spoils one is noticed."""

from __future__ import annotations

import functools
import json
import tempfile
from collections import Counter
from contextlib import redirect_stdout
from importlib.metadata import entry_points
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from property_tests.logs.judging import broken, judged
from property_tests.logs.run_mutations import MUTATIONS, Event
from sim.logs.findings import LogReport

# all that a log can tell of: suspensions, skipped passes, pools too small, slow copies that get lost, two workers with
# a link, a transfer that ends in mid-run, dummies of a fleet, ranks, an id that is used again, a drafter's chain
SCENARIOS = (
    "smoke/disturbed",
    "smoke/pressure",
    "smoke/host_link",
    "smoke/mtp_chain",
    "smoke/two_windows",
    "reports/o17",
    "reports/o45",
    "reports/o66",
    "reports/o75",
    "regressions/preempted_at_its_last_token",
    "regressions/siblings_of_the_target",
    "faults/base_of_an_ended_request",
)
SPOILT = ("smoke/disturbed", "smoke/host_link", "reports/o17", "reports/o75")


@functools.cache
def events(name: str, build: str = "") -> tuple[Event, ...]:
    """The log that ``kvtwin run`` leaves, as a user has it."""
    (script,) = entry_points(group="console_scripts", name="kvtwin")
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
        out = Path(folder) / "run"
        assert script.load()(["run", name, "--out", str(out), *(["--build", build] if build else [])]) == 0
        return tuple(json.loads(line) for line in (out / "events.jsonl").read_text().splitlines())


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_of_a_correct_build_breaks_no_law(name: str) -> None:
    report = judged(events(name))
    assert report.format == "kvtwin"
    assert report.findings == [] and report.broken == 0


@pytest.mark.parametrize("build", ["target-21", "paired-22", "recompute-tail", "vllm-lookahead", "sglang-fused"])
def test_whatever_the_rules_of_a_correct_run_no_law_is_broken(build: str) -> None:
    assert judged(events("smoke/conversation", build)).findings == []


def _evaluated(reports: list[LogReport]) -> Counter[str]:
    return Counter({law.name: law.evaluations for report in reports for law in report.laws if law.evaluations})


def test_every_law_over_a_log_is_evaluated_on_correct_runs() -> None:
    reports = [judged(events(name)) for name in SCENARIOS]
    assert set(_evaluated(reports)) == {law.name for law in reports[0].laws} - {"reported"}  # which takes a folder


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_spoilt_log_is_noticed(name: str) -> None:
    kind, mutation, law = MUTATIONS[name]
    tried = 0
    for scenario in SPOILT if law != "same-decisions" else ("reports/o75",):
        log = list(events(scenario))
        places = [place for place, event in enumerate(log) if event["event"] == kind]
        for place in places[:: max(1, len(places) // 4)]:
            spoilt = mutation(log, place)
            if spoilt is not None:
                tried += 1
                assert law in broken(judged(spoilt)), (scenario, place)
    assert tried


def test_every_law_has_a_log_that_makes_it_fire() -> None:
    assert {law.name for law in judged(events("smoke/disturbed")).laws} - {"reported"} == {
        law for _, _, law in MUTATIONS.values()
    }


def test_a_log_that_is_cut_anywhere_breaks_no_law_if_that_is_said() -> None:
    log = events("smoke/disturbed")
    for place in range(0, len(log), 41):
        assert judged(log[:place] or log[:1], partial=True).findings == []
        assert judged(log[place:], partial=True).findings == [], place


def test_a_log_that_stops_while_rows_are_in_flight_waits_for_nobody() -> None:
    log = events("regressions/preempted_at_its_last_token")
    counts: dict[str, Any] = {law.name: (law.evaluations, law.undecided) for law in judged(log).laws}
    assert counts["all-end"] == (0, 1)


SUBMIT = {"iteration": 0, "event": "submit", "order": 0, "prompt": 6, "max_new_tokens": 1}
CLAIM = {"iteration": 0, "event": "claim", "tokens": 0, "fresh": 0, "branch": -1}
CHUNK = {"iteration": 0, "event": "chunk", "start": 0, "end": 2, "last": 0}
DONE = {"iteration": 0, "event": "mem_chunk", "start": 0, "end": 2, "base": 0, "tags": []}


def test_a_row_whose_request_is_set_back_before_it_runs_is_not_done_and_that_may_be_told_later() -> None:
    log = [
        *({**SUBMIT, "request": request} for request in (0, 1)),
        *({**CLAIM, "request": request, "owner": request + 1} for request in (0, 1)),
        {"iteration": 0, "event": "iteration", "chunks": 2, "steps": 0},
        *({**CHUNK, "request": request, "slot": request} for request in (0, 1)),
        {**DONE, "owner": 2},
        {"iteration": 1, "event": "iteration", "chunks": 1, "steps": 0},
        {**CHUNK, "iteration": 1, "request": 1, "slot": 1, "start": 2, "end": 6, "last": 1},
        {**DONE, "iteration": 1, "owner": 2, "start": 2, "end": 6},
    ]
    assert "memory-follows" in broken(judged(log))
    assert "memory-follows" not in broken(
        judged([*log, {"iteration": 2, "event": "preempt", "request": 0, "context": 6}])
    )


def test_a_copy_may_end_before_the_pass_that_would_have_told_of_its_begin() -> None:
    pass_over = {"iteration": 0, "event": "iteration", "chunks": 0, "steps": 0}
    assert "copies" not in broken(judged([pass_over, {"iteration": 1, "event": "land", "copy": 0}]))
    assert "copies" in broken(judged([{"iteration": 0, "event": "land", "copy": 0}, pass_over]))
