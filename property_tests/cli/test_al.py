"""``kvtwin al``: the table, the files, exit codes and what it refuses."""

from __future__ import annotations

import csv
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from gpu_backend.al import seeds
from gpu_backend.al.order import CONDITIONS, Told
from gpu_backend.shipped.card import DRAFTERS
from property_tests.cli.conftest import Command

QUICK = ("--device", "cpu", "--prompts", "2", "--tokens", "6", "--conditions", "repeat")


def test_a_table_tells_sound_reuse_from_broken(kvtwin: Command, tmp_path: Path) -> None:
    answer = kvtwin(
        "al",
        "--tier",
        "t0",
        *QUICK,
        "--builds",
        "unified,target-21",
        "--faults",
        "store-at-zero",
        "--out",
        tmp_path / "al",
    )
    assert answer.code == 0, answer.err
    assert "unified" in answer.out and "identical" in answer.out and "less context" in answer.out
    assert "law: those that see a fault in the sim, the first one first (–: none does, or it is no fault)" in answer.out
    assert "fault:store-at-zero" in answer.out and "of 2 accept traces" in answer.out and "2 are" in answer.out
    told = json.loads((tmp_path / "al/al.json").read_text())
    assert [arm["build"] for arm in told["arms"]] == ["unified", "target-21", "fault:store-at-zero"]
    assert told["arms"][0]["owed"] == told["arms"][0]["same_traces"] == 2
    assert told["arms"][0]["decoding"] == "greedy" and len(told["pair"]["prompts_sha256"]) == 64
    hits = list(csv.DictReader((tmp_path / "al/hits.csv").read_text().splitlines()))
    assert len(hits) == 6 and {hit["past_boundary"] for hit in hits} == {"1", "3"}
    assert "| unified | identical |" in (tmp_path / "al/al.md").read_text()


def test_builds_are_compared_by_kind_of_drafter(kvtwin: Command, tmp_path: Path) -> None:
    asked = ("--drafters", "dflash,dspark", "--builds", "unified,target-21", "--faults", "store-at-zero", "--calibrate")
    answer = kvtwin("al", "--tier", "t0", *QUICK, *asked, "--out", tmp_path / "al")
    assert answer.code == 0, answer.err
    assert "builds by kind of drafter" in answer.out and "predicted by the model fitted for dspark" in answer.out
    told = json.loads((tmp_path / "al/al.json").read_text())
    assert [(row["build"], row["drafter"]) for row in told["arms"]][::3] == [
        ("unified", "dflash"),
        ("unified", "dspark"),
    ]
    assert told["cold"].keys() == told["drafters"].keys() == told["calibrations"].keys() == {"dflash", "dspark"}
    assert told["drafters"]["dspark"] == {
        "drafter": "dspark", "sha256": {}, "window": 16, "drafts": 3, "lookahead": 0,
    }  # fmt: skip
    fault = next(row for row in told["arms"] if row["kind"] == "fault")
    assert fault["caught_by"][0] == "OWN", "a slot that stores from 0 on writes to pages that others hold"
    text = (tmp_path / "al/al.md").read_text()
    assert "| repeat | unified | dspark | identical | 100% |" in text
    page = (tmp_path / "al/al.html").read_text()
    assert page.count("<table") == 3 and "Builds by kind of drafter" in page and page.count("<figure") == 2
    assert {path.name for path in (tmp_path / "al").glob("acceptance-*")} == {
        "acceptance-dflash.json", "acceptance-dspark.json",
    }  # fmt: skip
    rows = list(csv.DictReader((tmp_path / "al/predictions.csv").read_text().splitlines()))
    assert {row["drafter"] for row in rows} == {"dflash", "dspark"}


def test_the_plot_names_the_builds_that_are_off_by_most() -> None:
    off = {("a", 1): 0.01, ("a", 2): -0.5, ("b", 1): 0.02, ("c", 1): -0.2, ("d", 1): 0.3, ("d", 2): 0.1}
    rows = [{"drafter": "mtp", "build": build, "condition": at, "error": off[build, at]} for build, at in off]
    worst = import_module("reports.al_plot").worst_of(rows)
    assert [(row["build"], row["condition"]) for row in worst] == [("a", 2), ("d", 1), ("c", 1)]


def test_a_single_hit_has_a_change_and_no_interval(kvtwin: Command, tmp_path: Path) -> None:
    one = ("--prompts", "1", "--tokens", "6", "--conditions", "repeat", "--builds", "unified", "--faults", "none")
    one = (*one, "--spans", "2")
    answer = kvtwin("al", "--tier", "t0", "--device", "cpu", *one, "--out", tmp_path / "al")
    assert answer.code == 0, answer.err
    assert "+0.0%" in answer.out and "nan" not in answer.out
    (row,) = json.loads((tmp_path / "al/al.json").read_text())["arms"]
    assert (row["AL_low"], row["AL_change"], row["AL_high"]) == (None, 0, None)
    assert row["cached_target"] == 2 * 16 - 2 * 4 + 1, "two windows less two pages, and a token behind the page"


def test_requests_too_short_for_a_real_draft_have_no_acceptance_length(kvtwin: Command, tmp_path: Path) -> None:
    """Nor can a model be fitted from them, which is told behind what was measured."""
    few = ("--prompts", "2", "--tokens", "2", "--conditions", "repeat", "--builds", "mirror-21281,paired-22")
    few = (*few, "--faults", "none", "--calibrate")
    answer = kvtwin("al", "--tier", "t0", "--device", "cpu", *few, "--out", tmp_path / "al")
    assert answer.code == 2, answer.err
    line = "al: calibrate: expected runs to fit from, found no verify step saw its whole window"
    assert answer.err == f"kvtwin: dflash: {line}\n"
    told = json.loads((tmp_path / "al/al.json").read_text())
    assert told["failed"] == {"dflash": {"line": line, "code": 2}} and told["exit_code"] == 2
    assert [row["AL_change"] for row in told["arms"]] == [None, None]
    assert f"* dflash: not measured to its end: {line}" in (tmp_path / "al/al.md").read_text()
    assert "cold: AL16 –, AL32 –, AL64 –, AL128 –, AL –, first step –" in answer.out and "None" not in answer.out


def test_without_a_correct_build_nothing_is_checked(kvtwin: Command) -> None:
    answer = kvtwin("al", "--tier", "t0", *QUICK, "--builds", "none", "--faults", "raw-keys", "--json")
    assert answer.code == 3 and answer.json()["arms"][0]["verdict"] == "costs nothing"
    twice = ("--builds", "none", "--faults", "raw-keys,fault:raw-keys", "--drafters", "dflash,dflash", "--json")
    assert len(kvtwin("al", "--tier", "t0", *QUICK, *twice).json()["arms"]) == 1


def arm(condition: str, build: str, length: float, low: float, high: float, prefilled: int = 100) -> dict[str, Any]:
    """What the figures of the seeds read of an arm."""
    change = {"AL": length, "AL_low": low, "AL_change": (low + high) / 2, "AL_high": high, "AL16_high": high}
    return {
        "drafter": "dflash", "decoding": "greedy", "condition": condition,
        "build": build, "hits": 256, "seconds": 1.0, "prefilled_target": prefilled,
        "AL16_change": (low + high) / 2, **change,
    }  # fmt: skip


def test_figures_of_the_seeds_stand_beside_what_was_measured_and_are_not_called_shown_within_noise() -> None:
    clear = [
        arm("repeat", "mirror-21281", 3.0, -0.12, -0.08), arm("repeat", "paired-22", 3.3, 0, 0),
        arm("agentic", "target-21", 3.0, -0.1, -0.05, 105), arm("agentic", "paired-22", 3.2, 0, 0),
        arm("agentic", "unified", 3.2, 0, 0),
        arm("branch", "unified-nowindow", 3.2, -0.2, -0.1), arm("branch", "unified", 3.7, 0, 0),
    ]  # fmt: skip
    lines = seeds.lines(Told({}, clear, [], {"dflash": {"greedy": {}}}))
    assert [line[:2] for line in lines] == ["S1", "S2", "S3"]
    assert all(line.endswith("the same direction, clear of noise") for line in lines)
    assert "-10.0% [-12.0, -8.0], paired +0.0% [+0.0, +0.0] (seed: -9.4 %, paired -0.9 %)" in lines[0]
    noisy = [row | {"AL_high": 0.01, "AL16_high": 0.01} for row in clear]
    assert all(line.endswith("NOT shown here") for line in seeds.lines(Told({}, noisy, [], {"dflash": {"greedy": {}}})))
    few = [row | {"hits": 2} for row in clear]
    assert all(
        line.endswith(": 2 requests are too few to tell")
        for line in seeds.lines(Told({}, few, [], {"dflash": {"greedy": {}}}))
    )
    assert seeds.lines(Told({}, clear[:1], [], {"dflash": {"greedy": {}}})) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "expected --tier or --weights, found neither"),
        (("--tier", "t0", "--drafters", "none"), "drafters: expected at least one, found none"),
        (("--tier", "t0", "--sampling", "none"), "sampling: expected at least one, found none"),
        (("--tier", "t0", "--weights", "x"), "expected --tier or --weights, found both"),
        (("--tier", "t0", "--faults", "store-at-zer"), "did you mean 'store-at-zero'?"),
        (("--tier", "t0", "--builds", "unifie"), "did you mean 'unified'?"),
        (("--tier", "t0", "--conditions", "repaet"), "did you mean 'repeat'?"),
        (("--tier", "t0", "--sampling", "golden"), "sampling: expected a rule (did you mean 'token'?), found"),
        (("--tier", "t0", "--out", "file/al"), "file/al: cannot write here: not a directory"),
        (("--tier", "t0", "--drafters", "pard"), "found pard: the sim serves it, and it has no module"),
        (("--tier", "t0", "--sampling", "token", "--temperature", "inf"), "temperature: expected a number above 0"),
        (("--tier", "t0", "--drafters", "dflahs"), "did you mean 'dflash'?"),
        (
            ("--weights", "nowhere"),
            "nowhere: weights: expected a folder with target and drafter in it, found no target",
        ),
    ],
)
def test_what_cannot_be_measured_is_one_line(kvtwin: Command, options: tuple[str, ...], said: str) -> None:
    Path("file").write_text("")
    answer = kvtwin("al", "--device", "cpu", *options)
    assert answer.code == 2 and said in answer.err and answer.err.count("\n") == 1


def test_the_help_lists_the_names_that_an_unknown_one_is_sent_to(kvtwin: Command) -> None:
    told = kvtwin("al", "--help").out
    assert all(name in told for name in (*CONDITIONS, *DRAFTERS, "greedy", "token", "block", "match"))
