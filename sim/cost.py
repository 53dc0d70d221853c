"""What one step of the device costs: named profiles, piecewise linear in the batch and affine in prefill tokens.

Times are integer nanoseconds. The points of the built-in profiles are device step times under forced acceptance with
K = 7, as the seeds' tables give them (seed_figures S7). The price of a prefill token and the time the host needs to
prepare a step are in none of those tables: they are inputs of a profile, and the defaults below are assumptions.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import pairwise

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

PREFILL_NS_PER_TOKEN = 12 * NS_PER_US  # an assumption: 98 ms for a chunk of 8,192 tokens
HOST_NS = 500 * NS_PER_US  # an assumption: hidden behind the device under overlap, paid in full without it


def ns_from_ms(milliseconds: float) -> int:
    """Nanoseconds of a time given in milliseconds, rounded to the nearest."""
    return round(milliseconds * NS_PER_MS)


def ns_from_seconds(seconds: float) -> int:
    """Nanoseconds of a time given in seconds, rounded to the nearest."""
    return round(seconds * NS_PER_S)


@dataclass(frozen=True, slots=True)
class CostProfile:
    """Cost of a step with ``rows`` generation rows and ``prefill_tokens`` context tokens.

    ``points`` are measured ``(rows, nanoseconds)`` with rows ascending and times not descending. Between two points
    the time is linear in rows; past the last it keeps the last slope; below the first, down to a step of context rows
    only, it stays at the first point's time, since the weights are read whatever the batch. Each context token adds
    ``prefill_ns_per_token``. ``host_ns`` is the host's time to prepare a step.
    """

    name: str
    points: tuple[tuple[int, int], ...]
    source: str
    prefill_ns_per_token: int = PREFILL_NS_PER_TOKEN
    host_ns: int = HOST_NS

    def __post_init__(self) -> None:
        if not self.points or self.points[0][0] < 1 or self.points[0][1] < 1:
            raise ValueError(f"cost profile {self.name}: needs a point of at least one row and one nanosecond")
        for (rows, time), (next_rows, next_time) in pairwise(self.points):
            if next_rows <= rows or next_time < time:
                raise ValueError(f"cost profile {self.name}: points must rise in rows and never fall in time")
        if self.prefill_ns_per_token < 0 or self.host_ns < 0:
            raise ValueError(f"cost profile {self.name}: a time is negative")

    def step_ns(self, rows: int, prefill_tokens: int) -> int:
        """Device time of one step in nanoseconds; monotone in both arguments."""
        return batch_ns(self.points, rows) + prefill_tokens * self.prefill_ns_per_token

    def with_inputs(self, prefill_us_per_token: float | None = None, host_ms: float | None = None) -> CostProfile:
        """The same curve with another price of a prefill token, or another time of the host."""
        profile = self
        if prefill_us_per_token is not None:
            profile = replace(profile, prefill_ns_per_token=round(prefill_us_per_token * NS_PER_US))
        if host_ms is not None:
            profile = replace(profile, host_ns=ns_from_ms(host_ms))
        return profile


def batch_ns(points: tuple[tuple[int, int], ...], rows: int) -> int:
    """Time of a step of ``rows`` generation rows on the curve through ``points``, in nanoseconds."""
    if rows <= points[0][0] or len(points) == 1:
        return points[0][1]
    right = min(bisect_left(points, (rows, 0)), len(points) - 1)
    (low, low_ns), (high, high_ns) = points[right - 1], points[right]
    return low_ns + (high_ns - low_ns) * (rows - low) // (high - low)


def _measured(name: str, source: str, milliseconds: dict[int, float]) -> CostProfile:
    return CostProfile(name, tuple((rows, ns_from_ms(time)) for rows, time in milliseconds.items()), source)


_TP4_000 = _measured("tp4-000", "seed 000, GB300, TP4, forced AL 2.6, device median", {1: 8.1, 8: 14.4, 64: 28.1})

PROFILES: dict[str, CostProfile] = {
    profile.name: profile
    for profile in (
        replace(_TP4_000, name="default", source=f"the points of tp4-000: {_TP4_000.source}"),
        _TP4_000,
        _measured("tp4-003", "seed 003, GB300, TP4/EP4, forced AL, device median", {4: 14.44, 16: 20.22, 64: 31.03}),
        _measured("tp2-003", "seed 003, GB300, TP2, forced AL, device median", {1: 10.1, 4: 19.5, 8: 23.5, 44: 40.1}),
        CostProfile(
            "flat-50ms", ((1, 50 * NS_PER_MS),), "made up: every step takes 50 ms, prefill and host are free", 0, 0
        ),
    )
}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One measured point against the curve through the other points.

    ``error`` is ``predicted / measured - 1``; ``interpolated`` is False at either end, where a curve must guess.
    """

    rows: int
    measured_ns: int
    predicted_ns: int
    error: float
    interpolated: bool


def leave_one_out(points: tuple[tuple[int, int], ...]) -> list[LeftOut]:
    """Predict each point from the others; needs three points at least, raises ValueError with fewer."""
    if len(points) < 3:
        raise ValueError("leaving a point out needs three points at least")
    found = []
    for index, (rows, measured) in enumerate(points):
        predicted = batch_ns(points[:index] + points[index + 1 :], rows)
        inner = 0 < index < len(points) - 1
        found.append(LeftOut(rows, measured, predicted, predicted / measured - 1.0, inner))
    return found


def affine_error(points: tuple[tuple[int, int], ...]) -> float:
    """Smallest possible worst relative error of any affine function of rows at ``points``.

    The best fit alternates at three points (Chebyshev), and the worst triple decides: with the chord ``c`` between the
    outer two at the middle one, the error is ``|c - y| / (c + y)``.
    """
    worst = 0.0
    for left in range(len(points)):
        for middle in range(left + 1, len(points)):
            for right in range(middle + 1, len(points)):
                (low, low_ns), (rows, time), (high, high_ns) = points[left], points[middle], points[right]
                chord = low_ns + (high_ns - low_ns) * (rows - low) / (high - low)
                worst = max(worst, abs(chord - time) / (chord + time))
    return worst
