"""What changed against a baseline. Exact figures must be equal; noisy ones must not be worse beyond noise.

A noisy figure is worse where its mean moved by more than a minimum *and* the interval of the ratio, a paired bootstrap
over conversations (or repeats, for times of a device), excludes that it did not. A night asks this of many figures at
once, so each 95 % interval is stretched until all of them together hold with 95 % (Bonferroni; the stretch is that of
the quantiles of Student's t).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sim.intervals import Interval, paired_ratio
from sim.nightly.metrics import DIGESTS, LESS, METRICS, MORE, metric_of

WORSE, BETTER, CHANGED, NEW, GONE, REMADE = "worse", "better", "changed", "new", "gone", "remade"
ALPHA = 0.05  # of a whole night
FEWEST = 2  # units without which no interval can be told
Subject = tuple[str, str]  # stage, subject
Value = float | str
Exact = dict[Subject, dict[str, dict[int, Value]]]  # by subject, metric and repeat
Samples = dict[tuple[str, str, str], dict[tuple[int, str, int], float]]  # then by repeat, unit, place


@dataclass(frozen=True, slots=True)
class Change:
    """One figure that is not what it was, or a subject that only one side has (``metric`` is empty then).

    ``ratio`` is new over old, with its interval where the figure is noisy; ``units`` were resampled. ``fails``: the
    nightly is not fine.
    """

    stage: str
    subject: str
    metric: str
    kind: str
    before: Value | None = None
    after: Value | None = None
    ratio: Interval | None = None
    units: int = 0

    @property
    def fails(self) -> bool:
        """An exact figure must be equal, so better is no excuse; of a noisy one only worse counts."""
        if not self.metric:
            return False
        return self.kind == WORSE if self.ratio is not None else self.kind in (WORSE, BETTER, CHANGED)

    @property
    def weight(self) -> float:
        """How far it moved, for the order in which changes are told."""
        if isinstance(self.before, str) or isinstance(self.after, str) or self.before is None or self.after is None:
            return math.inf
        return abs(self.after - self.before) / abs(self.before) if self.before else math.inf


@dataclass(frozen=True, slots=True)
class Compared:
    """All that changed, and how much was looked at."""

    changes: tuple[Change, ...]
    exact: int
    noisy: int

    @property
    def fails(self) -> bool:
        """Whether anything makes the nightly fail."""
        return any(change.fails for change in self.changes)


@dataclass(frozen=True, slots=True)
class Side:
    """One nightly's figures, and of what each subject was made."""

    exact: Exact
    samples: Samples
    made: dict[Subject, str]


def compare(before: Side, after: Side, minimum: dict[str, float], left_out: frozenset[Subject]) -> Compared:
    """Hold ``after`` to ``before``. ``minimum`` replaces the minimum of some noisy figures.

    Subjects of ``left_out`` (by stage and subject, or a whole stage by ``(stage, "")``) did not come to their turn,
    and nobody misses them. One that was made of other inputs is told and not compared.
    """
    changes: list[Change] = []
    both = {subject for subject, made in after.made.items() if before.made.get(subject) == made}
    for subject in after.made:
        if subject not in before.made:
            changes.append(Change(*subject, "", NEW))
        elif subject not in both:
            changes.append(Change(*subject, "", REMADE))
    for subject in before.made:
        if subject not in after.made and subject not in left_out and (subject[0], "") not in left_out:
            changes.append(Change(*subject, "", GONE))
    exact = list(_exact(before.exact, after.exact, both))
    changes += [change for change in exact if change is not None]
    noisy = list(_noisy(before.samples, after.samples, both))
    changes += [change for pair in noisy if (change := _judged(pair, len(noisy), minimum)) is not None]
    changes += _gone(before.samples, after.samples, both)
    return Compared(tuple(sorted(changes, key=_order)), len(exact), len(noisy))


def _order(change: Change) -> tuple[bool, int, float, str, str]:
    ranks = (WORSE, CHANGED, BETTER, GONE, REMADE, NEW)
    return (not change.fails, ranks.index(change.kind), -change.weight, change.subject, change.metric)


# -- exact -------------------------------------------------------------------------------------------------------------


def _exact(before: Exact, after: Exact, both: set[Subject]) -> Iterator[Change | None]:
    """Every exact figure of the subjects in ``both``, over the repeats that both have: its change, if any.

    A digest is told only where no other figure of its run differs: that one says more.
    """
    for subject in sorted(both):
        old, new = before.get(subject, {}), after.get(subject, {})
        common = min(_repeats(old), _repeats(new))
        told = {
            metric: _difference(subject, metric, old.get(metric, {}), new.get(metric, {}), common)
            for metric in sorted({*old, *new})
        }
        plain = any(change is not None and metric not in DIGESTS for metric, change in told.items())
        for metric, change in told.items():
            yield None if plain and metric in DIGESTS else change


def _repeats(figures: dict[str, dict[int, Value]]) -> int:
    """How many runs there were."""
    return 1 + max((repeat for values in figures.values() for repeat in values), default=-1)


def _difference(
    subject: Subject, metric: str, old: dict[int, Value], new: dict[int, Value], repeats: int
) -> Change | None:
    """One exact figure: the sums of its numbers over all repeats, or the first repeat where it is no number."""
    pairs = [(old.get(repeat), new.get(repeat)) for repeat in range(repeats)]
    differ = [pair for pair in pairs if pair[0] != pair[1]]
    if not differ:
        return None
    numbers = [(first, second) for first, second in pairs if isinstance(first, float) and isinstance(second, float)]
    if len(numbers) < len(pairs):
        return Change(*subject, metric, CHANGED, *differ[0])
    totals = sum(first for first, _ in numbers), sum(second for _, second in numbers)
    return Change(*subject, metric, _direction(metric, *totals), *totals)


def _direction(metric: str, old: float, new: float) -> str:
    better = metric_of(metric).better
    if old == new or better not in (LESS, MORE):
        return CHANGED
    return BETTER if (new < old) == (better == LESS) else WORSE


# -- noisy -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pair:
    """The samples of one noisy figure that both sides have, paired."""

    stage: str
    subject: str
    metric: str
    before: np.ndarray
    after: np.ndarray
    units: np.ndarray


def _noisy(before: Samples, after: Samples, both: set[Subject]) -> Iterator[_Pair]:
    for (stage, subject, metric), old in sorted(before.items()):
        new = after.get((stage, subject, metric), {})
        keys = [key for key in sorted(old) if key in new] if (stage, subject) in both else []
        if keys:
            places = {unit: place for place, unit in enumerate(dict.fromkeys(key[:2] for key in keys))}
            first, second = (np.array([side[key] for key in keys]) for side in (old, new))
            yield _Pair(stage, subject, metric, first, second, np.array([places[key[:2]] for key in keys]))


def _gone(before: Samples, after: Samples, both: set[Subject]) -> Iterator[Change]:
    """Noisy figures that the subjects in ``both`` do not have any more: nothing is left to show that they are fine."""
    for (stage, subject, metric), old in sorted(before.items()):
        if old and (stage, subject) in both and not after.get((stage, subject, metric)):
            yield Change(stage, subject, metric, CHANGED, float(np.mean(list(old.values()))))


def _judged(pair: _Pair, family: int, minimum: dict[str, float]) -> Change | None:
    """The change that a pair of samples shows beyond noise, if any."""
    units = len(np.unique(pair.units))
    if units < FEWEST or not pair.before.mean() > 0:
        return None
    if (pair.before == pair.after).all():
        return None
    metric = METRICS[pair.metric]
    least = minimum.get(pair.metric, metric.minimum or 0.0)
    ratio = widened(paired_ratio(pair.before, pair.after, pair.units), units, family)
    if abs(ratio.value - 1) <= least or ratio.low <= 1 <= ratio.high:
        return None
    old, new = float(pair.before.mean()), float(pair.after.mean())
    return Change(
        pair.stage, pair.subject, pair.metric, _direction(pair.metric, old, new), old, new, ratio, units
    )  # fmt: skip


def widened(ratio: Interval, units: int, family: int) -> Interval:
    """A 95 % interval over ``units`` as one of ``family`` that hold together with 95 %."""
    stretch = student(1 - ALPHA / 2 / max(1, family), units - 1) / student(1 - ALPHA / 2, units - 1)
    low, high = stretch * (ratio.value - ratio.low), stretch * (ratio.high - ratio.value)
    return Interval(ratio.value - low, ratio.value, ratio.value + high)


@functools.lru_cache(maxsize=256)
def student(quantile: float, freedom: int) -> float:
    """A quantile of Student's t: with t = sqrt(freedom) tan(a) the angle a has the density cos(a)^(freedom - 1)."""
    freedom = min(freedom, 10_000)  # beyond it is the normal curve
    angles = np.linspace(0.0, math.pi / 2, 200_001)  # from the far tail, where the quantiles of a family lie
    density = np.sin(angles) ** (freedom - 1)
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    angle = float(np.interp((1 - quantile) * 2, mass / mass[-1], angles))
    return math.sqrt(freedom) / math.tan(angle)
