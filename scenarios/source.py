"""Where a workload comes from: sessions in the file, a generator, or a trace file."""

from __future__ import annotations

from pathlib import Path

from scenarios.errors import FieldError
from scenarios.fit import Fit
from scenarios.generate import agentic_workload, groups_workload, layers_workload
from scenarios.generate_branches import branches_workload
from scenarios.importers import read_trace
from scenarios.workload import Workload
from scenarios.workload_build import build_sessions, check_fit
from scenarios.workload_schema import WorkloadSpec


def build_workload(spec: WorkloadSpec, seed: int, vocabulary: int, fit: Fit, folder: Path) -> Workload:
    """The workload of ``spec``; ``FieldError`` or ``InputError`` if a request in it can never be served."""
    if spec.sessions is not None:
        sessions, places = build_sessions(spec, seed, vocabulary)
        workload = Workload(tuple(sessions), spec.concurrency)
        check_fit(workload, fit, places, ())
        return workload
    if spec.trace is not None:
        return read_trace(spec.trace, seed, vocabulary, fit, folder, spec.concurrency)
    if spec.groups is not None:
        workload, field = groups_workload(spec.groups, seed, vocabulary, spec.concurrency), "groups"
    elif spec.agentic is not None:
        workload, field = agentic_workload(spec.agentic, seed, vocabulary, spec.concurrency), "agentic"
    elif spec.layers is not None:
        workload, field = layers_workload(spec.layers, seed, spec.concurrency), "layers"
    elif spec.branches is not None:
        workload, field = branches_workload(spec.branches, seed, vocabulary, spec.concurrency), "branches"
    else:
        raise FieldError(("workload",), "expected a source of sessions, found none")
    check_fit(workload, fit, None, ("workload", field))
    return workload
