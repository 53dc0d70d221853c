"""A soak finds nothing on sound builds, and tells a fault, a leak, steps that become slower and a crash by round."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import pytest
import torch

import gpu_backend.replay.session as session
from gpu_backend.replay.executor import DeviceWorld
from gpu_backend.replay.result import ReplayOrder
from gpu_backend.soak import BUILDS, SEEDS, SoakOrder, document, main, soak, table
from gpu_backend.soak_judge import DEVICE_BYTES, TENSORS, Left, Round, drift_of, leaks, unmet
from gpu_backend.soak_rounds import AGENTIC, FLOOD, KINDS, LONG, TINY, scenario_of
from model.plan import StepPlan
from sim.rulespec import find
from sim.run import run_scenario


def tiny(device: torch.device, rounds: int, *kinds: str, builds: tuple[str, ...] = BUILDS) -> SoakOrder:
    return SoakOrder(5.0, device.type, rounds, kinds or KINDS, builds, size=TINY)


def timed(*step_us: float, builds: tuple[str, ...] = ("unified",)) -> list[Round]:
    return [Round(number, LONG, builds[number % len(builds)], 0, 1.0, step_us=us) for number, us in enumerate(step_us)]


def test_each_kind_has_its_turn_on_sound_builds_and_everything_is_written(
    device: torch.device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "soak.json"
    words = ["--device", device.type, "--size", TINY, "--rounds", "4", "--minutes", "5", "--out", str(out)]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(", ")[1].split()[0] for line in lines[:4]] == [*KINDS, AGENTIC]
    assert all(line.endswith("; fine") for line in lines[:4]) and "4 rounds, nothing wrong" in lines
    written = json.loads(out.read_text())
    assert written["exit_code"] == 0 and written["slower"] == dict.fromkeys(KINDS)
    assert all(one["events"] and one["cells"] and one["in_graphs"] and one["step_us"] > 0 for one in written["rounds"])
    flood = written["rounds"][2]
    assert flood["suspended"] and flood["cancelled"] and flood["failed"], "a flood is disturbed"
    assert list(out.parent.iterdir()) == [out], "no part is left beside it"


def test_builds_and_seeds_take_turns() -> None:
    order = SoakOrder(1.0, "cpu")
    turns = [order.round_of(number) for number in range(len(KINDS) * len(BUILDS) * SEEDS)]
    assert len(set(turns)) == len(turns)
    assert order.round_of(len(turns)) == turns[0], "then they come again, and have to end in the same digests"
    assert scenario_of(FLOOD, TINY, 0).to_yaml() != scenario_of(FLOOD, TINY, 1).to_yaml()


def test_a_fault_is_told_by_round_and_law(
    device: torch.device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--device",
        device.type,
        "--size",
        TINY,
        "--rounds",
        "1",
        "--kinds",
        LONG,
        "--builds",
        "fault:store-at-zero",
    ]
    assert main([*words, "--out", str(tmp_path / "soak.json")]) == 1
    assert "round 0, long on fault:store-at-zero, seed 0: OWN device: " in capsys.readouterr().out


def test_tensors_that_somebody_keeps_are_a_leak(device: torch.device) -> None:
    kept: list[torch.Tensor] = []

    def keep(number: int, follower: DeviceWorld) -> None:
        kept.extend(follower.memory.rows.length.clone() for _ in range(number * 2 * TENSORS))

    found = soak(tiny(device, 2, AGENTIC), prepare=keep)
    assert len(kept) == 2 * TENSORS and found.exit_code == 1
    assert found.wrong == [f"round 1, agentic on unified, seed 0: leak: {len(kept)} live tensors more than after the "
                           f"first rounds, bound {TENSORS}"]  # fmt: skip


def test_steps_that_become_slower_are_told(device: torch.device) -> None:
    def slow(number: int, follower: DeviceWorld) -> None:
        settled = follower.settled

        def late(plan: StepPlan, accepted: tuple[int, ...]) -> None:
            until = time.perf_counter() + 0.015
            while time.perf_counter() < until:
                pass  # a CPU's time counts where it works
            settled(plan, accepted)

        if number >= 6:
            follower.settled = late

    found = soak(tiny(device, 9, LONG, builds=("unified",)), prepare=slow)
    (wrong,) = found.wrong
    assert wrong.startswith("long: steps of the last third take ") and found.exit_code == 1
    assert any(line.startswith("long") and "x " in line for line in table(found))


def test_a_crash_of_a_round_is_a_finding_and_the_rounds_go_on(device: torch.device) -> None:
    def crash(number: int, follower: DeviceWorld) -> None:
        if number == 1:
            raise ZeroDivisionError("planted")

    found = soak(tiny(device, 3, LONG), prepare=crash)
    assert found.wrong == ["round 1, long on unified, seed 0: crash: ZeroDivisionError: planted"]
    assert len(found.rounds) == 3 and found.exit_code == 1


@pytest.mark.parametrize("amid_steps", [False, True])
def test_ctrl_c_keeps_the_rounds_before_it(device: torch.device, amid_steps: bool) -> None:
    def interrupt(number: int, follower: DeviceWorld) -> None:
        def settled(plan: StepPlan, accepted: tuple[int, ...]) -> None:
            raise KeyboardInterrupt

        if number == 1 and not amid_steps:
            raise KeyboardInterrupt
        if number == 1:
            follower.settled = settled

    found = soak(tiny(device, 3, LONG), prepare=interrupt)
    assert (len(found.rounds), found.interrupted, found.exit_code) == (1, True, 130)
    assert document(found)["interrupted"] and "interrupted, 1 round, nothing wrong" in table(found)


def test_ctrl_c_in_the_run_that_tells_the_counts_is_no_short_replay(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "run_scenario", partial(run_scenario, progress=interrupt))
    with pytest.raises(KeyboardInterrupt):
        session.replay(scenario_of(LONG, TINY, 0), find("unified"), ReplayOrder(device.type, launch="dispatch"))


def test_a_leak_is_more_than_the_bound_of_its_kind() -> None:
    baseline = Left(1000, 10, 0, 5000)
    assert leaks(Left(1000 + DEVICE_BYTES, 10 + TENSORS, 0, 0), baseline) == []
    (told,) = leaks(Left(1001 + DEVICE_BYTES, 10, 0, 0), baseline)
    assert told == "leak: 8,388,609 bytes on the device more than after the first rounds, bound 8,388,608"
    assert baseline.most(Left(1, 20, 3, 4)) == Left(1000, 20, 3, 5000)


def test_drift_compares_builds_with_themselves_and_says_where_there_are_too_few_rounds() -> None:
    assert drift_of(LONG, timed(*[1.0] * 5, *[9.0] * 3)).ratio is None
    steady, slower = timed(*[1.0] * 9), timed(*[1.0] * 6, *[1.6] * 3)
    assert (drift_of(LONG, steady).wrong, drift_of(LONG, steady).ratio) == ("", 1.0)
    assert drift_of(LONG, slower).wrong == "long: steps of the last third take 1.60 x those of the first, bound 1.5"
    assert drift_of(LONG, timed(1, 5, 1, 5, 1, 5, 1, 5, 1, builds=("unified", "paired-22"))).ratio == 1.0


def test_a_flood_without_its_disturbances_shows_nothing() -> None:
    calm = Round(0, FLOOD, "unified", 0, 1.0, suspended=3, failed=1)
    assert unmet([calm]) == ["flood: no round had a cancellation"]
    assert unmet([Round(0, LONG, "unified", 0, 1.0)]) == []


def test_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    out = ["--out", str(tmp_path / "soak.json"), "--rounds", "1", "--kinds", LONG]
    assert main(["--device", "cpu", "--builds", "unifed", *out]) == 2
    assert "unified" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["--device", "cpu", "--minutes", "0", *out])
    assert stopped.value.code == 2 and "--minutes above 0" in capsys.readouterr().err
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["--device", "cuda", *out]) == 3 and not (tmp_path / "soak.json").exists()
