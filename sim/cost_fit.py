"""A cost profile from a file of measured steps: CSV or JSON with ``batch``, ``prefill_tokens`` and ``ms``."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from scenarios.errors import InputError, quote, reason_of
from sim.cost import HOST_NS, PREFILL_NS_PER_TOKEN, CostProfile, batch_ns, ns_from_ms

COLUMNS = ("batch", "prefill_tokens", "ms")


class MeasuredStep(NamedTuple):
    """One measured step: generation rows, context tokens, device time in milliseconds."""

    batch: int
    prefill_tokens: int
    ms: float


def load_profile(path: Path) -> CostProfile:
    """Fit the profile of a ``.csv`` (header ``batch,prefill_tokens,ms``) or ``.json`` (list of objects) file.

    Raises InputError with one line that names the file and the row or entry at fault.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"expected a readable file of measured steps, found: {reason_of(error)}"
        raise InputError(str(path), 0, "", problem) from error
    steps = _json_steps(path, text) if path.suffix == ".json" else _csv_steps(path, text)
    try:
        return fit(path.stem, steps, source=f"fitted from {path.name}")
    except ValueError as error:
        raise InputError(str(path), 0, "", str(error)) from error


def fit(name: str, steps: list[MeasuredStep], source: str, host_ns: int = HOST_NS) -> CostProfile:
    """Fit ``steps``: the median time of each batch without prefill, made monotone; then the price of a prefill token.

    The batch curve pools neighbours that would fall (isotonic regression, each batch weighted by its steps). The
    prefill price is the least-squares slope through zero of what steps with context tokens cost above the curve; a
    file without such steps keeps the default price. Raises ValueError if no curve or a negative price comes out.
    """
    by_batch: dict[int, list[float]] = {}
    for step in steps:
        if step.prefill_tokens == 0:
            by_batch.setdefault(step.batch, []).append(step.ms)
    by_batch.pop(0, None)
    if not by_batch:
        raise ValueError("expected a step with batch >= 1 and prefill_tokens = 0 at least")
    batches = sorted(by_batch)
    times = non_decreasing([median(by_batch[batch]) for batch in batches], [len(by_batch[batch]) for batch in batches])
    points = tuple((batch, ns_from_ms(time)) for batch, time in zip(batches, times, strict=True))
    mixed = [step for step in steps if step.prefill_tokens > 0]
    if not mixed:
        return CostProfile(name, points, source, PREFILL_NS_PER_TOKEN, host_ns)
    above = sum((ns_from_ms(step.ms) - batch_ns(points, step.batch)) * step.prefill_tokens for step in mixed)
    slope = round(above / sum(step.prefill_tokens**2 for step in mixed))
    if slope < 0:
        raise ValueError("steps with prefill tokens are cheaper than steps without: no price of a prefill token fits")
    return CostProfile(name, points, source, slope, host_ns)


def non_decreasing(values: list[float], weights: list[int]) -> list[float]:
    """Nearest non-decreasing sequence in weighted least squares (pool adjacent violators)."""
    pools: list[tuple[float, int, int]] = []  # mean, weight, members
    for value, weight in zip(values, weights, strict=True):
        members = 1
        while pools and pools[-1][0] > value:
            mean, other, count = pools.pop()
            value = (mean * other + value * weight) / (other + weight)
            weight += other
            members += count
        pools.append((value, weight, members))
    return [mean for mean, _, members in pools for _ in range(members)]


def _csv_steps(path: Path, text: str) -> list[MeasuredStep]:
    reader = csv.DictReader(text.splitlines())
    if set(reader.fieldnames or ()) != set(COLUMNS):
        raise InputError(str(path), 1, "", f"expected the header {','.join(COLUMNS)}, found {quote(reader.fieldnames)}")
    return [_step(path, reader.line_num, "", row) for row in reader]


def _json_steps(path: Path, text: str) -> list[MeasuredStep]:
    try:
        entries = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(str(path), error.lineno, "", f"expected JSON, found {error.msg}") from error
    if not isinstance(entries, list):
        raise InputError(str(path), 1, "", f"expected a list of objects with {', '.join(COLUMNS)}")
    return [_step(path, 0, f"[{index}]", entry) for index, entry in enumerate(entries)]


def _step(path: Path, line: int, field: str, entry: Any) -> MeasuredStep:
    """The step in ``entry``, a mapping of the three columns that stands at ``line`` or ``field`` of the file."""
    if not isinstance(entry, dict) or set(entry) != set(COLUMNS):
        raise InputError(str(path), line, field, f"expected exactly {', '.join(COLUMNS)}, found {quote(entry)}")
    try:
        step = MeasuredStep(_whole(entry["batch"]), _whole(entry["prefill_tokens"]), float(entry["ms"]))
        if step.batch < 0 or step.prefill_tokens < 0 or not math.isfinite(step.ms) or step.ms <= 0:
            raise ValueError(entry)
    except (TypeError, ValueError) as error:
        expected = "expected whole numbers from 0 and a time in ms above 0"
        raise InputError(str(path), line, field, f"{expected}, found {quote(entry)}") from error
    return step


def _whole(value: Any) -> int:
    """``value`` as a whole number; 4.7 and true are none, and ValueError says so."""
    if isinstance(value, str):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(value)
    return value
