"""``kvtwin nightly`` and ``kvtwin baseline``: what they run, keep, compare and refuse."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from jsonschema import Draft202012Validator

from model.builds import BUILDS
from model.faults import FAULTS
from property_tests.cli.conftest import Command
from property_tests.cli.junit_shape import problems

SUITE = """\
summary: two builds on a toy
comparisons:
  - {scenarios: [smoke/hello], builds: [target-only, unified], repeats: 2}
seeds: {figures: [X13]}
drill: {faults: [target-cursor]}
"""
Write = Callable[..., Path]


@pytest.fixture
def suite(tmp_path: Path) -> Write:
    """``suite(old=new)``: a suite file with a text replaced or some lines added."""

    def write(old: str = "", new: str = "", add: str = "", name: str = "mine") -> Path:
        assert old in SUITE
        path = tmp_path / f"{name}.yaml"
        path.write_text((SUITE.replace(old, new, 1) if old else SUITE) + add)
        return path

    return write


def document(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "nightly.json").read_text())


def told(answer: dict[str, Any], tone: str) -> list[str]:
    return [sentence["text"] for sentence in answer["sentences"] if sentence["tone"] == tone]


def test_a_nightly_whose_laws_hold_is_fine_and_leaves_every_file(kvtwin: Command, suite: Write, tmp_path: Path) -> None:
    answer = kvtwin("nightly", "--suite", suite(), "--out", "night")
    assert (answer.code, answer.err) == (0, "")
    assert "suite mine on sim: fine" in answer.out and "held to no baseline" in answer.out
    night = tmp_path / "night"
    files = {
        "report.html",
        "nightly.json",
        "junit.xml",
        "summary.md",
        "baseline.json",
        "samples.parquet",
        "exact.parquet",
    }
    assert files <= {path.name for path in night.iterdir()}
    assert (night / "comparisons/hello/report.html").is_file()
    assert problems((night / "junit.xml").read_text()) == []
    cases = document(night)["cases"]
    assert {case["stage"] for case in cases} == {"comparisons", "seeds", "drill"}
    assert {case["verdict"] for case in cases} == {"passed"}
    subjects = {"hello on target-only", "hello on unified", "X13", "target-cursor"}
    assert {case["subject"] for case in cases} == subjects
    exact, samples = (pd.read_parquet(night / name) for name in ("exact.parquet", "samples.parquet"))
    assert set(exact["repeat"]) == {0, 1} and len(exact) > 40
    assert set(samples["metric"]) == {"acceptance_length", "ttft_ms", "tpot_ms"}
    assert min(samples["value"].tolist()) > 0


def test_every_law_of_every_run_is_a_case_with_its_sentence(kvtwin: Command, suite: Write) -> None:
    cases = kvtwin("nightly", "--suite", suite(), "--json").json()["cases"]
    names = [(case["subject"], case["name"]) for case in cases]
    assert len(names) == len(set(names))
    (expected,) = (case for case in cases if (case["subject"], case["name"]) == ("hello on target-only", "INIT"))
    assert expected["message"] == "broken, as this historical build declares"
    assert ("hello on unified", "FRONT, repeat 1") in names and ("hello on unified", "expectations") in names


def test_the_same_code_leaves_the_same_baseline_byte_by_byte(kvtwin: Command, suite: Write, tmp_path: Path) -> None:
    assert kvtwin("baseline", "first", "--suite", suite()).code == 0
    assert kvtwin("nightly", "--suite", suite(), "--out", "night").code == 0
    answer = kvtwin("baseline", "second", "--from", "night")
    assert answer.code == 0 and "stored in second" in answer.out
    for name in ("baseline.json", "samples.parquet"):
        first, second = ((tmp_path / folder / name).read_bytes() for folder in ("first", "second"))
        assert first == second
    held = kvtwin("nightly", "--suite", suite(), "--baseline", "first", "--json").json()
    schemas = {what: Draft202012Validator(kvtwin("schema", what).json()) for what in ("nightly", "baseline")}
    assert list(schemas["baseline"].iter_errors(json.loads((tmp_path / "first/baseline.json").read_text()))) == []
    assert [list(schemas["nightly"].iter_errors(found)) for found in (held, document(tmp_path / "night"))] == [[], []]
    assert list(schemas["nightly"].iter_errors(held | {"exit_code": 2}))
    assert (held["exit_code"], held["changes"], told(held, "bad")) == (0, [], [])
    assert held["compared"]["exact"] >= 25 and held["compared"]["noisy"] == 6
    assert not any("second" in key for key in json.loads((tmp_path / "first/baseline.json").read_text()))


# -- what got worse ----------------------------------------------------------------------------------------------------


def test_a_build_that_reuses_less_is_a_regression_though_no_law_breaks(
    kvtwin: Command, suite: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The page-boundary build is correct; in place of the unified one it claims 20 tokens where 21 were there."""
    kvtwin("baseline", "base", "--suite", suite("seeds: {figures: [X13]}\n"))
    monkeypatch.setitem(BUILDS, "unified", replace(BUILDS["unified-page"], name="unified"))
    answer = kvtwin(
        "nightly", "--suite", suite("seeds: {figures: [X13]}\n"), "--baseline", "base", "--out", "night", "--json"
    )
    found = answer.json()
    assert answer.code == found["exit_code"] == 1
    assert Draft202012Validator(kvtwin("schema", "nightly").json()).is_valid(found)
    changed = {change["metric"]: change for change in found["changes"]}
    assert changed["cached_tokens"]["kind"] == changed["prefilled_tokens"]["kind"] == "worse"
    assert "memory" not in changed  # the tokens say more than a digest
    assert {change["subject"] for change in found["changes"]} == {"hello on unified"}
    worst = told(found, "bad")
    assert any(text.startswith("hello on unified: ") and "prefilled tokens" in text for text in worst)
    assert "the baseline is of this very code" in " ".join(told(found, "odd"))
    xml = ET.parse(tmp_path / "night/junit.xml")
    failures = [case for case in xml.iter("testcase") if case.find("failure") is not None]
    assert any(case.get("classname") == "baseline.hello on unified" for case in failures)
    assert problems((tmp_path / "night/junit.xml").read_text()) == []


def test_a_fault_in_place_of_a_correct_build_breaks_laws_and_says_where(
    kvtwin: Command, suite: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kvtwin("baseline", "base", "--suite", suite())
    wrong = replace(FAULTS["store-at-zero"].build, name="unified", correct=True, must_fire=())
    monkeypatch.setitem(BUILDS, "unified", wrong)
    answer = kvtwin("nightly", "--suite", suite(), "--baseline", "base", "--out", "night")
    assert answer.code == 1
    first = answer.out.splitlines()[0]
    assert first.startswith("✗ hello on unified: law ") and "expected" in first
    assert "suite mine on sim: not fine" in answer.out.splitlines()[-2]
    markdown = (tmp_path / "night/summary.md").read_text()
    assert (
        markdown.startswith("## kvtwin nightly: suite mine on sim: not fine")
        and "- ❌ hello on unified: law" in markdown
    )
    xml = ET.parse(tmp_path / "night/junit.xml")
    failure = next(case.find("failure") for case in xml.iter("testcase") if case.find("failure") is not None)
    assert failure is not None and failure.text is not None
    assert "law" in str(failure.get("message")) and "repeat it: kvtwin run smoke/hello --build unified" in failure.text
    refused = kvtwin("baseline", "other", "--from", "night")
    assert (refused.code, refused.out) == (2, "")
    assert "hello on unified" in refused.err and not (tmp_path / "other").exists()
    again = kvtwin("nightly", "--suite", suite(), "--baseline", "night")
    assert again.code == 2 and "expected figures that can be held to" in again.err


def test_a_nightly_is_not_replaced_by_its_figures_or_by_one_that_is_held_to_it(
    kvtwin: Command, suite: Write, tmp_path: Path
) -> None:
    assert kvtwin("nightly", "--suite", suite(), "--out", "night").code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "night").rglob("*") if path.is_file()}
    for command in (
        ["baseline", "night", "--from", "night"],
        ["nightly", "--suite", suite(), "--baseline", "night", "--out", "night"],
    ):
        answer = kvtwin(*command)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err == "kvtwin: night: expected a folder to write to other than what is read, night\n"
    assert {path: path.read_bytes() for path in (tmp_path / "night").rglob("*") if path.is_file()} == before


def test_a_baseline_that_is_run_now_is_not_stored_where_an_expectation_is_missed(
    kvtwin: Command, suite: Write, scenario_file: Callable[..., Path], tmp_path: Path
) -> None:
    scenario_file(name="toy", add="expect: {requests: {1: {cached_tokens: 7}}}\n")
    answer = kvtwin("baseline", "base", "--suite", suite("smoke/hello", "toy.yaml"))
    assert answer.code == 1
    assert answer.out.startswith("✗ toy on unified: missed: request 1: cached_tokens: expected 7, found 21")
    assert not (tmp_path / "base").exists()


def test_a_historical_build_may_break_what_it_declares_and_nothing_else(
    kvtwin: Command, suite: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BUILDS, "target-only", replace(BUILDS["target-only"], must_fire=("FRONT",)))
    answer = kvtwin("nightly", "--suite", suite())
    assert answer.code == 1
    assert answer.out.startswith("✗ hello on target-only: law INIT broke: ")


# -- what it was held to -----------------------------------------------------------------------------------------------


def test_scenarios_that_only_one_side_has_are_told_and_fail_nothing(kvtwin: Command, suite: Write) -> None:
    kvtwin("baseline", "base", "--suite", suite())
    other = suite("[smoke/hello], builds: [target-only, unified]", "[smoke/hello], builds: [unified, paired-22]")
    answer = kvtwin("nightly", "--suite", other, "--baseline", "base")
    assert answer.code == 0
    assert "comparisons: hello on target-only is gone" in answer.out
    assert "comparisons: hello on paired-22 is new" in answer.out
    assert "the suite says something else" in answer.out


def test_a_scenario_that_was_rewritten_is_not_compared(
    kvtwin: Command, suite: Write, scenario_file: Callable[..., Path]
) -> None:
    scenario_file(name="toy")
    mine = suite("[smoke/hello], builds: [target-only, unified]", "[toy.yaml, smoke/hello], builds: [unified]")
    kvtwin("baseline", "base", "--suite", mine)
    scenario_file(name="toy", replace=("document: 22", "document: 40"))
    answer = kvtwin("nightly", "--suite", mine, "--baseline", "base", "--json").json()
    assert answer["exit_code"] == 0 and answer["compared"]["exact"] > 10
    assert [(change["subject"], change["kind"]) for change in answer["changes"]] == [("toy on unified", "remade")]


def test_a_baseline_of_nothing_that_runs_checks_nothing(kvtwin: Command, suite: Write) -> None:
    rest = SUITE.partition("seeds:")[2]
    kvtwin("baseline", "base", "--suite", suite("seeds:" + rest))
    mine = suite("[smoke/hello], builds: [target-only, unified], repeats: 2}\nseeds:" + rest, "[mtp_chain]}\n")
    answer = kvtwin("nightly", "--suite", mine, "--baseline", "base")
    assert answer.code == 3
    assert "no figure could be compared with the baseline base" in answer.out


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text.replace("kvtwin-baseline/1", "kvtwin-baseline/9"), "schema: expected kvtwin-baseline/1"),
        (lambda text: text.replace('"name": "mine"', '"name": "theirs"'), "expected a baseline of the suite mine"),
        (lambda text: text.replace('"on": "sim"', '"on": "gpu"'), "expected a baseline of a nightly on sim, found one"),
        (lambda text: text.replace('"device": "sim"', '"device": "H200"'), "the device sim, found one of H200"),
        (lambda text: text[:-3], "expected JSON"),
        (lambda text: "[]", "schema: expected kvtwin-baseline/1"),
        (lambda text: text.replace('"figures": {', '"figurs": {'), "expected the figures of a nightly"),
        (lambda text: text.replace('"lacks": ""', '"lacks": "it was interrupted"'), "it was interrupted"),
    ],
    ids=["schema", "suite", "place", "device", "cut", "list", "field", "interrupted"],
)
def test_a_baseline_that_does_not_fit_is_one_line_before_anything_runs(
    kvtwin: Command, suite: Write, tmp_path: Path, spoil: Callable[[str], str], said: str
) -> None:
    kvtwin("baseline", "base", "--suite", suite("seeds: {figures: [X13]}\ndrill: {faults: [target-cursor]}\n"))
    path = tmp_path / "base/baseline.json"
    path.write_text(spoil(path.read_text()))
    answer = kvtwin("nightly", "--suite", suite(), "--baseline", "base", "--out", "night")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert said in answer.err and "base" in answer.err
    assert not (tmp_path / "night").exists()


def test_samples_that_are_no_table_of_ours_are_one_line(kvtwin: Command, suite: Write, tmp_path: Path) -> None:
    kvtwin("baseline", "base", "--suite", suite())
    samples = tmp_path / "base/samples.parquet"
    pd.read_parquet(samples).drop(columns="unit").to_parquet(samples, index=False)
    assert "expected the columns stage, subject" in kvtwin("nightly", "--suite", suite(), "--baseline", "base").err
    samples.write_text("not a table")
    answer = kvtwin("nightly", "--suite", suite(), "--baseline", "base")
    assert (answer.code, answer.err.count("\n")) == (2, 1) and "as Parquet" in answer.err
    assert kvtwin("nightly", "--suite", suite(), "--baseline", tmp_path).err.count("found no baseline.json") == 1


# -- what comes in between ---------------------------------------------------------------------------------------------


def ctrl_c_in(label: str) -> Callable[[str], object]:
    """Progress bars; the user presses Ctrl-C while ``label`` is shown."""

    @contextmanager
    def progress(shown: str) -> Iterator[Callable[[int, int], None]]:
        def tick(done: int, total: int) -> None:
            if label in shown:
                raise KeyboardInterrupt

        yield tick

    return progress


def test_ctrl_c_keeps_what_is_done_and_names_what_is_not(
    kvtwin: Command, suite: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kvtwin("baseline", "base", "--suite", suite())
    monkeypatch.setattr("reports.terminal.progress", ctrl_c_in("hello on unified"))
    answer = kvtwin("nightly", "--suite", suite(), "--baseline", "base", "--out", "night")
    assert (answer.code, answer.err) == (130, "kvtwin: interrupted\n")
    assert "left out: comparisons hello on unified, drill, seeds" in answer.out
    assert "interrupted" in answer.out.splitlines()[-2] and "is gone" not in answer.out
    found = document(tmp_path / "night")
    assert found["interrupted"] and {case["subject"] for case in found["cases"]} == {"hello on target-only"}
    assert found["compared"]["exact"] > 10 and found["changes"] == []
    assert problems((tmp_path / "night/junit.xml").read_text()) == []
    assert "it was interrupted" in kvtwin("baseline", "other", "--from", "night").err


def test_ctrl_c_while_the_comparisons_are_written_costs_these_and_no_figure(
    kvtwin: Command, suite: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("reports.comparison_files.write_comparison_files", pressed)
    assert kvtwin("nightly", "--suite", suite(), "--out", "night").code == 0
    assert not (tmp_path / "night/comparisons").exists()
    assert kvtwin("baseline", "base", "--from", "night").code == 0


def test_ctrl_c_in_a_drill_keeps_the_faults_that_ran(
    kvtwin: Command, suite: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reports.terminal.progress", ctrl_c_in("drill"))
    answer = kvtwin("nightly", "--suite", suite("[target-cursor]", "[target-cursor, raw-keys]"), "--json")
    assert answer.code == 130
    drilled = [case["subject"] for case in answer.json()["cases"] if case["stage"] == "drill"]
    assert drilled == ["target-cursor"]


def test_a_stage_that_crashes_costs_itself_only(
    kvtwin: Command, suite: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr("reports.seeds.run", broken)
    answer = kvtwin("nightly", "--suite", suite(), "--out", "night")
    assert answer.code == 4
    assert "kvtwin crashed: RuntimeError: a defect" in answer.out.splitlines()[0]
    found = document(tmp_path / "night")
    assert {"comparisons", "drill"} < {case["stage"] for case in found["cases"]}
    errors = list(ET.parse(tmp_path / "night/junit.xml").iter("error"))
    assert len(errors) == 1 and "Traceback" in str(errors[0].text)
    assert problems((tmp_path / "night/junit.xml").read_text()) == []


def test_replays_are_left_out_in_the_sim_and_said_so(kvtwin: Command, suite: Write) -> None:
    answer = kvtwin("nightly", "--suite", suite(add="replays: [{scenarios: [smoke/hello]}]\n"))
    assert answer.code == 0
    assert "replays need a device: --on cpu or --on gpu runs them" in answer.out


def test_a_suite_of_replays_alone_has_nothing_to_do_in_the_sim(kvtwin: Command, tmp_path: Path) -> None:
    (tmp_path / "only.yaml").write_text("replays: [{scenarios: [smoke/hello]}]\n")
    answer = kvtwin("nightly", "--suite", "only.yaml")
    assert (answer.code, answer.out) == (2, "")
    assert "expected a stage that runs on sim" in answer.err


def test_a_campaign_leaves_its_failures_below_the_nightly(kvtwin: Command, tmp_path: Path) -> None:
    (tmp_path / "fuzz.yaml").write_text("fuzz: {examples: 2, builds: ['fault:store-at-zero']}\n")
    answer = kvtwin("nightly", "--suite", "fuzz.yaml", "--workers", "1", "--out", "night")
    assert answer.code == 1 and "broke on fault:store-at-zero" in answer.out.splitlines()[0]
    repeats = sorted((tmp_path / "night/fuzz/failures").glob("*/repro.txt"))[0].read_text()
    command = repeats.splitlines()[0].split()
    assert command[3].startswith("night/fuzz/failures/") and kvtwin(*command[1:]).code == 1
    assert document(tmp_path / "night")["fuzz"]["examples"] == 2


def test_a_user_file_in_the_folder_is_refused_before_anything_runs(
    kvtwin: Command, suite: Write, tmp_path: Path
) -> None:
    (tmp_path / "night").mkdir()
    (tmp_path / "night/mine.txt").write_text("mine")
    for command in (["nightly", "--out", "night"], ["baseline", "night"]):
        answer = kvtwin(*command, "--suite", suite())
        assert (answer.code, answer.out) == (2, "") and "mine.txt" in answer.err


def test_figures_of_kvtwin_that_was_never_installed_name_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's own Python runs a checkout as it stands."""

    def nothing_installed(name: str) -> str:
        raise PackageNotFoundError(name)

    baseline = import_module("reports.nightly.baseline")
    installed = baseline.code_digest()
    monkeypatch.setattr(baseline, "version", nothing_installed)
    found = baseline.code_digest.__wrapped__()
    assert found.startswith("kvtwin of no installation ")
    assert found.split()[-1] == installed.split()[-1]
