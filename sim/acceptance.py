"""How many tokens a verify step commits: forced counts, or a chain of per-position rates scaled by what is missing.

Every model answers from the counter (seed, request, verify step) alone, through a 64-bit hash: neither the order of
events nor the other requests of a run change a draw. A step is drawn once, by inverse transform, so at equal counters
a drafter that sees more of its window never accepts less.

``mode`` says what an acceptance length out of a run means: ``forced`` figures are inputs, ``modelled`` ones rest on a
stated response to missing context that no GPU has calibrated yet. Neither is measured.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.tokens import mix64, mix64_array, named_seed

U64 = np.uint64
BLOCK = 128  # verify steps drawn at once
SHARES = 1024  # a window coverage is rounded to this many parts, which bounds the table of thresholds
_STEP = 0x9E3779B97F4A7C15  # odd, so that steps of one request never share a counter
_MASK = (1 << 64) - 1


class Acceptance(ABC):
    """Counts of tokens committed by verify steps of real drafts, accepted drafts and the bonus token: 1..K+1.

    A request has its number in the run for schedules, and its ``key`` (``RequestSpec.output_seed``, a hash of the
    scenario's seed, the session's name and the turn) for draws: numbers follow the order of submission, which two
    builds need not share, and a comparison wants the same draws. ``step`` counts verify steps of real drafts from 0.
    """

    mode: str
    reads_coverage = False  # True: ``count`` must be asked where the drafter's window is not complete

    @abstractmethod
    def block(self, request_id: int, key: int, first: int) -> bytes:
        """Counts of steps ``first .. first + BLOCK`` with a complete drafter window, one byte each."""

    def count(self, request_id: int, key: int, step: int, coverage: float) -> int:
        """Count of one step whose drafter saw the share ``coverage`` of its window, 0..1."""
        return self.block(request_id, key, step)[0]

    @abstractmethod
    def describe(self) -> str:
        """One line for reports: the model, its inputs and what they rest on."""


@dataclass(frozen=True, slots=True)
class ForcedSchedule(Acceptance):
    """Forced counts: ``counts`` by request number, ``default`` for the rest; a schedule repeats from its start."""

    default: tuple[int, ...]
    counts: dict[int, tuple[int, ...]]
    mode = "forced"

    def block(self, request_id: int, key: int, first: int) -> bytes:
        schedule = self.counts.get(request_id, self.default)
        offset = first % len(schedule)
        repeats = BLOCK // len(schedule) + 2
        return bytes(schedule * repeats)[offset : offset + BLOCK]

    def describe(self) -> str:
        own = f", {len(self.counts)} requests with their own schedule" if self.counts else ""
        return f"forced counts {list(self.default)}, repeated{own}"


@dataclass(frozen=True, slots=True)
class ForcedLength(Acceptance):
    """Forced mean: the whole part of ``length`` every step, its fraction as one Bernoulli draw a step.

    This is TensorRT-LLM's forced acceptance (its number of accepted drafts is this length minus 1).
    """

    length: float
    seed: int
    mode = "forced"

    def block(self, request_id: int, key: int, first: int) -> bytes:
        whole = int(self.length)
        threshold = U64(min(_MASK, int((self.length - whole) * 2.0**64)))
        return (whole + (draws(self.seed, key, first) < threshold)).astype(np.uint8).tobytes()

    def describe(self) -> str:
        return f"forced acceptance length {self.length:g}"


@dataclass(frozen=True, slots=True)
class Coverage:
    """Response of the per-position rates to missing drafter context: ``rate * (1 - loss * (1 - share**exponent))``.

    Hypothesis until the GPU calibrates it. The exponent follows the trained nano drafter (drafter recipe, AL over the
    first 16 tokens by rows kept before the hit: a quarter of the window wins back two thirds of the loss). The loss
    makes outputs of a few hundred tokens after a bare hit at W = 4096, K = 7, lose about the 9.4 % of seed 000.
    """

    loss: float = 0.085
    exponent: float = 0.3

    def scale(self, share: float) -> float:
        """Factor on every rate when the drafter sees ``share`` of its window; 1 at a complete window, monotone."""
        return 1.0 - self.loss * (1.0 - max(0.0, min(1.0, share)) ** self.exponent)


class Chain(Acceptance):
    """Draft ``j`` is accepted with ``rates[j]`` once all before it were: the counts of one Bernoulli chain.

    With ``response`` the rates shrink with the missing share of the drafter's window; without it they never change.
    """

    mode = "modelled"

    def __init__(self, rates: tuple[float, ...], seed: int, response: Coverage | None = None, source: str = "") -> None:
        self.rates = rates
        self.seed = seed
        self.response = response
        self.source = source or f"rates {', '.join(f'{rate:.3f}' for rate in rates)}"
        self.reads_coverage = response is not None
        self._by_share: dict[int, list[int]] = {}
        self._complete = np.array(self._thresholds(1.0), dtype=U64)

    def block(self, request_id: int, key: int, first: int) -> bytes:
        counts = len(self.rates) + 1 - np.searchsorted(self._complete, draws(self.seed, key, first), side="right")
        return counts.astype(np.uint8).tobytes()

    def count(self, request_id: int, key: int, step: int, coverage: float) -> int:
        share = round(coverage * SHARES)
        thresholds = self._by_share.get(share)
        if thresholds is None:
            scale = 1.0 if self.response is None else self.response.scale(share / SHARES)
            thresholds = self._by_share[share] = self._thresholds(scale)
        return len(thresholds) + 1 - bisect_right(thresholds, draw(self.seed, key, step))

    def expected_length(self, coverage: float = 1.0) -> float:
        """Mean tokens a step commits at ``coverage``: 1 + sum over j of the product of the first j rates."""
        scale = 1.0 if self.response is None else self.response.scale(coverage)
        return 1.0 + sum(self._survival(scale))

    def describe(self) -> str:
        if self.response is None:
            return f"Bernoulli chain, {self.source}"
        effect = f"rate x (1 - {self.response.loss:g} x (1 - coverage^{self.response.exponent:g}))"
        return f"Bernoulli chain by window coverage, {self.source}; {effect}: a hypothesis, not calibrated on a GPU"

    def _survival(self, scale: float) -> list[float]:
        """Probability that at least j drafts are accepted, j = 1..K; not ascending."""
        chances, product = [], 1.0
        for rate in self.rates:
            product *= min(1.0, rate * scale)
            chances.append(product)
        return chances

    def _thresholds(self, scale: float) -> list[int]:
        """The survival as 64-bit thresholds, ascending: a draw below the j-th from the top accepts j drafts."""
        return [min(_MASK, int(chance * 2.0**64)) for chance in reversed(self._survival(scale))]


def draw(seed: int, key: int, step: int) -> int:
    """Uniform 64-bit integer of the counter ``(seed, key, step)``."""
    return mix64((mix64(seed ^ key) + step * _STEP) & _MASK)


def draws(seed: int, key: int, first: int) -> NDArray[np.uint64]:
    """:func:`draw` of steps ``first .. first + BLOCK``, shape ``[BLOCK]``."""
    counters = np.arange(first, first + BLOCK, dtype=U64) * U64(_STEP) + U64(mix64(seed ^ key))
    return mix64_array(counters, counters)


def acceptance_seed(seed: int) -> int:
    """Seed of the draws of a scenario whose seed is ``seed``."""
    return named_seed("acceptance", seed)
