"""A run in numbers: latencies under AIPerf's metric names, and its engine-neutral speculation record.

Times are milliseconds, rates per second of simulated time. Everything is computed from integer nanoseconds in the
order of request numbers, so one scenario, seed and build always gives the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sim.clock import Clock
from sim.cost import NS_PER_MS, NS_PER_S
from sim.ticket import RequestTiming

PERCENTILES = (50, 75, 90, 95, 99)


def distribution(values: Iterable[float]) -> dict[str, float | int]:
    """count, mean, min, max, p50 to p99 (linear interpolation) and std (population); count alone without ``values``."""
    data = np.fromiter(values, dtype=np.float64)
    if not len(data):
        return {"count": 0}
    found: dict[str, float | int] = {
        "count": len(data),
        "mean": float(data.mean()),
        "min": float(data.min()),
        "max": float(data.max()),
    }
    ranks = np.percentile(data, PERCENTILES)
    found.update({f"p{rank}": float(value) for rank, value in zip(PERCENTILES, ranks, strict=True)})
    found["std"] = float(data.std())
    return found


def latencies(timings: Sequence[RequestTiming]) -> dict[str, dict[str, float | int]]:
    """Distributions over the requests of ``timings`` that brought tokens.

    ``output_token_throughput_per_user`` is 1 / inter-token latency of each request, in tokens a second.
    """
    served = [timing for timing in timings if timing.arrivals]
    itl = [itl for timing in served if (itl := timing.itl_ns) is not None]
    return {
        "time_to_first_token_ms": distribution((timing.ttft_ns or 0) / NS_PER_MS for timing in served),
        "time_to_second_token_ms": distribution(
            second / NS_PER_MS for timing in served if (second := timing.second_token_ns) is not None
        ),
        "inter_token_latency_ms": distribution(value / NS_PER_MS for value in itl),
        "inter_chunk_latency_ms": distribution(gap / NS_PER_MS for timing in served for gap in timing.gaps_ns),
        "request_latency_ms": distribution((timing.e2e_ns or 0) / NS_PER_MS for timing in served),
        "output_token_throughput_per_user": distribution(NS_PER_S / value for value in itl if value > 0),
        "output_sequence_length": distribution(timing.tokens for timing in served),
    }


def throughput(timings: Sequence[RequestTiming], duration_ns: int) -> dict[str, float]:
    """Output tokens and finished requests per simulated second over ``duration_ns``."""
    seconds = duration_ns / NS_PER_S
    if seconds <= 0:
        return {"output_token_throughput": 0.0, "request_throughput": 0.0}
    return {
        "output_token_throughput": sum(timing.tokens for timing in timings) / seconds,
        "request_throughput": sum(1 for timing in timings if timing.arrivals) / seconds,
    }


def step_times(clocks: Iterable[Clock]) -> list[dict[str, float | int]]:
    """Device time of steps of verify rows alone, by how many rows they had: ``rows``, ``count``, ``p50_ms``,
    ``mean_ms``. Simulated, unless a device's time was taken.
    """
    every = [(np.asarray(clock.steps).reshape(-1, 5), np.asarray(clock.batches).reshape(-1, 2)) for clock in clocks]
    if not every:
        return []
    times, batches = (np.concatenate([pair[place] for pair in every]) for place in (0, 1))
    alone = batches[:, 1] == 0
    rows, took = batches[alone, 0], (times[alone, 3] - times[alone, 2]) / NS_PER_MS
    found = []
    for count in np.unique(rows):
        of_size = took[rows == count]
        median, mean = float(np.median(of_size)), float(of_size.mean())
        found.append({"rows": int(count), "count": len(of_size), "p50_ms": median, "mean_ms": mean})
    return found


def speculation_record(timing: RequestTiming, drafts: int) -> dict[str, Any]:
    """AIPerf's speculation record of one request; ``drafts`` is K. Means are None where nothing was verified."""
    return acceptance_record(timing.request_id, timing.accepted, timing.tokens, drafts)


def acceptance_record(request_id: int, committed: Sequence[int], tokens: int, drafts: int) -> dict[str, Any]:
    """The same from what each verify step of real drafts ``committed``, and the ``tokens`` that came in all."""
    accepted = [count - 1 for count in committed]
    steps, total = len(accepted), sum(accepted)
    return {
        "engine": "kvtwin",
        "request_id": request_id,
        "mean_acceptance_length": 1.0 + total / steps if steps else None,
        "draft_acceptance_rate": total / (steps * drafts) if steps * drafts else None,
        "acceptance_histogram": dict(sorted(Counter(accepted).items())),
        "num_accepted_draft_tokens": total,
        "num_draft_tokens": steps * drafts,
        "num_spec_steps": steps,
        "num_spec_tokens": drafts,
        "completion_tokens": tokens,
        "per_step_accepted": accepted,
        "per_step_drafted": [drafts] * steps,
    }


def speculation(timings: Sequence[RequestTiming], drafts: int) -> dict[str, Any]:
    """Acceptance of a run: mean over requests beside the mean over steps, since step counts differ.

    A step commits its accepted drafts and the bonus token; placeholder steps and the token of the prefill are not
    counted, the last step of a request is counted whole. None where nothing was verified.
    """
    steps = sum(len(timing.accepted) for timing in timings)
    committed = sum(sum(timing.accepted) for timing in timings)
    by_request = [sum(timing.accepted) / len(timing.accepted) for timing in timings if timing.accepted]
    histogram = Counter(count - 1 for timing in timings for count in timing.accepted)
    return {
        "request_mean_acceptance_length": sum(by_request) / len(by_request) if by_request else None,
        "step_weighted_acceptance_length": committed / steps if steps else None,
        "accepted_per_verified": committed / (steps * (drafts + 1)) if steps else None,
        "acceptance_histogram": dict(sorted(histogram.items())),
        "num_spec_steps": steps,
        "num_spec_tokens": drafts,
    }


def window_coverage(timings: Sequence[RequestTiming], hits: set[int]) -> dict[str, float | None]:
    """Mean valid share of the drafter's window: at the first verify step of the requests in ``hits``, and overall."""
    known = [timing for timing in timings if timing.covered]
    first = [timing.coverage_first for timing in known if timing.request_id in hits and timing.accepted]
    steps = sum(len(timing.accepted) for timing in known)
    total = sum(timing.coverage_sum for timing in known)
    return {
        "first_step_after_hit": sum(first) / len(first) if first else None,
        "all_steps": total / steps if steps else None,
    }
