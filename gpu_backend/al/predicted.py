"""What the sim predicts of acceptance from a fitted model: many runs without a device, on all cores. No torch."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scenarios.behaviour_schema import Acceptance
from scenarios.schema import Scenario
from sim.crashes import ENDS
from sim.orphans import end_with_parent
from sim.rulespec import find
from sim.run import run_scenario

HIT = "hit"  # sessions whose requests are measured, with their number behind
FILE = "acceptance.json"
REPEATS = 3  # runs of a scenario with other draws
WORTH_WORKERS = 5000  # sessions of all runs from which on processes are started


@dataclass(frozen=True, slots=True)
class Asked:
    """One prediction: a scenario on a build, by name, with the model in ``folder``; of its odd hits."""

    scenario: Scenario
    build: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Drawn:
    """Acceptance length of the odd hits, and the mean share of its window that a first step had."""

    length: float
    share: float


def predict(asked: Asked) -> Drawn | None:
    """What the sim draws; None if it does not end, as a wrong rule's run need not."""
    scenario, lengths, shares = asked.scenario, list[float](), list[float]()
    workload = scenario.workload()
    for repeat in range(REPEATS):
        drawn = scenario.replace(acceptance=Acceptance(fitted=FILE), seed=scenario.seed + repeat)
        try:
            result = run_scenario(drawn.at(None, asked.folder).serving(workload), find(asked.build)).whole()
        except ENDS:
            return None
        hits = [timing for timing in result.timings if timing.session.startswith(f"{HIT} ")]
        odd = [timing for timing in hits if int(timing.session.split()[1]) % 2]
        counts = [count for timing in odd for count in timing.accepted]
        lengths += [float(np.mean(counts))] if counts else []
        shares += [timing.coverage_first for timing in odd if timing.accepted]
    return Drawn(float(np.mean(lengths)), float(np.mean(shares))) if lengths else None


def predict_all(asked: Sequence[Asked]) -> list[Drawn | None]:
    """All of them, in their order."""
    cores = len(os.sched_getaffinity(0))
    sessions = REPEATS * sum(len(one.scenario.workload().sessions) for one in asked)
    if cores == 1 or sessions < WORTH_WORKERS:
        return [predict(one) for one in asked]
    spawn = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    with ProcessPoolExecutor(min(cores, len(asked)), spawn, end_with_parent) as pool:
        return list(pool.map(predict, asked))
