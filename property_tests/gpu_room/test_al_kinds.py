"""Cold against hit by kind of drafter, with tier T0: what sees ahead has faults of its own, and KEY sees them first."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from gpu_backend.al import experiment
from gpu_backend.al.apart import joined
from gpu_backend.al.order import (
    CHUNKED,
    CONDITIONS,
    IDENTICAL,
    REPEAT,
    SHOWN,
    SLOTS,
    SUSPEND,
    Order,
    Told,
    faults_for,
    faults_shown,
)
from gpu_backend.al.session import measure_here
from gpu_backend.shipped.card import DRAFTERS
from scenarios.errors import InputError

ORDER = Order(None, ("unified",), ("placeholder-lookahead", "raw-keys"), (CHUNKED,), 2, 5, "cpu")
BUILDS = ["unified", "fault:placeholder-lookahead", "fault:raw-keys"]


@pytest.mark.parametrize("kind", ["eagle3", "mtp"])
def test_sound_chunks_change_no_step_and_key_is_first_to_see_cells_that_know_wrong_tokens(kind: str) -> None:
    told = measure_here(replace(ORDER, drafters=(kind,)))
    sound, *faults = told.arms
    assert sound["verdict"] == IDENTICAL and sound["owed"] == sound["same_traces"] == 2
    assert sound["cached_draft"] == sound["cached_target"], "claims reach the chunk's end and no further"
    for row in faults:
        assert row["caught_by"][0] == "KEY", row["build"]
        assert row["same_outputs"] == 2, "greedy tokens stay what they are"
    assert told.drafters[kind]["window"] is None and told.drafters[kind]["lookahead"] == {"eagle3": 1, "mtp": 2}[kind]


def test_the_laws_are_asked_about_the_condition_of_the_arm() -> None:
    """A prompt that comes again is cut nowhere, and under chunked none comes again to its last token: neither condition
    shows the other one's fault."""
    order = replace(ORDER, builds=(), faults=("publish-tail", "placeholder-lookahead"), conditions=(REPEAT, CHUNKED))
    told = measure_here(replace(order, drafters=("mtp",), tokens=2))
    assert [(row["condition"], row["build"], row["caught_by"]) for row in told.arms] == [
        (REPEAT, "fault:publish-tail", ["KEY", "OWN"]), (CHUNKED, "fault:placeholder-lookahead", ["KEY"]),
    ]  # fmt: skip


def test_without_lookahead_neither_fault_is_one() -> None:
    told = measure_here(replace(ORDER, drafters=("dflash",)))
    assert [row["same_traces"] for row in told.arms] == [2, 2, 2]
    assert [row["caught_by"] for row in told.arms] == [[], [], []]
    again = joined([told, replace(told, cold={"dspark": told.cold["dflash"]}, drafters={"dspark": {}})])
    assert again.arms == told.arms * 2 and list(again.cold) == list(again.drafters) == ["dflash", "dspark"]
    assert isinstance(again, Told) and again.exit_code == 0 and again.pair == told.pair


def test_faults_of_slots_are_run_for_drafters_in_slots_alone() -> None:
    assert {kind: set(faults_for(kind, tuple(SHOWN))) for kind in DRAFTERS} == {
        "dflash": set(SHOWN), "dspark": set(SHOWN),
        "eagle3": set(SHOWN) - SLOTS, "mtp": set(SHOWN) - SLOTS,
    }  # fmt: skip
    assert faults_shown(tuple(CONDITIONS)) == tuple(SHOWN)
    assert faults_shown((SUSPEND,)) == ("slot-loss-zero", "no-trail", "batch-row-kept", "drafts-lost-when-absent")
    assert "no-trail" not in faults_shown((REPEAT,)) and "publish-tail" in faults_shown((REPEAT, SUSPEND))
    assert "store-at-zero" in SLOTS and "placeholder-lookahead" not in SLOTS


@pytest.mark.parametrize(
    ("where", "call", "left", "fitted"),
    [
        ("gpu_backend.al.experiment.run", 3, ["unified"], []),
        ("gpu_backend.al.session.caught_by", 2, BUILDS[:2], []),
        ("gpu_backend.al.session.calibrate", 1, BUILDS, []),
        ("gpu_backend.al.session.hit_rows", 2, BUILDS, ["dflash"]),
        ("sim.run.rare_collections", 5, ["unified"], []),
        ("sim.run.rare_collections", 7, BUILDS, []),
    ],
    ids=["a run", "the laws", "the calibration", "the rows of the next kind", "the sim's run", "a prediction"],
)
def test_ctrl_c_leaves_what_was_finished(
    monkeypatch: pytest.MonkeyPatch, where: str, call: int, left: list[str], fitted: list[str]
) -> None:
    def cut(*told: Any, **more: Any) -> Any:
        asked.append(1)
        if len(asked) == call:
            raise KeyboardInterrupt
        return usual(*told, **more)

    module, name = where.rsplit(".", 1)
    asked, usual = list[int](), getattr(import_module(module), name)
    monkeypatch.setattr(where, cut)
    told = measure_here(replace(ORDER, drafters=("dflash", "mtp"), calibrate=True))
    assert [row["build"] for row in told.arms] == left and told.interrupted and told.exit_code == 130
    assert list(told.cold) == ["dflash"] and list(told.calibrations) == fitted


def test_ctrl_c_ends_all_kinds_also_when_one_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*told: Any, **more: Any) -> Any:
        results = measured(*told, **more)
        results.refused = InputError("device", 0, "", "pool draft needs 7 pages")
        monkeypatch.setattr(experiment, "measure", measured)
        return results

    def cut(*told: Any) -> Any:
        raise KeyboardInterrupt

    measured = experiment.measure
    monkeypatch.setattr(experiment, "measure", refused)
    monkeypatch.setattr("gpu_backend.al.session.caught_by", cut)
    told = measure_here(replace(ORDER, drafters=("dflash", "mtp")))
    assert [row["build"] for row in told.arms] == ["unified"] and list(told.cold) == ["dflash"]
    assert told.interrupted and told.failed["dflash"].line == "device: pool draft needs 7 pages"
    assert told.exit_code == 130, "the user's wish is ahead of what was refused"


def test_runs_of_all_kinds_are_counted_on() -> None:
    shown: list[tuple[int, int]] = []
    order = replace(ORDER, faults=(), tokens=2, drafters=("dflash", "mtp"))
    measure_here(order, lambda *now: shown.append(now))
    assert shown == [(0, 2), (1, 2), (2, 2)]
