"""The figures of a comparison as one tidy table: a row for each figure and build, with its ratio to the baseline."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from reports.arms import SEED, Arm, Arms
from reports.metrics import Metric, metrics_of
from reports.statistics import Interval, Resampled, difference, ratio

EXACT, NONE = "exact", "none"  # resampling: what follows from the rules has no noise; one run of a clock has no unit
COLUMNS = (
    "metric", "label", "unit", "group", "build", "value", "low", "high", "before", "after", "ratio", "ratio_low",
    "ratio_high", "change", "change_low", "change_high", "exact", "better", "resampling", "short", "shown",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure of one arm; without ``resampled`` it has no interval."""

    value: float
    resampled: Resampled | None
    resampling: str


def rows_of(arms: Arms, baseline: str) -> pd.DataFrame:
    """The tidy table, :data:`COLUMNS`. Figures that no arm has are left out; the others are NaN where one lacks them.

    ``value`` with ``low`` and ``high``, its 95 % interval; ``before`` is the baseline's value, ``after`` this build's,
    ``ratio`` after / before and ``change`` after - before, with theirs. NaN: there is no interval. ``resampling`` is
    what was resampled: ``request``, ``conversation`` or ``seed``; ``exact`` where a figure follows from the rules and
    one seed, ``none`` where one run is all that there is.
    """
    rows = []
    for metric in metrics_of(arms):
        figures = {label: _figure(metric, arm, arms) for label, arm in arms.arms.items()}
        if all(math.isnan(figure.value) for figure in figures.values()):
            continue
        before = figures[baseline]
        for label, figure in figures.items():
            rows.append(_row(metric, label, before, figure))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _figure(metric: Metric, arm: Arm, arms: Arms) -> _Figure:
    if metric.of_arm is not None:
        found = metric.of_arm(arm, arms.resampling)
        if metric.exact:
            return _Figure(found.value, None, EXACT)
        return _Figure(found.value, found, arms.unit)
    assert metric.of_run is not None
    values = {run.repeat: metric.of_run(run) for run in arm.runs}
    known = [value for value in values.values() if value is not None]
    value = float(np.mean(known)) if known else math.nan
    if arms.seeds is None:
        return _Figure(value, None, EXACT if metric.exact else NONE)
    by_seed = [values.get(repeat) for repeat in arms.repeats]
    seeds = arms.seeds.mean([math.nan if value is None else value for value in by_seed])
    return _Figure(value, seeds, SEED)


def _row(metric: Metric, label: str, before: _Figure, after: _Figure) -> tuple[object, ...]:
    own = after.resampled.interval() if after.resampled is not None else Interval(math.nan, after.value, math.nan)
    change, factor = _compared(before, after)
    return (
        metric.name, metric.label, metric.unit, metric.group, label, own.value, own.low, own.high, before.value,
        after.value, factor.value, factor.low, factor.high, change.value, change.low, change.high, metric.exact,
        metric.better, after.resampling, metric.short, metric.shown,
    )  # fmt: skip


def _compared(before: _Figure, after: _Figure) -> tuple[Interval, Interval]:
    """``after`` minus and over ``before``; of the baseline itself 0 and 1, without intervals."""
    if after is before:
        one = math.nan if math.isnan(after.value) else 1.0
        return Interval(math.nan, one - 1.0, math.nan), Interval(math.nan, one, math.nan)
    if before.resampled is not None and after.resampled is not None:
        return difference(before.resampled, after.resampled), ratio(before.resampled, after.resampled)
    quotient = after.value / before.value if before.value else math.nan
    return Interval(math.nan, after.value - before.value, math.nan), Interval(math.nan, quotient, math.nan)
