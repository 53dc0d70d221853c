"""Importers of public trace formats: a file of requests becomes sessions of turns, prompts named by segments."""

from __future__ import annotations

from pathlib import Path

from scenarios.fit import Fit
from scenarios.importers.aiperf import read_aiperf
from scenarios.importers.mooncake import read_mooncake
from scenarios.importers.rows import TraceContext
from scenarios.workload import Workload
from scenarios.workload_schema import TraceSpec

__all__ = ["TraceContext", "read_aiperf", "read_mooncake", "read_trace"]


def read_trace(
    spec: TraceSpec, seed: int, vocabulary: int, fit: Fit, folder: Path, concurrency: int | None
) -> Workload:
    """The workload in the trace file that ``spec`` names; ``InputError`` names the file and the line."""
    context = TraceContext(
        seed=seed,
        vocabulary=vocabulary,
        block=spec.block,
        limit=spec.limit,
        time_scale=spec.time_scale,
        fit=fit.problem,
    )
    path = folder / spec.path
    if spec.format == "aiperf":
        sessions = read_aiperf(path, context)
    else:
        sessions = read_mooncake(path, context, deltas=spec.format == "mooncake-delta")
    return Workload(sessions, concurrency)
