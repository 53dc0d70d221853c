"""``run --perfetto``: a trace in the published format, whose slices nest as the Perfetto UI wants them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from property_tests.cli.conftest import Command

SCHEMA = json.loads((Path(__file__).parent / "trace_event.schema.json").read_text())
SCENARIOS = (
    "smoke/hello",
    "smoke/pressure",
    "smoke/disturbed",
    "smoke/host_link",
    "smoke/ops",
    "reports/o67",
    "reports/o37",
)
Event = dict[str, Any]


class Traced:
    """A trace, and the result of the run that it is of."""

    def __init__(self, kvtwin: Command, folder: Path, scenario: str) -> None:
        answer = kvtwin("run", scenario, "--out", folder / "run", "--perfetto")
        assert answer.code == 0, answer.err
        self.document = json.loads((folder / "run/trace.json").read_text())
        self.result = json.loads((folder / "run/result.json").read_text())
        self.events: list[Event] = self.document["traceEvents"]

    def of(self, phase: str, category: str | None = None) -> list[Event]:
        return [e for e in self.events if e["ph"] == phase and category in (None, e.get("cat"))]


def ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def span(event: Event) -> tuple[int, int]:
    return ns(event["ts"]), ns(event["ts"]) + ns(event.get("dur", 0))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_trace_keeps_to_the_published_format(kvtwin: Command, tmp_path: Path, scenario: str) -> None:
    trace = Traced(kvtwin, tmp_path, scenario)
    jsonschema.Draft202012Validator(SCHEMA).validate(trace.document)
    timed = [event["ts"] for event in trace.events if event["ph"] != "M"]
    assert timed == sorted(timed)
    assert len(trace.events) > len(timed) > 20
    _slices_nest(trace)
    _pairs_match(trace)
    _threads_have_names(trace)


def _slices_nest(trace: Traced) -> None:
    """Complete events of one thread lie apart or one in the other: others would be dropped or cut."""
    threads: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in trace.of("X"):
        threads.setdefault((event["pid"], event["tid"]), []).append(span(event))
    assert threads
    for slices in threads.values():
        stack: list[tuple[int, int]] = []
        for begin, end in sorted(slices, key=lambda one: (one[0], -one[1])):
            while stack and stack[-1][1] <= begin:
                stack.pop()
            assert not stack or end <= stack[-1][1]
            stack.append((begin, end))


def _pairs_match(trace: Traced) -> None:
    for first, second in (("b", "e"), ("s", "f")):
        begun = {(event["cat"], event["id"]): event for event in trace.of(first)}
        ended = {(event["cat"], event["id"]): event for event in trace.of(second)}
        assert len(begun) == len(trace.of(first))
        assert begun.keys() == ended.keys()
        assert all(begun[key]["ts"] <= ended[key]["ts"] for key in begun)


def _threads_have_names(trace: Traced) -> None:
    named = {(event["pid"], event["tid"]) for event in trace.of("M") if event["name"] == "thread_name"}
    processes = {event["pid"] for event in trace.of("M") if event["name"] == "process_name"}
    for event in trace.events:
        assert event["pid"] in processes
        assert event["ph"] in "MC" or (event["pid"], event["tid"]) in named


def test_a_trace_tells_every_step_claim_and_publication(kvtwin: Command, tmp_path: Path) -> None:
    trace = Traced(kvtwin, tmp_path, "smoke/hello")
    assert len(trace.of("X", "step")) == trace.result["totals"]["iterations"]
    claims = [event["args"]["tokens"] for event in trace.of("i", "claim")]
    assert (len(claims), sum(claims)) == (3, trace.result["totals"]["cached_tokens"])
    ends = Counter(event["args"]["note"] for event in trace.of("i", "finished"))
    assert ends == {"finished": trace.result["totals"]["finished"]}
    assert {event["args"]["pool"] for event in trace.of("i", "publication")} == {"target", "draft"}
    assert (
        sum(event["args"]["tokens"] for event in trace.of("X", "chunk")) == trace.result["totals"]["prefilled_tokens"]
    )
    names = {event["args"]["name"] for event in trace.of("M") if event["name"] == "thread_name"}
    assert names == {"device", "request 0 (cold turn 0)", "request 1 (repeat turn 0)", "request 2 (branch turn 0)"}


def test_counters_end_at_what_the_pools_hold(kvtwin: Command, tmp_path: Path) -> None:
    trace = Traced(kvtwin, tmp_path, "smoke/host_link")
    last = {event["name"]: event["args"] for event in trace.of("C")}
    for pool in trace.result["pools"]:
        used = pool["held"] + pool["locked"]
        expected = {"used": used, "reusable": pool["droppable"], "host": pool["host_used"]}
        assert last[f"pages of {pool['name']}"] == expected
    assert len(trace.of("b", "copy")) == trace.result["totals"]["stores"] + trace.result["totals"]["loads"]


def test_an_arrow_leads_from_the_last_chunk_to_the_transfer(kvtwin: Command, tmp_path: Path) -> None:
    trace = Traced(kvtwin, tmp_path, "reports/o67")
    arrows = {event["id"]: event for event in trace.of("s")}
    assert len(arrows) == 4
    for end in trace.of("f"):
        for event, category in ((arrows[end["id"]], "chunk"), (end, "transfer")):
            slices = [
                one for one in trace.of("X", category) if (one["pid"], one["tid"]) == (event["pid"], event["tid"])
            ]
            assert any(span(one)[0] <= ns(event["ts"]) <= span(one)[1] for one in slices)
        assert (arrows[end["id"]]["pid"], end["pid"]) == (1, 2)


def test_without_a_clock_an_iteration_takes_a_millisecond(kvtwin: Command, tmp_path: Path) -> None:
    trace = Traced(kvtwin, tmp_path, "smoke/ops")
    assert trace.document["otherData"]["clock"] == "no clock: an iteration takes 1 ms"
    steps = trace.of("X", "step")
    assert [(event["ts"], event["dur"]) for event in steps] == [(1000 * place, 1000) for place in range(len(steps))]


@pytest.mark.parametrize("others", [(), ("--out", "run", "--no-events")])
def test_a_trace_needs_a_folder_and_the_event_log(kvtwin: Command, tmp_path: Path, others: tuple[str, ...]) -> None:
    answer = kvtwin("run", "hello", "--perfetto", *others)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "expected --out DIR and no --no-events beside --perfetto" in answer.err
    assert not (tmp_path / "run").exists()
