"""``kvtwin compare``: builds side by side, as a table, as files and as a picture."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.image import imread

from property_tests.cli.conftest import Command

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("csv", "parquet")
TRACE = ROOT / "docs" / "mooncake_example.jsonl"


def comparison(kvtwin: Command, *arguments: str) -> dict[str, dict[str, object]]:
    """The only comparison of a call: build to figures."""
    (found,) = kvtwin("compare", *arguments, "--json").json()["comparisons"]
    return {build["name"]: build for build in found["builds"]}


def test_builds_stand_in_the_given_order(kvtwin: Command) -> None:
    assert list(comparison(kvtwin, "hello", "--builds", "unified,target-only")) == ["unified", "target-only"]


def test_the_default_builds_are_the_scenarios_own(kvtwin: Command) -> None:
    assert list(comparison(kvtwin, "x05_repeat")) == ["target-only", "paired-22", "unified-page", "unified"]


def test_a_page_boundary_endpoint_reuses_less_of_a_repeat(kvtwin: Command) -> None:
    """X5: 8,268 tokens of a repeated prompt of 8,269 with a partial page, 8,192 without."""
    builds = comparison(kvtwin, "x05_repeat", "--builds", "unified-page,unified")
    assert (builds["unified"]["cached_tokens"], builds["unified-page"]["cached_tokens"]) == (8268, 8192)


def test_cached_and_prefilled_tokens_make_up_the_prompts(kvtwin: Command) -> None:
    (run,) = kvtwin("run", "x05_repeat", "--json").json()["runs"]
    for build in comparison(kvtwin, "x05_repeat", "--builds", "paired-22,unified").values():
        assert build["cached_tokens"] + build["prefilled_tokens"] == 2 * 8269  # type: ignore[operator]
    assert run["totals"]["prefilled_tokens"] == comparison(kvtwin, "x05_repeat")["unified"]["prefilled_tokens"]


def test_a_historical_build_may_break_laws_and_a_correct_one_may_not(kvtwin: Command) -> None:
    answer = kvtwin("compare", "x05_repeat", "--builds", "target-only,unified", "--json")
    (found,) = answer.json()["comparisons"]
    historical, correct = found["builds"]
    assert answer.code == 0
    assert historical["historical"] and historical["laws_broken"]
    assert (correct["historical"], correct["violations"]) == (False, 0)


def test_a_missed_expectation_of_a_correct_build_fails_the_comparison(kvtwin: Command, tmp_path: Path) -> None:
    text = (ROOT / "scenarios/seeds/x05_repeat.yaml").read_text().replace("cached_tokens: 8268", "cached_tokens: 8000")
    (tmp_path / "wrong.yaml").write_text(text)
    answer = kvtwin("compare", "wrong.yaml")
    assert answer.code == 1
    assert "expected 8,000, found 8,268" in answer.out


def test_a_forced_acceptance_is_named_with_a_warning(kvtwin: Command) -> None:
    forced = kvtwin("compare", "hello", "--builds", "unified")
    assert "warning: acceptance is forced" in forced.out
    (found,) = kvtwin("compare", "hello", "--builds", "unified", "--json").json()["comparisons"]
    assert found["acceptance"]["mode"] == "forced" and found["warning"]


def test_a_modelled_acceptance_needs_no_warning(kvtwin: Command, tmp_path: Path) -> None:
    text = (ROOT / "scenarios/smoke/hello.yaml").read_text()
    (tmp_path / "modelled.yaml").write_text(text.replace("{forced: [3, 1, 4, 2]}", "{coverage: 0.8}"))
    answer = kvtwin("compare", "modelled.yaml", "--builds", "paired-22,unified", "--json")
    (found,) = answer.json()["comparisons"]
    assert (found["acceptance"]["mode"], found["warning"]) == ("modelled", None)
    assert all(1 <= build["al_step_weighted"] <= 4 for build in found["builds"])


def test_with_the_checks_off_nothing_is_said_about_laws_and_windows(kvtwin: Command) -> None:
    answer = kvtwin("compare", "hello", "--builds", "target-only,unified", "--check", "off")
    assert answer.code == 3
    assert answer.out.count("not checked") == 2
    assert "coverage, all steps" not in answer.out


def test_the_files_hold_the_same_figures(kvtwin: Command, tmp_path: Path) -> None:
    assert kvtwin("compare", "x05_repeat", "--builds", "unified-page,unified", "--out", "out").code == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    tables = {f"{name}.{kind}" for name in ("comparison", "figures", "requests", "lifecycles") for kind in KINDS}
    assert names == {"kvtwin.json", "report.html", "comparison.png", "comparison.md", "comparison.json"} | tables
    table = pd.read_csv(tmp_path / "out/comparison.csv", index_col="build")
    document = json.loads((tmp_path / "out/comparison.json").read_text())
    assert {build["name"]: build["cached_tokens"] for build in document["builds"]} == table["cached_tokens"].to_dict()
    markdown = (tmp_path / "out/comparison.md").read_text()
    assert "| cached tokens | 8,192 | 8,268 |" in markdown
    assert "peak pages, pool target" in markdown


def test_the_picture_is_large_drawn_on_and_the_same_every_time(kvtwin: Command, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        kvtwin("compare", "hello", "--builds", "target-only,unified", "--out", folder)
    picture = imread(tmp_path / "one/comparison.png")
    height, width = picture.shape[:2]
    assert width >= 1200 and height >= 500
    assert len({tuple(pixel) for pixel in picture[::7, ::7, :3].reshape(-1, 3).tolist()}) > 20
    assert (tmp_path / "one/comparison.png").read_bytes() == (tmp_path / "two/comparison.png").read_bytes()


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_users_own_trace_is_served(kvtwin: Command, tmp_path: Path, command: str) -> None:
    shutil.copy(TRACE, tmp_path / "trace.jsonl")
    answer = kvtwin(command, "--trace", "trace.jsonl", "--format", "mooncake", "--limit", "6", "--out", "out")
    assert answer.code == 0
    assert (tmp_path / "out" / "kvtwin.json").is_file()


def test_whole_prompts_and_deltas_of_the_same_file_are_different_workloads(kvtwin: Command) -> None:
    whole, deltas = (
        kvtwin("run", "--trace", TRACE, "--format", form, "--json").json()["runs"][0]["totals"]
        for form in ("mooncake", "mooncake-delta")
    )
    assert whole["finished"] == deltas["finished"] == 12
    assert whole["cached_tokens"] >= deltas["cached_tokens"]


def test_a_page_of_very_many_requests_has_no_timeline_and_says_so(
    kvtwin: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events of a long trace would fill memory and page; here "very many" are more than two."""
    pages = {}
    for most in (2_000, 2):
        for module in ("comparisons", "page.content"):
            monkeypatch.setattr(f"reports.{module}.FOLLOWED", most)
        folder = tmp_path / f"up_to_{most}"
        assert kvtwin("compare", "hello", "--builds", "unified", "--out", str(folder)).code == 0
        pages[most] = (folder / "report.html").read_text(encoding="utf-8")
    assert 'id="timeline"' in pages[2_000] and "keep no course" not in pages[2_000]
    assert 'id="timeline"' not in pages[2] and "Runs of more than 2 requests keep no course here" in pages[2]
