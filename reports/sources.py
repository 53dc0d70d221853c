"""From the words of the command line to scenarios: shipped ones by name, files, and trace files of public formats."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from model.faults import FAULTS
from reports.catalogue import FAULT_PREFIX, find_build
from reports.folder import MARK
from scenarios import catalog
from scenarios.errors import InputError
from scenarios.loader import trace_scenario
from scenarios.schema import Scenario
from scenarios.user_rules import base_of


class Source(NamedTuple):
    """A loaded scenario and the words of a command that name it."""

    words: str
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A trace file and how to read it: ``geometry`` is a preset, ``block`` the tokens per hash id, ``limit`` rows."""

    path: Path
    format: str
    geometry: str | None
    block: int | None
    limit: int | None

    def source(self) -> Source:
        """The scenario that serves the trace."""
        options = {"geometry": self.geometry, "block": self.block, "limit": self.limit}
        given = {key: value for key, value in options.items() if value is not None}
        words = ["--trace", str(self.path), "--format", self.format]
        for key, value in given.items():
            words += [f"--{key}", str(value)]
        return Source(shlex.join(words), trace_scenario(self.path, self.format, **given))


def trace_file(
    path: Path | None, format: str | None, geometry: str | None, block: int | None, limit: int | None
) -> TraceFile | None:
    """The trace that the options name, if any; ``None`` stands for an option that was not given.

    :class:`InputError` where only one of path and format is given, or an option that only a trace has without one.
    """
    for option, value in (("--geometry", geometry), ("--block", block), ("--limit", limit)):
        if path is None and value is not None:
            raise usage(f"expected {option} only beside --trace, found it without")
    if (path is None) != (format is None):
        raise usage("expected --trace FILE and --format mooncake, mooncake-delta or aiperf together, found one of them")
    return None if path is None or format is None else TraceFile(path, format, geometry, block, limit)


def load_sources(names: tuple[str, ...], trace: TraceFile | None) -> list[Source]:
    """Load the scenarios of ``names``, or the one that serves ``trace``, with their workloads.

    Whatever is wrong in a file, a line of a trace or a request that can never fit speaks up here, before anything
    runs. Raises :class:`InputError`.
    """
    if names and trace is not None:
        raise usage("expected scenarios or --trace, found both")
    if trace is not None:
        sources = [trace.source()]
    elif names:
        sources = [Source(shlex.quote(name), catalog.load(name)) for name in names]
    else:
        raise usage("expected a scenario or --trace FILE; kvtwin scenarios lists the names")
    for source in sources:
        if source.scenario.workload_spec is not None:
            source.scenario.workload()
    return sources


def files_read(names: tuple[str, ...], trace: TraceFile | None) -> list[Path]:
    """The scenario files among ``names``, and the file of a trace."""
    files = [Path(name) for name in names if Path(name).is_file()]
    return files if trace is None else [*files, trace.path]


def scenario_of_fault(build: str | None) -> tuple[str, ...]:
    """The scenario that shows the fault ``build`` (``fault:NAME``); none for any other build."""
    if build is None or not build.startswith(FAULT_PREFIX):
        return ()
    find_build(build)
    return (FAULTS[base_of(build).removeprefix(FAULT_PREFIX)].scenario,)


def folders_below(out: Path | None, sources: list[Source]) -> list[Path | None]:
    """A folder for each scenario: ``out`` itself for a single one, else one named after each below it."""
    return named_folders(out, [source.scenario.name for source in sources])


def named_folders(out: Path | None, names: list[str]) -> list[Path | None]:
    """:func:`folders_below` for scenarios of these names."""
    if out is None or len(names) == 1:
        return [out] * len(names)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise usage(f"expected scenarios of different names beside --out, found {twice[0]} twice")
    if MARK in names:
        raise usage(f"expected scenarios of other names than {MARK} beside --out, found it")
    return [out / name for name in names]


def usage(problem: str) -> InputError:
    """The error for options that do not go together."""
    return InputError("options", 0, "", problem)
