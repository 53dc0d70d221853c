"""Calibration: what steps saw comes from the sim, and a truth that produced the counts is found again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_backend.acceptance.metrics import Measured, Steps
from gpu_backend.al import conditions
from gpu_backend.al.arms import arm
from gpu_backend.al.calibrate import calibrate, error_of
from gpu_backend.al.experiment import subject
from gpu_backend.al.measure import Run, run
from gpu_backend.al.order import BRANCH, FAULT, REPEAT, SUSPEND, TRANSFER, Order
from gpu_backend.al.predicted import FILE, REPEATS, Asked, predict, predict_all
from gpu_backend.al.session import measure
from model.builds import BUILDS, Build
from model.cluster import Cluster
from model.ops import At, Op, Settle, World
from model.topology import Topology
from scenarios.behaviour_schema import Acceptance
from scenarios.schema import Scenario
from sim.fitted import Fitted, load_fitted
from sim.run import run_scenario

TRUTH = Fitted(3, 16, (0,), ((0.8, 0.7, 0.6),), (0.0, 0.5, 1.0), (0.2, 0.6, 1.0))
HITS, TOKENS = 40, 20


def shares_of(run: Run, scenario: Scenario, build: Build) -> dict[int, list[float]]:
    """What the drafter saw of its window at each verify step of a measured ``run``, as the tagged memory says that goes
    through its ops once more."""
    config, topology = scenario.engine_config(build), scenario.topology(build)
    world = _opened(topology, World(config, build) if topology is None else None, build)
    found: dict[int, list[float]] = {}
    for op in run.ops:
        _apply(world, op, found)
    return found


def _opened(topology: Topology | None, world: World | None, build: Build) -> World | Cluster:
    if world is not None:
        return world
    assert topology is not None
    return topology.open(build, check="incremental", keep_events=False, record_ops=False)


def _apply(world: World | Cluster, op: At | Op, found: dict[int, list[float]]) -> None:
    place, inner = (op.worker, op.op) if isinstance(op, At) else (0, op)
    seen: dict[int, float] = {}
    worker = world.workers[place]
    if isinstance(inner, Settle) and worker.engine.plans:
        rows = worker.engine.plans[0].generation
        seen = {row.request_id: worker.coverage(row.request_id) for row in rows if row.real_drafts}
    outcome = world.apply(op)
    for settled in outcome.settled:
        if settled.drafted and settled.tokens and settled.request_id in seen:
            found.setdefault(settled.request_id, []).append(seen[settled.request_id])


def as_measured(scenario: Scenario, build: Build, folder: Path, seed: int) -> Run:
    """A run whose counts the truth drew: what a device would have measured."""
    workload = scenario.workload()
    drawn = scenario.replace(acceptance=Acceptance(fitted=FILE), seed=seed).at(None, folder).serving(workload)
    result = run_scenario(drawn, build, record_ops=True)
    hits = [timing for timing in result.timings if timing.session.startswith("hit ")]
    rows = []
    for place, timing in enumerate(hits):
        anchors = 1 + np.cumsum([0, *timing.accepted])
        rows += [(place, int(at), count, True) for at, count in zip(anchors, timing.accepted, strict=False)]
    records = {record.request_id: record for record in result.records}
    measured = Measured(Steps.of(rows), ((),) * len(hits), {}, tuple(timing.request_id for timing in hits), 3)
    own = tuple(records[timing.request_id] for timing in hits)
    hidden = np.zeros(len(hits), dtype=np.int64)
    found = Run(scenario.name, build.name, measured, own, hidden, 0.0, (), (), tuple(result.ops))
    shares = shares_of(found, scenario, build)
    return replace(found, shares=tuple(tuple(shares[number]) for number in measured.ids))


def test_the_truth_behind_measured_counts_is_found_and_predicts_every_build(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(TRUTH.to_json())
    pair, texts = subject(None, torch.device("cpu"), HITS, exact=True, seed=0)
    scenarios, arms = {}, []
    for name, condition in (
        (REPEAT, conditions.whole_prompts(pair, texts, TOKENS)),
        (BRANCH, conditions.shared_prefix(pair, texts, TOKENS, BRANCH)),
    ):
        scenarios[name] = conditions.warm(pair, condition), conditions.cold(pair, condition)
        cold = as_measured(scenarios[name][1], BUILDS["unified"], tmp_path, 90 + len(arms))
        for build in ("unified", "mirror-21281"):
            found = as_measured(scenarios[name][0], BUILDS[build], tmp_path, 100 + len(arms))
            arms.append(arm(name, BUILDS[build], "correct", cold, found, exact=True))
    model, predictions = calibrate(arms, scenarios, 3, 16, {"weights": "the truth"})
    for share in (0.0, 0.25, 0.5, 1.0):
        assert model.expected_length(8, share) == pytest.approx(TRUTH.expected_length(8, share), abs=0.2), share
    assert model.scale(0.0) < 0.45 < model.scale(0.5) < 0.8
    assert len(predictions) == 4 and error_of(predictions)["correct_rms"] < 0.1
    lost = {one.build: one for one in predictions if one.condition == REPEAT}
    assert lost["mirror-21281"].measured < 0.95 * lost["unified"].measured and lost["mirror-21281"].share < 0.5
    measured, predicted = lost["mirror-21281"].changes
    assert measured < -0.05 and predicted == pytest.approx(measured, abs=0.1)
    assert lost["unified"].share == 1 and model.provenance["judged_hits"] == "odd"
    for one, judged in zip(predictions, arms, strict=True):
        assert one.measured == pytest.approx(np.mean(odd_counts(judged.run)))
    few, _ = calibrate([arms[0], replace(arms[1], kind=FAULT)], scenarios, 3, 16, {})
    fitted = [run.trace(place) for run in (arms[0].run, arms[0].cold) if run for place in range(0, HITS, 2)]
    assert few.provenance["fitted_steps"] == sum(map(len, fitted)), "faults are predicted, not fitted"
    drawn = [as_measured(scenarios[REPEAT][0], BUILDS["unified"], tmp_path, repeat) for repeat in range(REPEATS)]
    wanted = np.mean([np.mean(odd_counts(found)) for found in drawn])
    asked = Asked(scenarios[REPEAT][0], "unified", tmp_path)
    told = predict(asked)
    assert told is not None and told.length == pytest.approx(wanted) and told.share == 1


def odd_counts(found: Run | None) -> list[int]:
    """What the steps of the hits that are judged, and not fitted from, committed."""
    assert found is not None
    return [count for place in range(1, HITS, 2) for _, count in found.trace(place)]


def test_predictions_are_the_same_on_all_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FILE).write_text(TRUTH.to_json())
    pair, texts = subject(None, torch.device("cpu"), 2, exact=True, seed=0)
    scenario = conditions.warm(pair, conditions.whole_prompts(pair, texts, 4))
    asked = [Asked(scenario, name, tmp_path) for name in ("unified", "mirror-21281")]
    alone = predict_all(asked)
    monkeypatch.setattr("gpu_backend.al.predicted.WORTH_WORKERS", 0)
    assert predict_all(asked) == alone and None not in alone and alone[0] != alone[1]


@pytest.mark.parametrize(
    ("condition", "build", "least", "most"),
    [
        (REPEAT, "unified", 1.0, 1.0), (REPEAT, "mirror-21281", 0.0, 0.25), (SUSPEND, "target-21", 0.1, 0.5),
        (BRANCH, "unified-nowindow", 0.0, 0.5), (TRANSFER, "unified-target-sent", 0.0, 0.25),
    ],
)  # fmt: skip
def test_what_a_measured_step_saw_is_what_the_tagged_memory_says(
    condition: str, build: str, least: float, most: float
) -> None:
    pair, texts = subject(None, torch.device("cpu"), 4, exact=True, seed=0)
    make = conditions.shared_prefix if condition == BRANCH else conditions.whole_prompts
    scenario = conditions.warm(pair, make(pair, texts, 8, condition))
    found = run(scenario, BUILDS[build], pair)
    shares = shares_of(found, scenario, BUILDS[build])
    assert [list(one) for one in found.shares] == [pytest.approx(shares[number]) for number in found.measured.ids]
    assert [len(one) for one in found.shares] == [len(found.trace(place)) for place in range(4)]
    assert all(least <= one[0] <= most for one in found.shares)
    assert all(list(one) == sorted(one) for one in found.shares), "nothing is lost again"


def test_a_calibration_leaves_a_model_that_a_scenario_can_name(tmp_path: Path) -> None:
    order = Order(None, ("unified", "target-21"), (), (REPEAT,), 4, 8, "cpu", calibrate=True)
    told = measure(order)
    assert told.calibrations.keys() == {"dflash"} and told.exit_code == 0
    (tmp_path / "model.json").write_text(told.calibrations["dflash"]["model"])
    model = load_fitted(tmp_path / "model.json")
    assert (model.drafts, model.window) == (3, 16)
    assert model.provenance["prompts_sha256"] == told.pair["prompts_sha256"] and model.provenance["rule"] == "greedy"
    rows = told.calibrations["dflash"]["predictions"]
    assert [row["build"] for row in rows] == ["unified", "target-21"]
    assert rows[1]["first_share"] < rows[0]["first_share"] == 1
    assert told.calibrations["dflash"]["error"]["correct_rms"] >= 0
    assert not measure(replace(order, calibrate=False)).calibrations
