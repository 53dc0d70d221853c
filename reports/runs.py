"""``kvtwin run``: from names and files to runs, their folders, and what is shown of them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model.builds import Build
from reports import terminal
from reports.catalogue import find_build
from reports.document import INTERRUPTED, dump, exit_code, run_document
from reports.folder import Output
from reports.sources import TraceFile, files_read, folders_below, load_sources, scenario_of_fault, usage
from scenarios.schema import Scenario
from sim.cacheops import CacheProgram, is_program, load_program
from sim.optrace import Trace, load_trace
from sim.replay import replay_trace
from sim.result import RunResult
from sim.run import run_scenario

ReplayCache = Callable[[CacheProgram, Build, str], RunResult]  # at a level of checks: the fuzzer's room knows how
_OF_THE_CACHE_LAYER = ("name", "build", "seed", "verdict", "exit_code", "violations", "notes", "check", "checked")


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the user asked for: scenarios by name, or one trace file, or one trace of ops.

    ``build`` is ``None`` for each scenario's own; ``events`` keeps the event log for the folder ``out``, ``perfetto``
    adds a trace for the Perfetto UI, which is made from it.
    """

    scenarios: tuple[str, ...] = ()
    build: str | None = None
    check: str = "incremental"
    out: Path | None = None
    trace: TraceFile | None = None
    ops: Path | None = None
    events: bool = True
    perfetto: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """One run to do, of a scenario or of ops: ``source`` are the words of the command that name it."""

    source: str
    what: Scenario | Trace | CacheProgram
    build: Build
    folder: Path | None

    @property
    def name(self) -> str:
        """Name of the scenario that runs, or that the trace was made from."""
        if isinstance(self.what, CacheProgram):
            return "cache layer"
        return self.what.scenario if isinstance(self.what, Trace) else self.what.name


@dataclass(frozen=True, slots=True)
class Done:
    """A finished run, without its events and ops; ``explain`` is the command that tells of its first violation.

    It is empty for a run of the ``cache_layer`` alone, which leaves no folder.
    """

    result: RunResult
    folder: Path | None
    explain: str
    cache_layer: bool = False

    def document(self) -> dict[str, Any]:
        """The run as plain values; one of the cache layer has only what it knows of."""
        document = run_document(self.result)
        if self.cache_layer:
            document = {key: document[key] for key in _OF_THE_CACHE_LAYER}
        return document | {"folder": None if self.folder is None else str(self.folder)}


def run(request: RunRequest, replay_cache: ReplayCache) -> list[Done]:
    """Do every run of ``request`` in order and write its folder; everything is loaded before anything runs.

    ``replay_cache`` applies a program of the cache layer, should ``--ops`` name one.
    Ctrl-C ends the run in progress, which keeps what was found, and leaves out the rest.

    Raises ``InputError``.
    """
    if request.perfetto and (request.out is None or not request.events):
        raise usage("expected --out DIR and no --no-events beside --perfetto, which is made from the event log")
    jobs = _jobs(request)
    runs: list[Done] = []
    sources = files_read(request.scenarios, request.trace) + ([] if request.ops is None else [request.ops])
    with Output(request.out, several=len(jobs) > 1, sources=sources) as output:
        for job in jobs:
            if isinstance(job.what, CacheProgram):
                runs.append(Done(replay_cache(job.what, job.build, request.check), None, "", cache_layer=True))
                continue
            runs.append(_do(job, job.what, request, output))
            if runs[-1].result.interrupted:
                break
    return runs


def exit_code_of(runs: Iterable[Done]) -> int:
    """A broken law or a missed expectation outweighs Ctrl-C, and that a run that checked nothing."""
    codes = {exit_code(done.result) for done in runs}
    return next((code for code in (1, INTERRUPTED, 3) if code in codes), 0)


def show(runs: Sequence[Done], json: bool) -> None:
    """Print the runs: in full where there is one or where something is wrong, a line each where there are several."""
    if json:
        sys.stdout.write(dump({"runs": [done.document() for done in runs], "exit_code": exit_code_of(runs)}))
        return
    out = terminal.console()
    if len(runs) > 1:
        terminal.show_runs(out, [done.result for done in runs])
    for done in runs:
        if done.cache_layer:
            terminal.show_cache_run(out, done.result)
        elif len(runs) == 1 or exit_code(done.result):
            terminal.show_run(out, done.result, done.explain)
        if done.folder is not None:
            out.print(f"  written: {done.folder}", soft_wrap=True)


def _do(job: Job, what: Scenario | Trace, request: RunRequest, output: Output) -> Done:
    with terminal.progress(f"{job.name} on {job.build.name}") as tick:
        ops = job.folder is not None
        events, check = request.events and ops, request.check
        if isinstance(what, Trace):
            result = replay_trace(what, job.build, check=check, keep_events=events, record_ops=ops, progress=tick)
            config, workers = what.config, what.workers
        else:
            result = run_scenario(what, job.build, check=check, keep_events=events, record_ops=ops, progress=tick)
            config, workers = what.engine_config(job.build), what.topology(job.build)
    if job.folder is not None:
        from reports.run_folder import write_run  # pandas takes longer than a short run

        write_run(output.folder(job.name), result, config, workers, request.perfetto)
    return Done(replace(result, logs=[], ops=[]), job.folder, _explain(job))


def _explain(job: Job) -> str:
    """The command that explains the first violation, preceded by the run that leaves a folder to read if none did."""
    if job.folder is not None:
        return f"kvtwin explain {shlex.quote(str(job.folder))} 1"
    folder = shlex.quote(f"runs/{job.name}")
    return f"kvtwin run {job.source} --build {shlex.quote(job.build.name)} --out {folder}; kvtwin explain {folder} 1"


def _jobs(request: RunRequest) -> list[Job]:
    """The runs that ``request`` means, loaded and complete."""
    if request.ops is not None:
        if request.scenarios or request.trace is not None:
            raise usage("expected scenarios, --trace or --ops, found several of them")
        trace = _program(request) if is_program(request.ops) else load_trace(request.ops)
        build = find_build(trace.build if request.build is None else request.build)
        return [Job(f"--ops {shlex.quote(str(request.ops))}", trace, build, request.out)]
    names = request.scenarios
    if not names and request.trace is None:
        names = scenario_of_fault(request.build)
    sources = load_sources(names, request.trace)
    chosen = [source.scenario.build if request.build is None else request.build for source in sources]
    builds = [find_build(name) for name in chosen]
    folders = folders_below(request.out, sources)
    return [Job(*source, build, folder) for source, build, folder in zip(sources, builds, folders, strict=True)]


def _program(request: RunRequest) -> CacheProgram:
    """The program of the cache layer that ``--ops`` names; it has no events, and laws are its only result."""
    if request.out is not None:
        raise usage("expected no --out beside a program of the cache layer, which leaves no folder")
    if request.check == "off":
        raise usage("expected --check incremental or exhaustive for a program of the cache layer, found off")
    assert request.ops is not None
    return load_program(request.ops)
