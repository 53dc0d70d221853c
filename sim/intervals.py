"""95 % intervals of a run's figures, by a bootstrap over the units that the run could have had others of.

A unit is a request, a conversation or a whole run, never a token or a step: tokens of one request share its prompt, its
hit and its drafter context, so that resampling them would find intervals that are too narrow. All arms of a comparison
are resampled together (the same units in each draw), which takes out of a ratio what the arms have in common.

Intervals are percentiles of the resampled figures, taken further out where there are few units, as Student's t is
wider than the normal curve ("expanded percentile", Hesterberg 2015, What Teachers Should Know About the Bootstrap).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST, LEAST, CELLS = 2000, 400, 4_000_000  # resamples, fewer where units are many; units times resamples kept at once
KEPT = 8  # columns of observations
_NORMAL = NormalDist()
_T = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622)  # 97.5 % of Student's t, df 1 to 9


class Interval(NamedTuple):
    """A figure between the ends of its 95 % interval; the ends are NaN where fewer than two units are known."""

    low: float
    value: float
    high: float


@dataclass(frozen=True, slots=True)
class Resampled:
    """A figure, what it came out as in each resample (shape ``[resamples]``), and how many units stand behind it."""

    value: float
    draws: NDArray[np.float64]
    units: int

    def interval(self) -> Interval:
        """The 95 % interval; it holds the figure itself, whatever the draws say."""
        draws = self.draws[np.isfinite(self.draws)]
        if self.units < 2 or not len(draws) or not math.isfinite(self.value):
            return Interval(math.nan, self.value, math.nan)
        tail = _tail(self.units)
        low, high = np.quantile(draws, (tail, 1.0 - tail))
        return Interval(min(float(low), self.value), self.value, max(float(high), self.value))


class Resampling:
    """Draws of units with replacement, the same ones for every figure and arm that is asked of it.

    ``units``: the unit of each observation, shape ``[observations]``. Observations are given in that order, with NaN
    where an arm lacks one.
    """

    def __init__(self, units: ArrayLike, seed: int = 0) -> None:
        labels, places = np.unique(np.asarray(units), return_inverse=True)
        self.units = len(labels)
        self.places: NDArray[np.intp] = places.reshape(-1)
        self.resamples = max(LEAST, min(MOST, CELLS // max(1, self.units)))
        shape = (self.resamples, self.units)
        drawn = np.random.default_rng(seed).integers(max(1, self.units), size=shape)
        drawn += np.arange(self.resamples)[:, None] * self.units
        counts = np.bincount(drawn.reshape(-1), minlength=self.resamples * self.units)
        self._whole: NDArray[np.int32] = counts.reshape(shape).astype(np.int32)  # how often each unit was drawn
        self._counts: NDArray[np.float64] = self._whole.astype(np.float64)
        self._kept: dict[bytes, tuple[NDArray[np.float64], NDArray[np.int32], int]] = {}

    def mean(self, values: ArrayLike, weights: ArrayLike | None = None) -> Resampled:
        """Sum of ``values`` over sum of ``weights``, which are 1 unless given: the mean, or a ratio of two sums."""
        data = np.asarray(values, dtype=np.float64)
        below = np.ones_like(data) if weights is None else np.asarray(weights, dtype=np.float64)
        known = ~(np.isnan(data) | np.isnan(below))
        pair = [
            np.bincount(self.places[known], part[known], minlength=self.units) if known.any() else np.zeros(self.units)
            for part in (data, below)
        ]
        sums = self._counts @ np.stack(pair, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            draws = sums[:, 0] / sums[:, 1]
        bottom = float(pair[1].sum())
        value = float(pair[0].sum()) / bottom if bottom else math.nan
        return Resampled(value, draws, self._behind(known))

    def quantile(self, values: ArrayLike, at: float) -> Resampled:
        """The quantile ``at`` (0 to 1) of ``values`` by linear interpolation, as ``numpy.quantile``."""
        ascending, upto, units = self._ranked(np.asarray(values, dtype=np.float64))
        if not len(ascending):
            return Resampled(math.nan, np.full(self.resamples, math.nan), 0)
        drawn = upto[:, -1]
        place = np.maximum(0.0, (drawn - 1) * at)
        below = np.floor(place).astype(np.int32)
        last = len(ascending) - 1
        first = np.minimum(last, np.count_nonzero(upto <= below[:, None], axis=1))
        second = first.copy()
        # The value one rank on, where that is another observation and the place lies between the two.
        between = np.flatnonzero((place > below) & (upto[np.arange(len(upto)), first] <= below + 1))
        onwards = np.count_nonzero(upto[between] <= below[between, None] + 1, axis=1)
        second[between] = np.minimum(last, onwards)
        draws = ascending[first] + (place - below) * (ascending[second] - ascending[first])
        draws[drawn == 0] = math.nan
        return Resampled(float(np.quantile(ascending, at)), draws, units)

    def _ranked(self, data: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int32], int]:
        """The known values in ascending order, how many observations each resample drew up to each of them, and the
        units behind them. Kept for the last few columns, of which more than one quantile is asked."""
        key = data.tobytes()
        kept = self._kept.pop(key, None)
        if kept is None:
            known = ~np.isnan(data)
            order = np.flatnonzero(known)
            order = order[np.argsort(data[order], kind="stable")]
            upto = np.cumsum(self._whole[:, self.places[order]], axis=1, dtype=np.int32)
            kept = (data[order], upto, self._behind(known))
            while len(self._kept) >= KEPT:
                self._kept.pop(next(iter(self._kept)))
        self._kept[key] = kept
        return kept

    def _behind(self, known: NDArray[np.bool_]) -> int:
        return int(np.count_nonzero(np.bincount(self.places[known], minlength=self.units)))


def ratio(before: Resampled, after: Resampled) -> Interval:
    """``after`` over ``before``, two figures of one :class:`Resampling`: draw by draw, so what they share cancels."""
    with np.errstate(divide="ignore", invalid="ignore"):
        draws = after.draws / before.draws
    value = after.value / before.value if before.value else math.nan
    return Resampled(value, draws, min(before.units, after.units)).interval()


def difference(before: Resampled, after: Resampled) -> Interval:
    """``after`` minus ``before``, likewise."""
    return Resampled(after.value - before.value, after.draws - before.draws, min(before.units, after.units)).interval()


def mean_interval(values: ArrayLike, units: ArrayLike, seed: int = 0, weights: ArrayLike | None = None) -> Interval:
    """Mean of ``values`` (sum over the sum of ``weights``, if given), resampled by ``units``."""
    return Resampling(units, seed).mean(values, weights).interval()


def quantile_interval(values: ArrayLike, units: ArrayLike, at: float, seed: int = 0) -> Interval:
    """Quantile ``at`` of ``values``, resampled by ``units``."""
    return Resampling(units, seed).quantile(values, at).interval()


def paired_ratio(
    before: ArrayLike,
    after: ArrayLike,
    units: ArrayLike,
    seed: int = 0,
    weights: tuple[ArrayLike, ArrayLike] | None = None,
    at: float | None = None,
) -> Interval:
    """Mean of ``after`` over mean of ``before``; both arms hold the same observations, in order, or NaN.

    ``weights``: those of either arm, as in :func:`mean_interval`. With ``at`` it is a ratio of quantiles.
    """
    return ratio(*_arms(before, after, Resampling(units, seed), weights, at))


def paired_difference(
    before: ArrayLike,
    after: ArrayLike,
    units: ArrayLike,
    seed: int = 0,
    weights: tuple[ArrayLike, ArrayLike] | None = None,
    at: float | None = None,
) -> Interval:
    """Mean of ``after`` minus mean of ``before``, as :func:`paired_ratio`."""
    return difference(*_arms(before, after, Resampling(units, seed), weights, at))


def _arms(
    before: ArrayLike,
    after: ArrayLike,
    resampling: Resampling,
    weights: tuple[ArrayLike, ArrayLike] | None,
    at: float | None,
) -> tuple[Resampled, Resampled]:
    if at is not None:
        return resampling.quantile(before, at), resampling.quantile(after, at)
    first, second = weights if weights is not None else (None, None)
    return resampling.mean(before, first), resampling.mean(after, second)


def _tail(units: int) -> float:
    """Share of the draws outside of either end: 2.5 % of many units, less of few."""
    freedom = units - 1
    return _NORMAL.cdf(-math.sqrt(units / freedom) * student(freedom))


def student(freedom: int) -> float:
    """97.5 % quantile of Student's t (a table below 10, then Abramowitz and Stegun 26.7.5)."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = _NORMAL.inv_cdf(0.975)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom ** (power + 1) for power, term in enumerate(terms))
