"""``kvtwin al``: the table, the files, exit codes and what it refuses."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

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
    assert "fault:store-at-zero" in answer.out and "of 2 accept traces" in answer.out and "2 are" in answer.out
    told = json.loads((tmp_path / "al/al.json").read_text())
    assert [arm["build"] for arm in told["arms"]] == ["unified", "target-21", "fault:store-at-zero"]
    assert told["arms"][0]["owed"] == told["arms"][0]["same_traces"] == 2
    assert told["arms"][0]["decoding"] == "greedy" and len(told["pair"]["prompts_sha256"]) == 64
    hits = list(csv.DictReader((tmp_path / "al/hits.csv").read_text().splitlines()))
    assert len(hits) == 6 and {hit["past_boundary"] for hit in hits} == {"1", "3"}
    assert "| unified | identical |" in (tmp_path / "al/al.md").read_text()


def test_without_a_correct_build_nothing_is_checked(kvtwin: Command) -> None:
    answer = kvtwin("al", "--tier", "t0", *QUICK, "--builds", "none", "--faults", "raw-keys", "--json")
    assert answer.code == 3 and answer.json()["arms"][0]["verdict"] == "costs nothing"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "expected --tier or --weights, found neither"),
        (("--tier", "t0", "--weights", "x"), "expected --tier or --weights, found both"),
        (("--tier", "t0", "--faults", "store-at-zer"), "did you mean 'store-at-zero'?"),
        (("--tier", "t0", "--builds", "unifie"), "did you mean 'unified'?"),
        (("--tier", "t0", "--conditions", "repaet"), "did you mean 'repeat'?"),
        (
            ("--weights", "nowhere"),
            "nowhere: weights: expected a folder with target and drafter in it, found no target",
        ),
    ],
)
def test_what_cannot_be_measured_is_one_line(kvtwin: Command, options: tuple[str, ...], said: str) -> None:
    answer = kvtwin("al", "--device", "cpu", *options)
    assert answer.code == 2 and said in answer.err and answer.err.count("\n") == 1
