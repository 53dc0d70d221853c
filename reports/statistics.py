"""The statistics of reports: see :mod:`sim.intervals`, which the rooms below use as well."""

from __future__ import annotations

from sim.intervals import (
    Interval,
    Resampled,
    Resampling,
    difference,
    mean_interval,
    paired_difference,
    paired_ratio,
    quantile_interval,
    ratio,
)

__all__ = [
    "Interval",
    "Resampled",
    "Resampling",
    "difference",
    "mean_interval",
    "paired_difference",
    "paired_ratio",
    "quantile_interval",
    "ratio",
]
