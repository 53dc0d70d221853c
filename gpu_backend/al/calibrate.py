"""The sim's acceptance model from measured runs: what each step's drafter saw, the fit, and what it predicts.

Rates and curve are fitted from every other hit of builds and of cold runs; the model, named by a scenario's
``acceptance:``, then serves the same scenarios without a device, and its acceptance length is held to what the
remaining hits measured. Faults are predicted, not fitted: a drafter that reads wrong rows need not do as one that reads
none. The axis is the share of the window that is valid, newest rows first; for a drafter that attends all of its
context the share of that, and its bins are spaced by powers of two (:mod:`sim.acceptance_fit`): what a long context
loses at its far end weighs little, whatever its length.
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
from gpu_backend.al.measure import Run
from gpu_backend.al.order import CORRECT, FAULT
from gpu_backend.al.predicted import FILE, Asked, predict_all
from model.builds import DEFAULT_BUILD
from scenarios.schema import Scenario
from sim.acceptance_fit import Observed, fit
from sim.fitted import Fitted

Scenarios = dict[str, tuple[Scenario, Scenario]]  # by condition: on a hit, and cold


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


def observed(run: Run, hits: Sequence[int]) -> Observed:
    """The verify steps of ``hits``, with what their drafters saw."""
    step, share, accepted = list[int](), list[float](), list[int]()
    for place in hits:
        for number, ((_, committed), part) in enumerate(zip(run.trace(place), run.shares[place], strict=True)):
            step.append(number)
            share.append(part)
            accepted.append(committed - 1)
    return Observed(np.array(step, dtype=np.int64), np.array(share), np.array(accepted, dtype=np.int64))


def calibrate(
    arms: Sequence[Arm], scenarios: Scenarios, drafts: int, window: int | None, provenance: dict[str, Any]
) -> tuple[Fitted, list[Prediction]]:
    """Fit from the even hits of ``arms`` and of their cold runs, predict the odd ones.

    ``scenarios`` are those to predict. Raises ValueError where no step saw its whole window.
    """
    ran = [(arm, arm.run) for arm in arms if arm.run is not None]
    parts = [observed(run, range(0, run.measured.requests, 2)) for arm, run in ran if arm.kind != FAULT]
    cold = {id(arm.cold): arm.cold for arm, _ in ran}
    parts += [observed(run, range(0, run.measured.requests, 2)) for run in cold.values()]
    if not parts:
        raise ValueError("no run came to its end")
    steps = parts[0].joined(parts[1:])
    about = {**provenance, "fitted_steps": len(steps), "fitted_hits": "even", "judged_hits": "odd"}
    model = fit(steps, drafts, window, about)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / FILE).write_text(model.to_json(), encoding="utf-8")
        names = list(dict.fromkeys(arm.condition for arm, _ in ran))
        asked = [Asked(scenarios[name][1], DEFAULT_BUILD, place) for name in names]
        asked += [Asked(scenarios[arm.condition][0], arm.build, place) for arm, _ in ran]
        told = predict_all(asked)
    whole, found = dict(zip(names, told, strict=False)), list[Prediction]()
    for (arm, run), drawn in zip(ran, told[len(names) :], strict=True):
        odd = range(1, run.measured.requests, 2)
        lengths = [acceptance_length(one.measured.only(odd).steps) for one in (run, arm.cold)]
        before = whole[arm.condition]
        if lengths[0] is None or lengths[1] is None or drawn is None or before is None:
            continue
        seen = (arm.condition, arm.build, arm.kind, lengths[0], drawn.length, drawn.share)
        found.append(Prediction(*seen, (lengths[1], before.length)))
    return model, found


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
