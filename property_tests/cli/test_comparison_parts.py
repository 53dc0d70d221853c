"""The parts of a comparison: what is better, what is paired, what a hit in pages is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from property_tests.cli.conftest import Command


@pytest.mark.parametrize(("baseline", "tone"), [("unified-page", "good"), ("unified", "bad")])
def test_a_page_shows_more_reuse_as_good_and_less_as_bad(
    kvtwin: Command, tmp_path: Path, baseline: str, tone: str
) -> None:
    """Of cached tokens more is better, of prefilled ones less; the page-boundary build has fewer and more."""
    builds = ("--builds", "unified-page,unified", "--baseline", baseline)
    assert kvtwin("compare", "hello", *builds, "--out", "out").code == 0
    page = (tmp_path / "out/report.html").read_text()
    for label in ("cached tokens", "prefilled tokens"):
        (row,) = re.findall(f'<tr><th scope="row">{label}</th>(.*?)</tr>', page)
        assert sorted(re.findall('<td class="n ([a-z]*)"', row)) == ["", tone]


def test_only_requests_that_every_arm_has_are_paired(kvtwin: Command, tmp_path: Path) -> None:
    for name in ("whole", "part"):
        kvtwin("run", "conversation", "--build", "unified", "--no-events", "--out", name)
    rows = (tmp_path / "part/requests.csv").read_text().splitlines(keepends=True)
    (tmp_path / "part/requests.csv").write_text("".join(rows[:-2]))
    result = json.loads((tmp_path / "part/result.json").read_text())
    (tmp_path / "part/result.json").write_text(json.dumps(result | {"requests": len(rows) - 3}))
    (told,) = kvtwin("compare", "a=whole", "b=part", "--json").json()["comparisons"]
    assert (told["requests"], told["paired_requests"]) == (len(rows) - 1, len(rows) - 3)
    assert any(
        note.startswith(f"{len(rows) - 3} of {len(rows) - 1} requests are in every arm") for note in told["notes"]
    )


def test_hits_in_pages_are_blocks_that_a_lifecycle_reads_and_misses_those_that_begin_behind_them(
    kvtwin: Command, tmp_path: Path
) -> None:
    """Token by token, where the report has a formula: the query behind a claim reads a window that holds itself."""
    kvtwin("compare", "smoke/two_windows", "--builds", "unified", "--out", "out")
    lives, requests = (pd.read_csv(tmp_path / f"out/{name}.csv") for name in ("lifecycles", "requests"))
    page, sinks = 4, {"window": 4}
    for life in lives.to_dict("records"):
        hits = missed = 0
        column = "draft_cached_tokens" if life["role"] == "draft" else "cached_tokens"
        for own, claimed, prompt in requests[[column, "cached_tokens", "prompt_tokens"]].to_numpy().tolist():
            first = 0 if pd.isna(life["window"]) else max(0, own + 1 - int(life["window"]))
            read = {*range(first, own), *range(min(own, sinks.get(life["lifecycle"], 0)))}
            hits += len({token // page for token in read})
            missed += sum(token % page == 0 for token in range(claimed, prompt))
        assert (life["hit_pages"], life["missed_pages"]) == (hits, missed)
    assert len(set(lives["hit_pages"])) == 3
