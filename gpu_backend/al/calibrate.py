"""The sim's acceptance model from measured runs: what each step's drafter saw, the fit, and what it predicts.

What a drafter saw is the sim's to say: the ops of a measured run are applied once more, with the tagged memory that
knows which rows of every window are valid, newest first. Rates and curve are fitted from every other hit of builds and
of cold runs; the model, named by a scenario's ``acceptance:``, then serves the same scenarios without a device, and its
acceptance length is held to what the remaining hits measured. Faults are predicted, not fitted: a drafter that reads
wrong rows need not do as one that reads none.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpu_backend.acceptance.metrics import acceptance_length
from gpu_backend.al.arms import Arm
from gpu_backend.al.conditions import HIT
from gpu_backend.al.measure import Run
from gpu_backend.al.order import CORRECT, FAULT
from model.builds import BUILDS, DEFAULT_BUILD, Build
from model.cluster import Cluster
from model.ops import At, Op, Settle, World
from model.topology import Topology
from scenarios.behaviour_schema import Acceptance
from scenarios.schema import Scenario
from sim.acceptance_fit import Observed, fit
from sim.crashes import ENDS
from sim.fitted import Fitted
from sim.rulespec import find
from sim.run import run_scenario

FILE = "acceptance.json"
REPEATS = 3  # runs of a scenario with other draws
Shares = dict[int, list[float]]  # by request: the share of the window of each verify step of real drafts


@dataclass(frozen=True, slots=True)
class Prediction:
    """Acceptance lengths of one arm over the hits that were not fitted; ``share``: mean of the first step's window.

    ``cold`` are those of its cold run, measured and predicted: texts differ in how well they are drafted, and what a
    build makes of them is the change.
    """

    condition: str
    build: str
    kind: str
    measured: float
    predicted: float
    share: float
    cold: tuple[float, float]

    @property
    def changes(self) -> tuple[float, float]:
        """Change against cold, measured and predicted."""
        return self.measured / self.cold[0] - 1, self.predicted / self.cold[1] - 1

    def row(self) -> dict[str, Any]:
        """As plain values, ``error`` relative."""
        return {
            "condition": self.condition, "build": self.build, "kind": self.kind, "measured": round(self.measured, 4),
            "predicted": round(self.predicted, 4), "error": round(self.predicted / self.measured - 1, 4),
            "first_share": round(self.share, 4), "measured_change": round(self.changes[0], 4),
            "predicted_change": round(self.changes[1], 4),
        }  # fmt: skip


def shares_of(run: Run, scenario: Scenario, build: Build) -> Shares:
    """What the drafter saw of its window at each verify step of a measured ``run``; the ops say all but that.

    Of a run that the model cannot go through again with its laws on, what came before.
    """
    config, topology = scenario.engine_config(build), scenario.topology(build)
    world = _opened(topology, World(config, build) if topology is None else None, build)
    found: Shares = {}
    try:
        for op in run.ops:
            _apply(world, op, found)
    except ENDS:
        pass
    return found


def _opened(topology: Topology | None, world: World | None, build: Build) -> World | Cluster:
    if world is not None:
        return world
    assert topology is not None
    return topology.open(build, check="incremental", keep_events=False, record_ops=False)


def _apply(world: World | Cluster, op: At | Op, found: Shares) -> None:
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


def observed(run: Run, shares: Shares, hits: Sequence[int]) -> Observed:
    """The verify steps of ``hits`` of which it is known what they saw."""
    step, share, accepted = list[int](), list[float](), list[int]()
    for place in hits:
        told = shares.get(run.measured.ids[place], [])
        for number, ((_, committed), part) in enumerate(zip(run.trace(place), told, strict=False)):
            step.append(number)
            share.append(part)
            accepted.append(committed - 1)
    return Observed(np.array(step, dtype=np.int64), np.array(share), np.array(accepted, dtype=np.int64))


def calibrate(
    arms: Sequence[Arm],
    scenarios: dict[str, tuple[Scenario, Scenario]],
    drafts: int,
    window: int | None,
    provenance: dict[str, Any],
) -> tuple[Fitted, list[Prediction]]:
    """Fit from the even hits of ``arms`` and of their cold runs, predict the odd ones.

    ``scenarios`` by condition, on a hit and cold. Raises ValueError where no step saw its whole window.
    """
    ran = [(arm, arm.run, find(arm.build)) for arm in arms if arm.run is not None]
    seen = [(arm, run, build, shares_of(run, scenarios[arm.condition][0], build)) for arm, run, build in ran]
    cold = {id(arm.cold): arm.cold for arm, *_ in seen}
    parts = [
        observed(run, shares, range(0, run.measured.requests, 2)) for arm, run, _, shares in seen if arm.kind != FAULT
    ]
    parts += [_complete(run) for run in cold.values()]
    if not parts:
        raise ValueError("no run came to its end")
    steps = parts[0].joined(parts[1:])
    about = {**provenance, "fitted_steps": len(steps), "fitted_hits": "even", "judged_hits": "odd"}
    model = fit(steps, drafts, window, about)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FILE).write_text(model.to_json(), encoding="utf-8")
        whole = {name: predict(cold, BUILDS[DEFAULT_BUILD], Path(folder)) for name, (_, cold) in scenarios.items()}
        for arm, run, build, shares in seen:
            predicted = predict(scenarios[arm.condition][0], build, Path(folder))
            odd = range(1, run.measured.requests, 2)
            own = run.measured.only(odd)
            lengths = acceptance_length(own.steps), acceptance_length(arm.cold.measured.only(odd).steps)
            cold = whole[arm.condition]
            if lengths[0] is None or lengths[1] is None or predicted is None or cold is None:
                continue
            firsts = [shares[number][0] for number in own.ids if shares.get(number)]
            share = float(np.mean(firsts)) if firsts else float("nan")
            told = (arm.condition, arm.build, arm.kind, lengths[0], predicted, share)
            found.append(Prediction(*told, (lengths[1], cold)))
    return model, found


def _complete(run: Run) -> Observed:
    """The even hits of a cold run, whose windows are whole."""
    hits = range(0, run.measured.requests, 2)
    return observed(run, {run.measured.ids[place]: [1.0] * len(run.trace(place)) for place in hits}, hits)


def predict(scenario: Scenario, build: Build, folder: Path) -> float | None:
    """Acceptance length of the odd hits that the sim draws from the model in ``folder``; None if it does not end."""
    workload, lengths = scenario.workload(), []
    for repeat in range(REPEATS):
        drawn = scenario.replace(acceptance=Acceptance(fitted=FILE), seed=scenario.seed + repeat)
        try:
            result = run_scenario(drawn.at(None, folder).serving(workload), build)
        except ENDS:
            return None
        hits = [timing for timing in result.timings if timing.session.startswith(f"{HIT} ")]
        counts = [count for timing in hits if int(timing.session.split()[1]) % 2 for count in timing.accepted]
        lengths += [np.mean(counts)] if counts else []
    return float(np.mean(lengths)) if lengths else None


def error_of(found: Sequence[Prediction]) -> dict[str, float]:
    """Relative errors over correct builds, all builds, and faults: root mean square, and the largest.

    ``change`` are those of the changes against cold.
    """
    told = {}
    for name, own in (
        ("correct", [one for one in found if one.kind == CORRECT]),
        ("builds", [one for one in found if one.kind != FAULT]),
        ("faults", [one for one in found if one.kind == FAULT]),
    ):
        errors = np.array([one.predicted / one.measured - 1 for one in own])
        changes = np.array([one.changes[1] - one.changes[0] for one in own])
        if len(errors):
            told[f"{name}_change_rms"] = round(float(np.sqrt((changes**2).mean())), 4)
            told[f"{name}_rms"] = round(float(np.sqrt((errors**2).mean())), 4)
            told[f"{name}_largest"] = round(float(np.abs(errors).max()), 4)
    return told
