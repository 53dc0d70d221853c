"""What all benchmarks share: the clock, the margin over a target, and the assertion that a target is met."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pytest_benchmark.fixture import BenchmarkFixture

MARGIN = 1.5  # the same command varies by 30 to 40 % on a machine that does other work
CLOCK = time.process_time  # processor time of this process: what others do on the machine is not counted
US = 1e-6
MS = 1e-3


def reference_loop() -> float:
    """Seconds of a fixed loop of plain Python, best of five: how fast this machine is just now."""
    best = float("inf")
    for _ in range(5):
        started, total = CLOCK(), 0
        for number in range(200_000):
            total += number & 7
        best = min(best, CLOCK() - started)
    return best


def best_of(
    benchmark: BenchmarkFixture,
    function: Callable[..., Any],
    *,
    rounds: int,
    target_s: float,
    parts: int = 1,
    setup: Callable[[], Any] | None = None,
) -> Any:
    """Run ``function`` on what ``setup`` returns and hold its best round to ``target_s`` for each of ``parts`` parts.

    Returns what the last round returned.
    """
    result = benchmark.pedantic(function, setup=setup, rounds=rounds, iterations=1)
    assert benchmark.stats is not None, "the limit needs --benchmark-enable"
    each = benchmark.stats["min"] / parts
    loop = reference_loop()
    figures = {
        "target_us": target_s / US,
        "best_us": round(each / US, 2),
        "parts": parts,
        "loop_ms": round(loop / MS, 2),
    }
    benchmark.extra_info.update(figures)
    limit = target_s * MARGIN
    assert each <= limit, (
        f"{each / US:.1f} us, the target is {target_s / US:.1f} us and its margin {limit / US:.1f} us"
        f" (reference loop {loop / MS:.1f} ms)"
    )
    return result
