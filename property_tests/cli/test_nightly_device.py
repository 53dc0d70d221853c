"""``kvtwin nightly --on``: replays and the device's own drill, on the CPU as on a GPU."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
import torch

from property_tests.cli.conftest import Command

TOY = """\
geometry: tiny
workload:
  concurrency: 1
  prefixes: {document: 9}
  sessions:
    - {prompt: document, output: 5}
    - {prompt: document, output: 5}
acceptance: {forced: [2]}
"""
PAIR = Path(__file__).resolve().parents[1] / "gpu_room/tiny_pair"
FORCED = "replays:\n  - {scenarios: [toy.yaml], launch: dispatch, repeats: 2}\n"
SUITE = FORCED + "  - {scenarios: [toy.yaml], acceptance: natural}\ndevice_drill: {faults: [raw-keys]}\n"


@pytest.fixture(autouse=True)
def toy(tmp_path: Path) -> None:
    (tmp_path / "toy.yaml").write_text(TOY)


def test_replays_are_run_judged_and_held_to_what_they_were(kvtwin: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(SUITE)
    answer = kvtwin("nightly", "--suite", "mine.yaml", "--on", "cpu", "--out", "night", "--json")
    found = answer.json()
    assert (answer.code, found["on"], found["device"]) == (0, "cpu", "cpu")
    cases = {(case["stage"], case["subject"], case["name"]) for case in found["cases"]}
    assert ("replays", "toy on unified, dispatch", "memories, repeat 1") in cases
    assert ("replays", "toy on unified, natural", "memories") in cases
    assert [case[1] for case in cases if case[0] == "device drill"] == ["raw-keys"]
    samples = pd.read_parquet(tmp_path / "night/samples.parquet")
    natural = samples[samples["subject"] == "toy on unified, natural"]
    assert Counter(natural["metric"]) == {"acceptance_length": 2, "ttft_ms": 2, "tpot_ms": 2}
    assert "step_ms" not in set(samples["metric"])  # a CPU's times are nobody's
    exact = pd.read_parquet(tmp_path / "night/exact.parquet")
    assert set(exact["subject"]) == {"toy on unified, dispatch", "raw-keys"}  # a device decided the other one

    (tmp_path / "mine.yaml").write_text(FORCED)
    again = kvtwin("nightly", "--suite", "mine.yaml", "--on", "cpu", "--baseline", "night", "--json").json()
    assert (again["exit_code"], again["compared"]["exact"] > 10) == (0, True)
    assert {change["kind"] for change in again["changes"]} == {"gone"}
    refused = kvtwin("nightly", "--suite", "smoke", "--baseline", "night")
    assert refused.code == 2 and "expected a baseline of the suite smoke, found one of mine" in refused.err


def test_a_nightly_runs_ones_own_checkpoint(kvtwin: Command, tmp_path: Path) -> None:
    """By its path from the suite's folder; where that lies is no part of what a baseline holds."""
    suite = "replays:\n  - {scenarios: [toy.yaml], acceptance: natural, weights: mine}\n"
    (tmp_path / "mine.yaml").write_text(suite)
    answer = kvtwin("nightly", "--suite", "mine.yaml", "--on", "cpu")
    assert answer.code == 2
    assert "mine.yaml:2: replays[0].weights: expected a folder, found none at" in answer.err
    (tmp_path / "mine").symlink_to(PAIR)
    answer = kvtwin("nightly", "--suite", "mine.yaml", "--on", "cpu", "--out", "night", "--json")
    cases = {(case["subject"], case["name"]): case["verdict"] for case in answer.json()["cases"]}
    assert (answer.code, cases["toy on unified, natural, weights mine", "memories"]) == (0, "passed")
    (tmp_path / "mine.yaml").write_text(suite.replace(" natural", " forced"))
    refused = kvtwin("nightly", "--suite", "mine.yaml", "--on", "cpu")
    assert refused.code == 2 and "expected acceptance: natural beside weights, found forced" in refused.err


def test_a_device_whose_memory_is_another_fails_the_night_and_names_the_place(kvtwin: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("replays: [{scenarios: [toy.yaml], build: 'fault:store-at-zero'}]\n")
    answer = kvtwin("nightly", "--suite", "mine.yaml", "--on", "cpu")
    assert answer.code == 1
    assert "toy on fault:store-at-zero: law OWN broke: " in answer.out
    assert "in pool draft" in answer.out or "pool draft" in answer.out


def test_what_a_device_cannot_carry_out_costs_itself_only(kvtwin: Command, tmp_path: Path) -> None:
    suite = "replays:\n  - {scenarios: [reports/o46], launch: dispatch}\n  - {scenarios: [toy.yaml]}\n"
    (tmp_path / "mine.yaml").write_text(suite)
    answer = kvtwin("nightly", "--suite", "mine.yaml", "--on", "cpu", "--json")
    found = answer.json()
    assert answer.code == 1
    assert {case["subject"]: case["verdict"] for case in found["cases"] if case["name"] in ("run", "memories")} == {
        "o46 on unified, dispatch": "failed",
        "toy on unified": "passed",
    }


def test_without_a_gpu_or_a_fault_of_that_name_nothing_runs(
    kvtwin: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for command in (["nightly", "--out", "night"], ["baseline", "night"]):
        answer = kvtwin(*command, "--suite", "gpu", "--on", "gpu")
        assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
        assert "--on: expected a GPU, found none" in answer.err and "--on cpu" in answer.err
    (tmp_path / "mine.yaml").write_text("device_drill:\n  faults: [hold-leak]\n")
    answer = kvtwin("nightly", "--suite", "mine.yaml", "--on", "cpu")
    assert answer.code == 2 and "mine.yaml:2: device_drill.faults[0]: expected a fault" in answer.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.yaml", "toy.yaml"]
