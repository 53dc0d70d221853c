"""The course of a run, as ``run --out`` leaves it, against the requests and pools of the run itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import pandas as pd
import pytest

from model.builds import BUILDS
from model.cluster import Cluster
from model.ops import World
from model.pages import PagePool
from property_tests.cli.conftest import Command
from scenarios import catalog
from sim.run import run_scenario

SCENARIOS = ("smoke/hello", "smoke/pressure", "smoke/disturbed", "smoke/host_link", "smoke/two_windows", "smoke/ops")
SEVERAL = ("reports/o67", "reports/o37", "reports/o75")  # a pair, a fleet, ranks
States = dict[tuple[int, str], list[str]]


class Run:
    """A run in a folder, and the same run once more in memory, with the states of all pages at each iteration."""

    def __init__(self, kvtwin: Command, folder: Path, scenario: str) -> None:
        self.kvtwin, self.folder = kvtwin, folder / "run"
        kvtwin("run", scenario, "--out", self.folder)
        self.result: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        self.requests = pd.read_csv(self.folder / "requests.csv")
        self.states: dict[int, States] = {}
        loaded = catalog.load(scenario)
        run_scenario(loaded, BUILDS[loaded.build], keep_events=True, opened=self._watch)

    def table(self, name: str) -> pd.DataFrame:
        return pd.read_parquet(self.folder / "course" / f"{name}.parquet")

    def spans(self, *kinds: str) -> Iterator[dict[str, Any]]:
        for row in self.table("spans").to_dict("records"):
            if row["kind"] in kinds:
                yield {str(key): value for key, value in row.items()}

    def pages(self, *arguments: str) -> dict[str, Any]:
        return self.kvtwin("pages", self.folder, *arguments, "--json").json()

    def states_at(self, iteration: int) -> States:
        """States when an iteration went out; a worker that did not run it is as it was before."""
        found: States = {}
        for step in sorted(step for step in self.states if step <= iteration):
            found |= self.states[step]
        return found

    def _watch(self, world: World | Cluster) -> None:
        self.world = world
        for worker, one in enumerate(world.workers):
            journal = one.log.journal
            assert journal is not None

            def look(iteration: int, worker: int = worker, one: World = one, before: Any = journal.look) -> None:
                before(iteration)
                for pool in one.engine.twin.pools.values():
                    self.states.setdefault(iteration, {})[worker, pool.name] = states_of(pool)

            journal.look = look  # type: ignore[method-assign]


def states_of(pool: PagePool) -> list[str]:
    """What each page of a pool is, from its own books."""
    states = []
    for page in range(pool.total):
        if pool.state[page] == 0:
            states.append("free")
        elif pool.on_host(page):
            states.append("host")
        elif not pool.locks[page] and not pool.holds[page]:
            states.append("reusable")
        else:
            states.append("held" if pool.node[page] is None else "published")
    return states


def told(document: dict[str, Any], states: States) -> States:
    """The states that ``kvtwin pages --json`` tells, which leaves out free pages."""
    found = {place: ["free"] * len(pages) for place, pages in states.items()}
    for row in document["pages"]:
        found[row["worker"], row["pool"]][row["page"]] = row["state"]
    return found


Runs = Callable[[str], Run]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Run]]:
    return tmp_path_factory.mktemp("runs"), {}


@pytest.fixture
def runs(kvtwin: Command, folders: tuple[Path, dict[str, Run]]) -> Runs:
    """``runs(scenario)``: each is run once for all tests of this file."""
    folder, done = folders

    def run(scenario: str) -> Run:
        if scenario not in done:
            done[scenario] = Run(kvtwin, folder / scenario.replace("/", "_"), scenario)
        done[scenario].kvtwin = kvtwin
        return done[scenario]

    return run


@pytest.mark.parametrize("scenario", [*SCENARIOS, *SEVERAL])
def test_the_page_map_at_the_end_is_what_the_pools_hold(runs: Runs, scenario: str) -> None:
    run = runs(scenario)
    document = run.pages()
    assert document["iteration"] == document["last"] == max(run.states)
    states = run.states_at(document["last"])
    assert told(document, states) == states
    rows = {(row["worker"], row["pool"], row["page"]): row for row in document["pages"]}
    assert any(row["coverage"] for row in rows.values())
    for worker, world in enumerate(run.world.workers):
        for pool in world.engine.twin.pools.values():
            for page, node in enumerate(pool.node):
                if node is None:
                    continue
                row = rows[worker, pool.name, page]
                assert node.pages[row["column"]] == page
                assert (node.ordinal, node.coverage[row["column"]]) == (row["block"], row["coverage"])


@pytest.mark.parametrize("scenario", ["smoke/pressure", "smoke/host_link", "reports/o67"])
def test_the_page_map_at_a_step_is_what_the_pools_held_then(runs: Runs, scenario: str) -> None:
    run = runs(scenario)
    for step in range(0, max(run.states), max(1, max(run.states) // 6)):
        document, states = run.pages("--at", str(step)), run.states_at(step)
        assert told(document, {place: states.get(place, []) for place in states}) == states
        for pool in document["pools"]:
            there = states.get((pool["worker"], pool["name"]), [])
            assert {state: pool[state] for state in set(there)} == {state: there.count(state) for state in there}


def test_a_page_that_a_request_holds_names_the_block_that_it_backs(runs: Runs) -> None:
    run = runs("smoke/hello")
    rows = run.pages("--at", "5")["pages"]
    held = [row for row in rows if (row["state"], row["request"]) == ("held", 1)]
    assert {row["block"] for row in held} == {5, 6, 7}  # a repeat claims 21 tokens: the end of block 5 is its own
    assert {row["block"] for row in rows if row["request"] == 0} == {0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize("scenario", [*SCENARIOS, "smoke/conversation", "smoke/mtp_chain"])
def test_chunks_tile_what_was_prefilled_from_the_claim_on(runs: Runs, scenario: str) -> None:
    run = runs(scenario)
    cursor: dict[int, int] = {}
    prefilled: dict[int, int] = {}
    for span in run.spans("claim", "chunk"):
        request = span["request_id"]
        if span["kind"] == "chunk":
            assert span["position"] == cursor[request]
            prefilled[request] = prefilled.get(request, 0) + span["tokens"]
            cursor[request] += span["tokens"]
        else:
            cursor[request] = span["tokens"]
    assert prefilled == dict(zip(run.requests["request_id"], run.requests["prefilled_tokens"], strict=True))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_generation_brings_every_token_but_the_first(runs: Runs, scenario: str) -> None:
    run = runs(scenario)
    brought: dict[int, int] = {}
    for span in run.spans("generation"):
        brought[span["request_id"]] = brought.get(span["request_id"], 0) + span["tokens"]
    for request, tokens in zip(run.requests["request_id"], run.requests["output_tokens"], strict=True):
        assert brought.get(request, 0) == max(0, tokens - 1)


@pytest.mark.parametrize("scenario", ["smoke/pressure", "smoke/disturbed", "smoke/host_link", "smoke/host_tier"])
def test_a_suspended_span_ends_where_its_request_runs_again_or_ends(runs: Runs, scenario: str) -> None:
    run = runs(scenario)
    spans = list(run.spans("chunk", "generation", "finished", "preempted", "suspended"))
    suspended = [span for span in spans if span["kind"] == "suspended"]
    assert len(suspended) == sum(run.requests["suspensions"].tolist()) > 0
    for span in suspended:
        mine = [one for one in spans if one["request_id"] == span["request_id"] and one["kind"] != "suspended"]
        # A step that is in flight may begin on the device after its request was suspended on the host.
        later = [one for one in mine if one["iteration"] >= span["iteration"] and one["end_ns"] >= span["begin_ns"]]
        assert span["end_ns"] == min(one["begin_ns"] for one in later)


@pytest.mark.parametrize("scenario", [*SCENARIOS, *SEVERAL])
def test_occupancy_adds_up_and_reaches_the_peak_of_the_pool(runs: Runs, scenario: str) -> None:
    run = runs(scenario)
    occupancy = run.table("occupancy")
    several = len(run.world.workers) > 1
    for pool in run.result["pools"]:
        name, _, worker = pool["name"].partition("@")
        rows = occupancy[(occupancy["pool"] == name) & (occupancy["worker"] == int(worker or 0))]
        assert bool(worker) == several
        assert set(rows["used"] + rows["reusable"] + rows["free"]) == {pool["device_pages"]}
        used, peak, times = (rows[column].tolist() for column in ("used", "peak", "time_ns"))
        assert all(one <= most for one, most in zip(used, peak, strict=True))
        assert max(peak) == pool["peak"]
        assert times == sorted(times)
        assert (rows["free"].tolist()[-1], rows["reusable"].tolist()[-1]) == (pool["free"], pool["droppable"])


def test_steps_under_the_clock_are_those_of_the_run(runs: Runs) -> None:
    run = runs("smoke/disturbed")
    iterations, totals = run.table("iterations"), run.result["totals"]
    assert len(iterations) == totals["iterations"]
    chunks, steps, tokens, durations = (
        sum(iterations[column].tolist()) for column in ("chunks", "steps", "chunk_tokens", "duration")
    )
    assert tokens == totals["prefilled_tokens"]
    assert (chunks, steps) == (totals["context_rows"], totals["decode_rows"])
    summary = run.result["summary"]
    counted = round(summary["device_busy_share"] * summary["duration_s"] * 1e9)
    assert counted <= durations <= counted + iterations["duration"].max()  # a step may outlive the last request
    assert min((iterations["settle_ns"] - iterations["start_ns"] - iterations["duration"]).tolist()) >= 0


def test_a_request_is_queued_when_its_client_sent_it_and_finished_when_it_had_its_last_token(runs: Runs) -> None:
    run = runs("smoke/conversation")
    times = run.requests.set_index("request_id")
    queued = {span["request_id"]: span for span in run.spans("queued")}
    finished = {span["request_id"]: span for span in run.spans("finished")}
    assert queued.keys() == finished.keys() == set(times.index)
    for request, row in times.iterrows():
        assert queued[request]["begin_ns"] / 1e6 == row["submit_ms"]
        assert finished[request]["end_ns"] / 1e6 == pytest.approx(row["submit_ms"] + row["e2e_ms"])
        assert (queued[request]["session"], queued[request]["turn"]) == (row["session"], row["turn"])


def test_ops_have_no_clock_and_iterations_stand_in_for_it(runs: Runs) -> None:
    run = runs("smoke/ops")
    assert json.loads((run.folder / "course/course.json").read_text())["clocked"] is False
    for span in run.spans("chunk"):
        assert (span["begin_ns"], span["end_ns"]) == (span["iteration"], span["iteration"] + 1)


def test_pages_of_a_prefilled_request_travel_before_it_generates(runs: Runs) -> None:
    run = runs("reports/o67")
    sent = list(run.spans("transfer"))
    assert {span["worker"] for span in sent} == {1}
    last = {span["request_id"]: span["end_ns"] for span in run.spans("chunk") if span["worker"] == 0}
    first = {span["request_id"]: span["begin_ns"] for span in run.spans("generation") if span["worker"] == 1}
    for span in sent:
        assert last[span["request_id"]] <= span["begin_ns"] < span["end_ns"] <= first[span["request_id"]]


def test_copies_between_the_tiers_last_until_they_land(runs: Runs) -> None:
    run = runs("smoke/host_link")
    copies = [span for span in run.spans("copy") if span["note"].startswith("page")]
    assert len(copies) == run.result["totals"]["stores"] + run.result["totals"]["loads"]
    assert all(span["end_ns"] > span["begin_ns"] for span in copies)
    assert {span["request_id"] for span in copies} <= set(run.requests["request_id"])


def test_the_page_map_is_read_by_people_too(kvtwin: Command) -> None:
    kvtwin("run", "hello", "--out", "run")
    answer = kvtwin("pages", "run", "--at", "5")
    assert answer.code == 0
    assert "when iteration 5 of 12 went out" in answer.out
    assert "5-7" in answer.out
    assert "at the end" in kvtwin("pages", "run").out


BROKEN = {
    "no such folder": (("pages", "nowhere"), "nowhere: expected a folder"),
    "no events": (("pages", "bare"), "bare: expected a folder that kvtwin run --out wrote with its events"),
    "beyond the end": (("pages", "run", "--at", "99"), "--at: expected an iteration up to 12, the end of the run"),
    "no table": (("pages", "torn"), "torn/course/page_notes.parquet: expected a table of the course of a run"),
    "no Parquet": (("pages", "bad"), "bad/course/spans.parquet: expected a Parquet file"),
    "another version": (("pages", "old"), "old/course/course.json: schema: expected 1, found 0; run it again"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_course_that_cannot_be_read_is_one_line(kvtwin: Command, runs: Runs, tmp_path: Path, case: str) -> None:
    arguments, expected = BROKEN[case]
    for folder in ("run", "torn", "bad", "old"):
        copytree(runs("smoke/hello").folder, tmp_path / folder)
    copytree(runs("smoke/hello").folder, tmp_path / "bare", ignore=lambda *_: ["course"])
    (tmp_path / "torn/course/page_notes.parquet").unlink()
    (tmp_path / "bad/course/spans.parquet").write_text("no table")
    about = tmp_path / "old/course/course.json"
    about.write_text(about.read_text().replace('"schema": 1', '"schema": 0'))
    answer = kvtwin(*arguments)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert answer.err.startswith(f"kvtwin: {expected}")
