"""Fits the model of :mod:`sim.fitted` from verify steps: what share of the window each drafter pass saw, what it gave.

A step of a drafter with rates ``r`` that sees the share ``s`` accepts draft ``j``, once all before it were, with
``r[j] * g(s)``. Rates come from the steps with a complete window, bucket of steps by bucket, drawn towards those of all
buckets where there are few. ``g`` is, for each bin of shares, the factor with which the bin's steps accept as many
drafts as were measured, made monotone (pool adjacent violators): a drafter that sees more does not accept less. It
stands at the mean share of its bin. Where drafts hang together more than their rates say, the most likely factor is
another one; acceptance length is what the model is asked for, so that is what it is held to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.fitted import Fitted

FIRST_STEPS = (0, 1, 2, 4, 8, 16, 32)
EDGES = (0.0, 1 / 64, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1.0)  # a bin holds what is above its lower edge; 0 is its own
PRIOR = 30.0  # trials that the rates of all buckets count as beside a bucket's own
Floats, Ints = NDArray[np.float64], NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Observed:
    """Verify steps, one an entry: ``step`` of its request from 0, ``share`` of the window in 0..1, drafts accepted."""

    step: Ints
    share: Floats
    accepted: Ints

    def joined(self, others: Sequence[Observed]) -> Observed:
        """These and ``others``."""
        parts = [self, *others]
        return Observed(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(self)))

    def __len__(self) -> int:
        return len(self.step)


def fit(observed: Observed, drafts: int, window: int | None, provenance: dict[str, Any] | None = None) -> Fitted:
    """The model that accepts as much as was measured; ValueError without a step that saw its whole window."""
    whole = observed.share >= 1
    if not whole.any():
        raise ValueError("no verify step saw its whole window")
    place = np.searchsorted(FIRST_STEPS, observed.step, side="right") - 1
    overall = _rates(observed.accepted[whole], drafts, None)
    used = [bucket for bucket in range(len(FIRST_STEPS)) if (place == bucket).any()]
    first = tuple(FIRST_STEPS[bucket] for bucket in used)
    rates = [_rates(observed.accepted[whole & (place == bucket)], drafts, overall) for bucket in used]
    row = np.array(rates)[np.searchsorted(used, place)]  # [steps, K]
    shares, kept = _curve(observed, row)
    table = tuple(tuple(round(float(rate), 6) for rate in rates_of) for rates_of in rates)
    return Fitted(drafts, window, first, table, shares, kept, provenance or {})


def _rates(accepted: Ints, drafts: int, prior: Floats | None) -> Floats:
    """Share of the steps that reached draft ``j`` and accepted it, ``[K]``."""
    reached = np.array([(accepted >= slot).sum() for slot in range(drafts)], dtype=np.float64)
    taken = np.array([(accepted > slot).sum() for slot in range(drafts)], dtype=np.float64)
    if prior is None:
        return (taken + 0.5) / (reached + 1)
    return (taken + PRIOR * prior) / (reached + PRIOR)


def _curve(observed: Observed, rates: Floats) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean share of each bin that has steps, and the factor there; 1 at 1."""
    bins = np.searchsorted(EDGES, observed.share, side="left")
    told: list[tuple[float, float, float]] = []  # share, factor, steps
    for one in range(len(EDGES)):
        own = (bins == one) & (observed.share < 1)
        if own.any():
            factor = _factor(observed.accepted[own], rates[own])
            told.append((float(observed.share[own].mean()), factor, float(own.sum())))
    kept = monotone([factor for _, factor, _ in told], [steps for *_, steps in told])
    return (
        (*tuple(round(share, 6) for share, *_ in told), 1.0),
        (*tuple(round(min(1.0, factor), 6) for factor in kept), 1.0),
    )


def _factor(accepted: Ints, rates: Floats) -> float:
    """The factor in [0, 1] on ``rates`` ``[steps, K]`` that gives as many accepted drafts in all as there were.

    Draft ``j`` of a step, from 1, is accepted with ``g^j`` times the product of its first ``j`` rates, so that the sum
    over steps is a polynomial in ``g`` that only rises.
    """
    reached = np.cumprod(rates, axis=1).sum(axis=0)
    powers, wanted = np.arange(1, len(reached) + 1), float(np.minimum(accepted, len(reached)).sum())
    if wanted >= reached.sum():
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if (reached * middle**powers).sum() < wanted else (low, middle)
    return (low + high) / 2


def monotone(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The nearest sequence that never falls, by weighted squares."""
    pools: list[list[float]] = []  # value, weight, how many
    for value, weight in zip(values, weights, strict=True):
        pools.append([value, weight, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            value, weight, count = pools.pop()
            before = pools[-1]
            total = before[1] + weight
            pools[-1] = [(before[0] * before[1] + value * weight) / total, total, before[2] + count]
    return [value for value, _, count in pools for _ in range(int(count))]
