"""``kvtwin replay`` and ``kvtwin drill --device``: what they print, write and refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from property_tests.cli.conftest import Command
from sim.replay import run_trace


def test_equal_memories_are_said_and_written(kvtwin: Command, tmp_path: Path) -> None:
    folder = tmp_path / "replay"
    answer = kvtwin("replay", "smoke/hello", "--device", "cpu", "--json", "--out", folder)
    assert answer.code == 0
    (found,) = answer.json()["replays"]
    (worker,) = found["workers"]
    assert found["verdict"] == "equal"
    assert worker["device_digest"] == worker["memory_digest"] == found["run"]["digests"]["memory"]
    assert worker["cells"] > 0 and worker["slots"] > 0
    assert found["acceptance_length"] == "not measured"
    assert '"verdict": "equal"' in (folder / "replay.json").read_text()


def test_a_replay_stands_beside_the_run_of_the_sim(kvtwin: Command) -> None:
    """Both have the same requests, decisions and memory; what the device took is told beside."""
    kvtwin("run", "smoke/hello", "--out", "sim")
    kvtwin("replay", "smoke/hello", "--device", "cpu", "--out", "device")
    (found,) = kvtwin("compare", "sim", "device", "--json").json()["comparisons"]
    assert [(build["name"], build["on"]) for build in found["builds"]] == [
        ("unified on sim", "sim"),
        ("unified on cpu", "cpu"),
    ]
    assert found["builds"][0]["digests"] == found["builds"][1]["digests"]
    assert found["paired_requests"] == found["requests"]
    rows = {row["metric"]: row for row in found["rows"] if row["build"] == "unified on cpu"}
    assert all(row["change"] == 0 for row in rows.values() if row["exact"])
    assert rows["device_step_ms"]["value"] > 0 and rows["device_step_ms"]["before"] is None
    assert any("simulated clock" in note for note in found["notes"])


def test_natural_acceptance_is_named_measured_and_timed_by_the_device_in_its_own_order(kvtwin: Command) -> None:
    kvtwin("run", "smoke/hello", "--out", "sim")
    kvtwin("replay", "smoke/hello", "--device", "cpu", "--acceptance", "natural", "--mode", "free", "--out", "device")
    (found,) = kvtwin("compare", "sim", "device", "--json").json()["comparisons"]
    modes = {build["on"]: build["acceptance"]["mode"] for build in found["builds"]}
    assert modes == {"sim": "forced", "cpu": "measured"}
    assert found["paired_requests"] == found["requests"] == 3
    rows = {row["metric"]: row for row in found["rows"] if row["build"] == "unified on cpu"}
    assert 1 <= rows["al_step_weighted"]["value"] <= 4
    assert rows["ttft_p50_ms"]["value"] > 0 and rows["ttft_p50_ms"]["value"] != rows["ttft_p50_ms"]["before"]
    assert rows["coverage_all"]["value"] is None  # nobody looked while it was served
    assert "on unified on sim" in found["warning"]
    assert any("of a device's own steps" in note for note in found["notes"])


def test_a_fault_exits_with_1_and_names_the_place(kvtwin: Command) -> None:
    answer = kvtwin("replay", "--build", "fault:store-at-zero", "--device", "cpu", "--check", "full")
    assert answer.code == 1
    assert "OWN" in answer.out and "PUB" in answer.out and "device broke a law" in answer.out


def test_a_build_with_a_slots_rule_of_the_users_own_is_engine_only(kvtwin: Command, tmp_path: Path) -> None:
    rule = "from dataclasses import dataclass\nfrom model.rules.slots import Slots\n\n\nclass Mine(Slots):\n    pass\n"
    (tmp_path / "mine_of_replay.py").write_text(rule)
    answer = kvtwin("replay", "smoke/hello", "--device", "cpu", "--build", "unified+slots=mine_of_replay:Mine")
    assert (answer.code, answer.out) == (2, "")
    assert "is engine only: its slots rule is a class of its own, Mine" in answer.err


def test_without_checks_nothing_is_compared(kvtwin: Command) -> None:
    answer = kvtwin("replay", "smoke/hello", "--device", "cpu", "--check", "off")
    assert answer.code == 3
    assert "nothing compared" in answer.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mode", "free"], "mode: expected equality, found free with forced acceptance"),
        (["--build", "no-such-build"], "no-such-build"),
        (["--sampling", "block"], "sampling: expected natural acceptance beside block, found forced"),
        (["--temperature", "0.5"], "expected --temperature beside --sampling token, block or match, found greedy"),
        (["--acceptance", "natural", "--weights", "nowhere"], "expected a folder with target and drafter in it"),
    ],
)
def test_what_a_replay_does_not_do_is_one_line(kvtwin: Command, words: list[str], said: str) -> None:
    answer = kvtwin("replay", "smoke/hello", "--device", "cpu", *words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err and answer.err.count("\n") == 1


def test_natural_acceptance_is_measured_judged_and_kept_as_ops(kvtwin: Command, tmp_path: Path) -> None:
    folder = tmp_path / "natural"
    words = ["--device", "cpu", "--acceptance", "natural", "--mode", "free", "--sampling", "block", "--json"]
    words += ["--out", str(folder)]
    answer = kvtwin("replay", "smoke/hello", *words)
    (found,) = answer.json()["replays"]
    assert (answer.code, found["verdict"]) == (0, "equal")
    assert found["acceptance_length"] == found["acceptance"]["AL"] >= 1
    assert [record["completion_tokens"] for record in found["requests"]] == [6, 6, 6]
    assert found["order"]["sampling"] == "block" and found["order"]["temperature"] == 1.0
    assert found["checked"]["LOSSLESS"] >= 18 and found["checked"]["SHADOW"] > 0
    again = run_trace(folder / "ops.jsonl")
    assert again.missed == [] and again.memory_digest == found["run"]["digests"]["memory"]


def test_natural_acceptance_of_a_fault_names_the_page(kvtwin: Command) -> None:
    answer = kvtwin("replay", "--build", "fault:store-at-zero", "--device", "cpu", "--acceptance", "natural", "--json")
    (found,) = answer.json()["replays"]
    shadow = [one for one in found["findings"] if one["code"] == "SHADOW"]
    assert answer.code == 1
    assert shadow[0]["request"] == 1 and shadow[0]["pool"] == "draft" and shadow[0]["position"] >= 0


def test_a_drill_on_a_device_counts_its_verdicts(kvtwin: Command) -> None:
    answer = kvtwin("drill", "raw-keys", "copy-one-short", "--device", "cpu", "--json")
    assert answer.code == 0
    found = answer.json()
    assert [row["where"] for row in found["faults"]] == ["rule", "device"]
    assert found["verdicts"] == {"caught": 2, "missed": 0, "wrong invariant": 0, "false alarm": 0}


def test_a_wrong_word_beside_a_drill_is_one_line(kvtwin: Command) -> None:
    answer = kvtwin("drill", "hold-leak", "--device", "cpu")
    assert (answer.code, answer.out) == (2, "")
    assert "hold-leak" in answer.err and answer.err.count("\n") == 1
