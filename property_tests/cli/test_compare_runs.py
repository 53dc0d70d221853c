"""``kvtwin compare`` over folders, seeds and baselines: paired arms, their ratios, and what intervals are over."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from jsonschema import Draft202012Validator

from property_tests.cli.conftest import Command

Rows = dict[tuple[str, str], dict[str, Any]]
CHATS = """\
geometry: tiny
seed: 7
workload:
  concurrency: 2
  prefixes: {document: 22}
  sessions:
    - name: chat
      copies: 12
      turns:
        - {prompt: [document, 5], output: 6}
        - {append: 4, output: 5}
acceptance: {coverage: 0.8}
"""


def found(kvtwin: Command, *arguments: str | Path) -> dict[str, Any]:
    """The only comparison of a call."""
    (comparison,) = kvtwin("compare", *arguments, "--json").json()["comparisons"]
    return comparison


def rows(comparison: dict[str, Any]) -> Rows:
    return {(row["metric"], row["build"]): row for row in comparison["rows"]}


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    """Twelve conversations of two turns on a shared document, and accepted counts that answer to the window."""
    path = tmp_path / "chats.yaml"
    path.write_text(CHATS)
    return path


@pytest.fixture
def folders(kvtwin: Command, tmp_path: Path) -> Callable[..., Path]:
    """``folders(build, name)``: a run of hello on a build, kept in a folder."""

    def make(build: str, name: str, scenario: str = "hello") -> Path:
        assert kvtwin("run", scenario, "--build", build, "--no-events", "--out", name).code in (0, 1)
        return tmp_path / name

    return make


def test_runs_read_from_folders_compare_as_those_that_are_made(kvtwin: Command, folders: Callable[..., Path]) -> None:
    made = found(kvtwin, "hello", "--builds", "target-only,unified")
    read = found(kvtwin, folders("target-only", "one"), folders("unified", "two"))
    assert read["rows"] == made["rows"]
    assert [build["digests"] for build in read["builds"]] == [build["digests"] for build in made["builds"]]


def test_a_folder_of_several_runs_gives_a_comparison_for_each_scenario(kvtwin: Command) -> None:
    kvtwin("run", "hello", "conversation", "--build", "unified", "--out", "after")
    kvtwin("run", "hello", "conversation", "--build", "paired-22", "--out", "before")
    told = kvtwin("compare", "before", "after", "--json").json()["comparisons"]
    assert {one["scenario"]: one["baseline"] for one in told} == {"hello": "paired-22", "conversation": "paired-22"}
    assert all([build["name"] for build in one["builds"]] == ["paired-22", "unified"] for one in told)


def test_a_label_tells_two_runs_of_one_build_apart(kvtwin: Command, folders: Callable[..., Path]) -> None:
    yesterday, today = folders("unified", "monday"), folders("unified", "tuesday")
    named = found(kvtwin, f"yesterday={yesterday}", f"today={today}")
    assert [build["name"] for build in named["builds"]] == ["yesterday", "today"]
    assert {row["ratio"] for row in named["rows"] if row["exact"] and row["before"]} == {1}
    unnamed = found(kvtwin, yesterday, today)
    assert [build["name"] for build in unnamed["builds"]] == ["unified (monday)", "unified (tuesday)"]


def test_folders_stand_beside_builds_that_are_run(kvtwin: Command, folders: Callable[..., Path]) -> None:
    told = found(kvtwin, "hello", folders("target-only", "old"), "--builds", "unified", "--baseline", "target-only")
    assert [build["name"] for build in told["builds"]] == ["unified", "target-only"]
    assert told["paired_requests"] == told["requests"]


def test_the_baseline_is_what_ratios_are_to(kvtwin: Command) -> None:
    builds = ("x05_repeat", "--builds", "unified-page,unified")
    forth, back = found(kvtwin, *builds), found(kvtwin, *builds, "--baseline", "unified")
    assert rows(forth)["cached_tokens", "unified"]["ratio"] == pytest.approx(8268 / 8192)
    row = rows(back)["cached_tokens", "unified-page"]
    assert (row["before"], row["after"], row["ratio"]) == (8268, 8192, pytest.approx(8192 / 8268))
    assert back["baseline"] == "unified"


def test_every_build_has_the_same_seeds(kvtwin: Command, chats: Path) -> None:
    told = found(kvtwin, chats, "--builds", "paired-22,unified", "--repeats", "3")
    assert [build["seeds"] for build in told["builds"]] == [[7, 8, 9], [7, 8, 9]]
    assert told["repeats"] == 3
    row = rows(told)["prefilled_tokens", "unified"]
    assert row["resampling"] == "seed" and row["low"] <= row["value"] <= row["high"]
    assert rows(told)["al_step_weighted", "unified"]["resampling"] == "conversation"


def test_runs_of_other_seeds_are_repeats_of_one_arm(kvtwin: Command, chats: Path, tmp_path: Path) -> None:
    made = found(kvtwin, chats, "--builds", "target-only,unified", "--repeats", "2")
    names = []
    for build in ("target-only", "unified"):
        for seed in (7, 8):
            (tmp_path / "chats.yaml").write_text(CHATS.replace("seed: 7", f"seed: {seed}"))
            kvtwin("run", "chats.yaml", "--build", build, "--out", f"{build}-{seed}")
            names.append(f"{build}-{seed}")
    assert found(kvtwin, *names)["rows"] == made["rows"]


def test_intervals_are_over_conversations_unless_told_otherwise(kvtwin: Command, chats: Path) -> None:
    for unit in ("conversation", "request"):
        given = () if unit == "conversation" else ("--unit", unit)
        told = found(kvtwin, chats, "--builds", "target-only,unified", *given)
        units = {row["resampling"] for row in told["rows"]}
        assert told["resampling"] == unit and units == {unit, "exact", "none"}


def test_an_interval_holds_its_figure_and_what_is_exact_has_none(kvtwin: Command, chats: Path) -> None:
    for row in found(kvtwin, chats, "--builds", "target-only,unified")["rows"]:
        if row["exact"] or row["resampling"] == "none":
            assert row["low"] is row["high"] is row["ratio_low"] is None
        elif row["low"] is not None:
            assert row["low"] <= row["value"] <= row["high"]
            if row["ratio_low"] is not None:
                assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]


def test_a_build_that_shares_every_draw_has_a_ratio_of_one_without_width(kvtwin: Command, chats: Path) -> None:
    """paired-22 and unified give this workload the same windows, so the accepted counts are the same step by step."""
    row = rows(found(kvtwin, chats, "--builds", "paired-22,unified"))["al_step_weighted", "unified"]
    assert (row["ratio_low"], row["ratio"], row["ratio_high"]) == (1, 1, 1)
    assert row["low"] < row["value"] < row["high"]


def test_lost_drafter_context_shows_in_the_acceptance_of_hits_and_not_of_cold_requests(
    kvtwin: Command, chats: Path
) -> None:
    figures = rows(found(kvtwin, chats, "--builds", "target-only,unified"))
    assert figures["coverage_first", "unified"]["ratio_low"] > 1
    assert figures["al_hits", "unified"]["ratio"] > 1
    assert figures["al_cold", "unified"]["ratio"] == 1


def test_hit_rates_stand_by_lifecycle(kvtwin: Command) -> None:
    """The drafter's pool of the unpaired build reuses nothing, which no sum with the target's shows."""
    figures = rows(found(kvtwin, "x05_repeat", "--builds", "target-only,unified"))
    assert figures["hit_rate_tokens_draft", "target-only"]["value"] == 0
    assert figures["hit_rate_tokens_draft", "unified"]["value"] == pytest.approx(8268 / (2 * 8269))
    assert figures["hit_rate_tokens_target", "target-only"]["value"] == pytest.approx(8268 / (2 * 8269))
    rates = {metric for metric, _ in figures if metric.startswith("hit_rate")}
    assert rates == {f"hit_rate_{unit}_{life}" for unit in ("tokens", "pages") for life in ("target", "draft")}


@pytest.mark.parametrize(
    ("scenario", "kind", "page", "partial"),
    [
        ("x05_repeat", "repeat", 8192, 8268),
        ("x05_two_turn", "two_turn", 20096, 20220),
        ("x07", "short_tail", 12416, 12416),
        ("x08", "short_tail", 16512, 16570),
        ("x09", "long_tail", 16570, 16570),
    ],
)
def test_cached_tokens_per_hit_are_those_of_the_seeds(
    kvtwin: Command, scenario: str, kind: str, page: int, partial: int
) -> None:
    """X5, X7, X8, X9, by the class of the hit."""
    figures = rows(found(kvtwin, scenario, "--builds", "unified-page,unified"))
    if scenario != "x09":  # there a long tail is claimed by page, too
        assert figures[f"cached_per_hit_{kind}", "unified-page"]["value"] == page
    assert figures[f"cached_per_hit_{kind}", "unified"]["value"] == partial


def test_first_and_continuation_turns_have_a_ttft_of_their_own(kvtwin: Command, chats: Path, tmp_path: Path) -> None:
    kvtwin("run", chats, "--out", "run")
    table = pd.read_csv(tmp_path / "run/requests.csv")
    figures = rows(found(kvtwin, "run"))
    for name, turns in (("first", table["turn"] == 0), ("continuation", table["turn"] > 0)):
        for rank in (50, 90):
            value = figures[f"ttft_{name}_p{rank}_ms", "unified"]["value"]
            assert value == pytest.approx(np.quantile(table["ttft_ms"].to_numpy()[turns.to_numpy()], rank / 100))


def test_the_rate_of_a_user_is_one_over_the_time_between_tokens(kvtwin: Command, folders: Callable[..., Path]) -> None:
    figures = rows(found(kvtwin, folders("unified", "run")))
    table = pd.read_csv("run/requests.csv")
    tpot, tokens, latency = (table[name].to_numpy() for name in ("tpot_ms", "output_tokens", "e2e_ms"))
    for name, values, rank in (
        ("tokens_per_user_p50", 1e3 / tpot, 0.5),
        ("tokens_per_user_with_ttft_p90", 1e3 * tokens / latency, 0.9),
    ):
        assert figures[name, "unified"]["value"] == pytest.approx(np.quantile(values, rank))
    assert figures["tokens_per_user_slow", "unified"]["value"] == pytest.approx(1e3 / np.quantile(tpot, 0.9))


def test_what_compare_prints_and_writes_is_held_by_the_schema(kvtwin: Command, chats: Path, tmp_path: Path) -> None:
    schema = kvtwin("schema", "comparison").json()
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    for call in (("ops", "--builds", "unified"), (str(chats), "--builds", "target-only,unified", "--out", "out")):
        printed = kvtwin("compare", *call, "--json").json()
        validator.validate(printed)
        assert all(one["schema_version"] == 1 for one in printed["comparisons"])
    validator.validate(json.loads((tmp_path / "out/comparison.json").read_text()))
    broken = json.loads(json.dumps(printed))
    del broken["comparisons"][0]["rows"][0]["resampling"]
    assert not validator.is_valid(broken)


def test_csv_and_parquet_hold_the_same_tables(kvtwin: Command, chats: Path, tmp_path: Path) -> None:
    kvtwin("compare", chats, "--builds", "target-only,unified", "--repeats", "2", "--out", "out")
    for name, length in (("comparison", 2), ("figures", None), ("requests", 2 * 2 * 24), ("lifecycles", 2 * 2 * 2)):
        text, table = (
            frame.astype(object).where(frame.notna(), "")
            for frame in (pd.read_csv(tmp_path / f"out/{name}.csv"), pd.read_parquet(tmp_path / f"out/{name}.parquet"))
        )
        pd.testing.assert_frame_equal(text, table, check_dtype=False)
        assert length is None or len(table) == length
    requests = pd.read_parquet(tmp_path / "out/requests.parquet")
    assert set(requests["arm"]) == {"target-only", "unified"} and set(requests["seed"]) == {7, 8}


def test_the_markdown_begins_with_what_was_found(kvtwin: Command, chats: Path, tmp_path: Path) -> None:
    kvtwin("compare", chats, "--builds", "target-only,unified", "--out", "out")
    heading, _, summary, _, header, *others = (tmp_path / "out/comparison.md").read_text().splitlines()
    assert heading == "## chats"
    assert summary.startswith("unified against target-only: prefilled tokens ") and summary.endswith(".")
    assert header == "| | before: target-only | unified | unified / before [95 %] |"
    text = "\n".join(others)
    assert "bootstrap over conversations" in text and "acceptance modelled" in text
    (line,) = (line for line in others if line.startswith("| acceptance length, step-weighted |"))
    assert line.count("[") == 1


UNFIT = {
    ("hello", "--baseline", "paired-22", "--builds", "unified"): "expected --baseline to be one of unified",
    ("ops", "--repeats", "2"): "expected --repeats only for scenarios with a workload",
    ("run", "--builds", "unified"): "expected --builds only beside a scenario that is run",
    ("run", "--repeats", "2"): "expected --repeats only beside a scenario that is run",
    ("again=run", "again=run"): "expected runs that a label or a seed tells apart",
    ("hello", "run", "--builds", "unified"): "expected another label for the folder of unified",
    ("=run",): "expected a label before =",
    ("empty",): "expected a folder that kvtwin run --out wrote, found no kvtwin.json",
    ("table",): "expected the folder of a run or of a replay, found one of kind 'comparison'",
    ("torn",): "expected a speculation record",
    ("old",): "expected the files of this version of kvtwin",
}


def test_what_cannot_be_compared_is_said_in_one_line(
    kvtwin: Command, folders: Callable[..., Path], tmp_path: Path
) -> None:
    run = folders("unified", "run")
    for name in ("empty", "table"):
        (tmp_path / name).mkdir()
    (tmp_path / "table/kvtwin.json").write_text('{"kind": "comparison", "files": []}')
    for name in ("torn", "old"):
        shutil.copytree(run, tmp_path / name)
    (tmp_path / "torn/speculation.jsonl").write_text('{"request_id": 0}\n')
    result = json.loads((run / "result.json").read_text())
    del result["lifecycles"]
    (tmp_path / "old/result.json").write_text(json.dumps(result))
    for arguments, problem in UNFIT.items():
        answer = kvtwin("compare", *arguments)
        assert (answer.code, answer.out) == (2, ""), arguments
        assert problem in answer.err and answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("totals", 5, "totals: expected a mapping, found 5"),
        ("seed", "x", "seed: expected an integer, found 'x'"),
        ("acceptance", None, "acceptance: expected a mapping, found None"),
        ("pools", [], "pools: expected at least one pool, found none"),
        ("violations", {"1": "INIT"}, "violations: expected a list, found {'1': 'INIT'}"),
    ],
)
def test_a_result_whose_field_is_of_another_kind_is_told_with_that_field(
    kvtwin: Command, folders: Callable[..., Path], tmp_path: Path, field: str, value: object, problem: str
) -> None:
    path = folders("unified", "run") / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    answer = kvtwin("compare", "hello", "x=run", "--builds", "unified", "--out", "out")
    assert (answer.code, answer.out, answer.err) == (2, "", f"kvtwin: run/result.json: {problem}\n")
    assert not (tmp_path / "out").exists()


def test_a_run_that_lost_rows_of_its_requests_is_not_compared(kvtwin: Command, folders: Callable[..., Path]) -> None:
    path = folders("unified", "run") / "requests.csv"
    rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join(rows[:-1]))
    problem = f"expected the {len(rows) - 1} requests of the run, found {len(rows) - 2}"
    assert kvtwin("compare", "run").err == f"kvtwin: run/requests.csv: {problem}\n"


def test_a_page_of_folders_tells_the_stories_of_their_violations(kvtwin: Command, tmp_path: Path) -> None:
    assert kvtwin("run", "--build", "fault:target-cursor", "--out", "broken").code == 1
    assert kvtwin("compare", "broken", "--out", "out").code in (0, 1)
    page = (tmp_path / "out/report.html").read_text()
    told = kvtwin("explain", "broken", "1").out.splitlines()
    assert any(line.strip() and line.strip() in page for line in told[1:])


def test_a_run_without_its_speculation_records_has_the_same_acceptance(
    kvtwin: Command, folders: Callable[..., Path], tmp_path: Path
) -> None:
    """The records give single steps; what a request accepted is in its row, too."""
    run = folders("unified", "run")
    whole = rows(found(kvtwin, run))["al_step_weighted", "unified"]
    (run / "speculation.jsonl").unlink()
    assert rows(found(kvtwin, run))["al_step_weighted", "unified"] == whole
    assert not math.isnan(whole["value"])
