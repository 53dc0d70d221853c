"""Acceptance lengths and their kin from what verify steps committed (design.md section 8).

AL is tokens committed by verify steps of real drafts / number of these steps, pooled over requests: the last step
counts whole, the token of the prefill and the step of placeholders do not. Timeline ``seed``: the first generation
step verifies placeholders, so that the first one that counts has its anchor at 1. Timeline ``immediate``: drafts follow
the prefill, its anchor lies at 0. The figures are the same functions of both; what differs is :attr:`Steps.real`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.summary import acceptance_record

LENGTHS = (16, 32, 64, 128)  # generated tokens that AL16 .. AL128 look at
SPAN, PERIOD = 64, 24  # an output loops if its last SPAN tokens repeat with a period of at most PERIOD
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Steps:
    """Generation steps, a row each: int64 ``[steps]``, ``real`` bool ``[steps]``, of one request in order of time.

    ``request`` is an index into whatever the caller lists requests in. ``anchor`` is the place of the step's first
    token, the one committed last, among the generated ones: 0 is the token of the prefill. ``committed`` is 1 .. 1 + K,
    the last step whole. Not ``real``: it verified placeholders.
    """

    request: Ints
    anchor: Ints
    committed: Ints
    real: NDArray[np.bool_]

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, bool]]) -> Steps:
        """Steps from ``(request, anchor, committed, real)``."""
        table = np.array(rows, dtype=np.int64).reshape(-1, 4)
        return cls(table[:, 0], table[:, 1], table[:, 2], table[:, 3] > 0)

    @classmethod
    def dense(cls, anchor: Ints, committed: Ints, *, placeholders: int = 0) -> Steps:
        """Steps from arrays ``[requests, steps]``, in which a request that rests commits 0.

        The first ``placeholders`` columns are steps of placeholders: 0 in timeline ``immediate``, 1 in ``seed``.
        """
        request, step = np.nonzero(committed > 0)
        return cls(request, anchor[request, step], committed[request, step], step >= placeholders)

    def counted(self, within: int | None = None) -> Steps:
        """The steps of real drafts, or those of them whose anchor is among the first ``within`` generated tokens."""
        kept = self.real if within is None else self.real & (self.anchor < within)
        return Steps(self.request[kept], self.anchor[kept], self.committed[kept], self.real[kept])

    def of_requests(self, chosen: Sequence[int]) -> Steps:
        """The steps of ``chosen`` requests, which keep their numbers."""
        kept = np.isin(self.request, np.asarray(chosen, dtype=np.int64))
        return Steps(self.request[kept], self.anchor[kept], self.committed[kept], self.real[kept])


@dataclass(frozen=True, slots=True)
class Sums:
    """By request, int64 ``[requests]``: tokens committed by the steps that count, and how many these are.

    A bootstrap over requests draws rows of both.
    """

    committed: Ints
    steps: Ints

    @property
    def pooled(self) -> float | None:
        """AL: sum over sum. None without a step."""
        steps = int(self.steps.sum())
        return int(self.committed.sum()) / steps if steps else None

    @property
    def by_request(self) -> NDArray[np.float64]:
        """AL of each request, NaN where it has no step that counts."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.steps > 0, self.committed / self.steps, np.nan)

    @property
    def request_mean(self) -> float | None:
        """Mean over requests, each of the same weight however many steps it took; None without a step."""
        means = self.by_request[self.steps > 0]
        return float(means.mean()) if len(means) else None


def sums(steps: Steps, requests: int, within: int | None = None) -> Sums:
    """The two sums that acceptance lengths are made of, over the first ``within`` generated tokens or all."""
    counted = steps.counted(within)
    committed = np.zeros(requests, dtype=np.int64)
    np.add.at(committed, counted.request, counted.committed)
    return Sums(committed, np.bincount(counted.request, minlength=requests).astype(np.int64))


def acceptance_length(steps: Steps, within: int | None = None) -> float | None:
    """AL, step-weighted; None where no step of real drafts counts."""
    counted = steps.counted(within)
    return float(counted.committed.mean()) if len(counted.committed) else None


def first_steps(steps: Steps, requests: int) -> Ints:
    """What the first verify step of real drafts of each request committed, int64 ``[requests]``; 0 without one."""
    counted = steps.counted()
    found = np.zeros(requests, dtype=np.int64)
    found[counted.request[::-1]] = counted.committed[::-1]  # the earliest is written last
    return found


def slot_acceptance(steps: Steps, drafts: int, within: int | None = None) -> list[float]:
    """Share of steps whose draft in slot 1 .. ``drafts`` was accepted, with all before it; none without a step."""
    committed = steps.counted(within).committed
    return [float((committed > slot).mean()) for slot in range(1, drafts + 1)] if len(committed) else []


def accept_trace(steps: Steps, request: int) -> list[tuple[int, int]]:
    """Anchor and committed tokens of every step of real drafts of one request: equal for sound reuse and cold runs."""
    counted = steps.of_requests([request]).counted()
    return list(zip(counted.anchor.tolist(), counted.committed.tolist(), strict=True))


def loops(output: Sequence[int], span: int = SPAN, period: int = PERIOD) -> bool:
    """Whether the last ``span`` tokens repeat with a period of at most ``period``; no output shorter than that does."""
    if len(output) < span:
        return False
    tail = np.asarray(output[-span:])
    return any(bool((tail[gap:] == tail[:-gap]).all()) for gap in range(1, min(period, span - 1) + 1))


def looping_share(outputs: Sequence[Sequence[int]]) -> float | None:
    """Share of :func:`loops` among outputs that are long enough; None if none is."""
    told = [loops(output) for output in outputs if len(output) >= SPAN]
    return sum(told) / len(told) if told else None


def histogram(steps: Steps) -> dict[int, int]:
    """Steps of real drafts by accepted drafts."""
    return dict(sorted(Counter((steps.counted().committed - 1).tolist()).items()))


@dataclass(frozen=True, slots=True)
class Measured:
    """What the figures are made of: steps, the outputs and prefilled tokens of each request, in one order.

    ``prefilled`` names each pool and the prompt tokens that ran for it, int64 ``[requests]``. ``ids`` are the requests'
    own numbers.
    """

    steps: Steps
    outputs: tuple[tuple[int, ...], ...]
    prefilled: dict[str, Ints]
    ids: tuple[int, ...]
    drafts: int

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.ids)

    def only(self, chosen: Sequence[int]) -> Measured:
        """The same of the requests at places ``chosen``, in that order."""
        place = np.full(self.requests, -1, dtype=np.int64)
        place[list(chosen)] = np.arange(len(chosen))
        steps = self.steps.of_requests(chosen)
        return Measured(
            replace(steps, request=place[steps.request]),
            tuple(self.outputs[one] for one in chosen),
            {pool: tokens[list(chosen)] for pool, tokens in self.prefilled.items()},
            tuple(self.ids[one] for one in chosen),
            self.drafts,
        )

    def records(self) -> list[dict[str, Any]]:
        """AIPerf's acceptance record of every request."""
        counted = self.steps.counted()
        return [
            acceptance_record(number, counted.committed[counted.request == place].tolist(), len(output), self.drafts)
            for place, (number, output) in enumerate(zip(self.ids, self.outputs, strict=True))
        ]

    def table(self) -> dict[str, Any]:
        """Every figure as plain values: pooled (``AL``, ``AL16`` ..) and as a mean over requests beside it."""
        whole = sums(self.steps, self.requests)
        first = first_steps(self.steps, self.requests)
        found: dict[str, Any] = {
            "requests": self.requests,
            "verify_steps": int(whole.steps.sum()),
            "committed_tokens": int(whole.committed.sum()),
            "placeholder_steps": int((~self.steps.real).sum()),
            "AL": _rounded(whole.pooled),
            "AL_request_mean": _rounded(whole.request_mean),
        }
        for length in LENGTHS:
            part = sums(self.steps, self.requests, length)
            found[f"AL{length}"] = _rounded(part.pooled)
            found[f"AL{length}_request_mean"] = _rounded(part.request_mean)
        found["first_step"] = _rounded(float(first[first > 0].mean()) if first.any() else None)
        found["slots"] = [round(share, 4) for share in slot_acceptance(self.steps, self.drafts)]
        found["accepted_histogram"] = histogram(self.steps)
        found["looping_share"] = _rounded(looping_share(self.outputs))
        found["prefilled_tokens"] = {pool: int(tokens.sum()) for pool, tokens in self.prefilled.items()}
        return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
