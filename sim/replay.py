"""A trace of ops applied again: the same decisions, compared by digest with the run that wrote it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from model.builds import Build
from model.cluster import Cluster
from model.ops import World
from scenarios.errors import InputError
from scenarios.expect import Expectation
from sim.gathering import gather
from sim.optrace import Trace, load_trace
from sim.result import RunResult
from sim.rulespec import find
from sim.run import Opened, Progress, apply_ops

_HEX = 64  # characters of a digest; anything else is a word that says why there is none


def run_trace(path: Path) -> RunResult:
    """Apply the trace at ``path`` on the build and at the check level that wrote it.

    Raises InputError for a trace that cannot be read and for a build that is not known.
    """
    trace = load_trace(path)
    try:
        build = find(trace.build)
    except InputError as error:
        raise InputError(str(path), 1, "build", error.problem) from error
    return replay_trace(trace, build, check=trace.check)


def replay_trace(
    trace: Trace,
    build: Build,
    *,
    check: str = "incremental",
    keep_events: bool = False,
    record_ops: bool = False,
    progress: Progress | None = None,
    opened: Opened | None = None,
) -> RunResult:
    """Apply the ops of ``trace`` to a new world, which ``opened`` sees first.

    On the build that wrote it a digest that differs is a missed line.
    """
    try:
        world = _open(trace, build, check=check, keep_events=keep_events, record_ops=record_ops)
    except (ValueError, KeyError) as error:  # each field is well formed, but they do not go together on this build
        problem = f"expected a configuration that {build.name} can run, found: {error}"
        raise InputError(trace.file or trace.scenario, 1 if trace.file else 0, "config", problem) from error
    if opened is not None:
        opened(world)
    course = apply_ops(world, trace.ops, progress)
    result = gather(world, trace.scenario, trace.seed, course, Expectation(violations=None))
    if build.name != trace.build or result.interrupted:
        return result
    pairs = (
        ("decision digest", trace.decision_digest, result.decision_digest),
        ("memory digest", trace.memory_digest, result.memory_digest),
    )
    differing = [
        f"{name}: expected {before}, found {after}"
        for name, before, after in pairs
        if before != after and len(before) == len(after) == _HEX
    ]
    return replace(result, missed=[*result.missed, *differing])


def _open(trace: Trace, build: Build, *, check: str, keep_events: bool, record_ops: bool) -> World | Cluster:
    """The worker that wrote ``trace``, or the several that did, before their first op."""
    if trace.workers is None:
        return World(trace.config, build, check=check, keep_events=keep_events, record_ops=record_ops)
    return trace.workers.open(build, check=check, keep_events=keep_events, record_ops=record_ops)
