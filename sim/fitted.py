"""Acceptance fitted from measurements: rates by verify step and draft position, and what is left of them when rows of
the drafter's window are missing.

The file is JSON: ``kind`` :data:`KIND`, ``drafts`` K, ``window`` tokens (``null``: all of the context), ``first_steps``
ascending from 0 and ``rates`` beside them (K numbers each: chance that draft ``j`` is accepted once all before it were,
from that verify step of a request on), ``shares`` ascending up to 1 and ``kept`` beside them (factor on every rate
where that share of the window is valid, newest rows first; linear between), and ``provenance``, of which nothing is
read but printed.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.errors import InputError, quote
from scenarios.jsonfile import load_mapping
from sim.acceptance import BLOCK, SHARES, U64, Acceptance, draw, draws

KIND = "kvtwin fitted acceptance"
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Fitted:
    """What the file holds."""

    drafts: int
    window: int | None
    first_steps: tuple[int, ...]
    rates: tuple[tuple[float, ...], ...]
    shares: tuple[float, ...]
    kept: tuple[float, ...]
    provenance: dict[str, Any] = field(default_factory=dict)

    def scale(self, share: float) -> float:
        """Factor on every rate when ``share`` of the window is valid; constant beyond the ends."""
        return float(np.interp(share, self.shares, self.kept))

    def rates_of(self, step: int) -> tuple[float, ...]:
        """Rates of the verify step ``step``, counted from 0."""
        return self.rates[bisect_right(self.first_steps, step) - 1]

    def expected_length(self, step: int, share: float = 1.0) -> float:
        """Mean tokens that a step commits: 1 + sum over j of the product of the first j rates."""
        return 1.0 + float(np.cumprod(np.minimum(1.0, np.array(self.rates_of(step)) * self.scale(share))).sum())

    def to_json(self) -> str:
        """The file's text."""
        return json.dumps({"kind": KIND, **asdict(self)}, indent=2) + "\n"


class FittedChain(Acceptance):
    """Draws from a :class:`Fitted` model as :class:`sim.acceptance.Chain` does from its rates."""

    mode = "modelled"
    reads_coverage = True

    def __init__(self, model: Fitted, seed: int, source: str) -> None:
        self.model, self.seed, self.source = model, seed, source
        self._thresholds: dict[tuple[int, int], list[int]] = {}  # by bucket and share

    def block(self, request_id: int, key: int, first: int) -> bytes:
        drawn = draws(self.seed, key, first)
        counts = np.empty(BLOCK, dtype=np.uint8)
        bucket = np.searchsorted(self.model.first_steps, np.arange(first, first + BLOCK), side="right") - 1
        for place in np.unique(bucket).tolist():
            own, complete = bucket == place, np.array(self._of(place, SHARES), dtype=U64)
            counts[own] = self.model.drafts + 1 - np.searchsorted(complete, drawn[own], side="right")
        return counts.tobytes()

    def count(self, request_id: int, key: int, step: int, coverage: float) -> int:
        bucket = bisect_right(self.model.first_steps, step) - 1
        return (
            self.model.drafts + 1 - bisect_right(self._of(bucket, round(coverage * SHARES)), draw(self.seed, key, step))
        )

    def describe(self) -> str:
        told = self.model.provenance
        return f"fitted by step and window coverage from {told.get('weights', 'measurements')} ({self.source})"

    def _of(self, bucket: int, share: int) -> list[int]:
        """The chances that at least j drafts are accepted, j = K..1, as 64-bit thresholds, ascending."""
        found = self._thresholds.get((bucket, share))
        if found is None:
            rates = np.array(self.model.rates[bucket]) * self.model.scale(share / SHARES)
            chances = np.cumprod(np.minimum(1.0, rates))[::-1]
            found = self._thresholds[bucket, share] = [min(_MASK, int(chance * 2.0**64)) for chance in chances.tolist()]
        return found


def load_fitted(path: Path) -> Fitted:
    """The model in ``path``; InputError, in one line, for a file that holds none."""
    file = str(path)
    values = load_mapping(path)
    if values.get("kind") != KIND:
        problem = f"expected {KIND!r}, as `kvtwin al --calibrate` writes it, found {quote(values.get('kind'))}"
        raise InputError(file, 0, "kind", problem)
    drafts = _whole(values, "drafts", file)
    window = None if "window" in values and values["window"] is None else _whole(values, "window", file)
    first_steps = tuple(int(step) for step in _numbers(values, "first_steps", file, most=float(1 << 30)))
    shares, kept = (_numbers(values, name, file) for name in ("shares", "kept"))
    rows = values.get("rates")
    if not isinstance(rows, list) or len(rows) != len(first_steps):
        raise InputError(file, 0, "rates", f"expected a list of rates for each of {len(first_steps)} first_steps")
    rates = tuple(_numbers({"rates": row}, "rates", file) for row in rows)
    if any(len(row) != drafts for row in rates):
        raise InputError(file, 0, "rates", f"expected {drafts} rates a row, one for each draft")
    if first_steps[0] or list(first_steps) != sorted(set(first_steps)):
        raise InputError(file, 0, "first_steps", f"expected ascending numbers from 0, found {list(first_steps)}")
    if len(kept) != len(shares) or list(shares) != sorted(set(shares)) or shares[-1] != 1:
        raise InputError(file, 0, "shares", "expected ascending shares up to 1, and a number in kept for each")
    told = values.get("provenance")
    return Fitted(drafts, window, first_steps, rates, shares, kept, told if isinstance(told, dict) else {})


def _whole(values: dict[str, Any], name: str, file: str) -> int:
    found = values.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise InputError(file, 0, name, f"expected a whole number above 0, found {quote(found)}")
    return found


def _numbers(values: dict[str, Any], name: str, file: str, most: float = 1.0) -> tuple[float, ...]:
    found = values.get(name)
    if not isinstance(found, list) or not found or not all(_is_number(one, most) for one in found):
        raise InputError(file, 0, name, f"expected numbers from 0 to {most:g}, found {quote(found)}")
    return tuple(float(one) for one in found)


def _is_number(value: object, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most
