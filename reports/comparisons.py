"""``kvtwin compare``: several arms on each scenario, the files of the comparison, and what is shown of it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model.builds import Build
from reports import terminal
from reports.catalogue import find_build
from reports.comparison import Comparison, compare, document
from reports.comparison_files import PAGE, write_comparison_files
from reports.comparison_sources import read_runs, split_names, with_repeats
from reports.document import INTERRUPTED, dump
from reports.evidence import FOLLOWED, Evidence, evidence_of
from reports.folder import Output
from reports.sources import TraceFile, files_read, load_sources, named_folders, usage
from reports.stories import stories_of
from scenarios.expect import Expect
from scenarios.schema import Scenario
from scenarios.user_rules import is_own
from sim.run import run_scenario

STORIES = 300  # of the violations of a run
SEEDS = 1 << 63  # those that a scenario may have


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user asked for. ``names``: scenarios, and folders of runs; ``builds`` defaults to the scenario's own
    list, and that to ``otherwise``; ``repeats`` counts seeds, ``unit`` is what intervals resample.
    """

    names: tuple[str, ...] = ()
    trace: TraceFile | None = None
    builds: tuple[str, ...] | None = None
    otherwise: tuple[str, ...] = ()
    baseline: str | None = None
    repeats: int = 1
    unit: str | None = None
    check: str = "incremental"
    out: Path | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A comparison and the folder that holds its files, if any."""

    comparison: Comparison
    folder: Path | None

    @property
    def page(self) -> Path | None:
        """The HTML page."""
        return None if self.folder is None else self.folder / PAGE


@dataclass(frozen=True, slots=True)
class Plan:
    """One comparison to make: a scenario on builds, beside runs that were read from folders. Either may be empty."""

    name: str
    scenario: Scenario | None
    builds: list[Build]
    read: list[Evidence]
    folder: Path | None


def run(asked: Asked) -> list[Found]:
    """Run every build on every scenario, beside the runs of folders.

    Ctrl-C keeps the builds that are finished and leaves out the rest; before the first it is a ``KeyboardInterrupt``.
    Raises ``InputError`` before anything runs.
    """
    plans = _plans(asked)
    found: list[Found] = []
    sources = [folder.path for folder in split_names(asked.names)[1]] + files_read(asked.names, asked.trace)
    with Output(asked.out, several=len(plans) > 1, sources=sources) as output:
        for plan in plans:
            comparison = _compare(plan, asked)
            if comparison is None:
                break
            if plan.folder is not None:
                write_comparison_files(output.folder(plan.name), comparison)
            found.append(Found(comparison, plan.folder))
            if comparison.interrupted:
                break
    if not found:
        raise KeyboardInterrupt
    return found


def _plans(asked: Asked) -> list[Plan]:
    scenarios, folders = split_names(asked.names)
    read = read_runs(folders, stories=0 if asked.out is None else STORIES)
    sources = load_sources(tuple(scenarios), asked.trace) if scenarios or asked.trace or not folders else []
    if not sources:
        for option, given in (("--builds", asked.builds is not None), ("--repeats", asked.repeats > 1)):
            if given:
                raise usage(f"expected {option} only beside a scenario that is run, found it with folders alone")
    asked_for: list[Scenario | None] = [source.scenario for source in sources]
    names = [source.scenario.name for source in sources]
    only_read = [name for name in read if name not in names]
    names += only_read
    asked_for += [None] * len(only_read)
    plans = []
    for scenario, name, folder in zip(asked_for, names, named_folders(asked.out, names), strict=True):
        builds = [] if scenario is None else _builds(scenario, asked)
        plan = Plan(name, scenario, builds, read.get(name, []), folder)
        _check_labels(plan, asked.baseline)
        plans.append(plan)
    return plans


def _builds(scenario: Scenario, asked: Asked) -> list[Build]:
    chosen = [find_build(name) for name in (asked.builds or scenario.builds or asked.otherwise)]
    if len({build.name for build in chosen}) < len(chosen):
        raise usage(f"expected each build once, found {', '.join(build.name for build in chosen)}")
    if asked.repeats > 1 and scenario.workload_spec is None:
        raise usage(f"expected --repeats only for scenarios with a workload, found the ops of {scenario.name}")
    return chosen


def _check_labels(plan: Plan, baseline: str | None) -> None:
    """Every arm has one name, and the baseline is one of them."""
    labels = [build.name for build in plan.builds] + list(dict.fromkeys(run.arm for run in plan.read))
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise usage(f"expected another label for the folder of {twice} (LABEL=DIR), which {plan.name} runs on as well")
    if baseline is not None and baseline not in labels:
        raise usage(f"expected --baseline to be one of {', '.join(labels)}, found {baseline}")


def exit_code_of(found: Sequence[Found]) -> int:
    """The worst of all comparisons."""
    codes = {one.comparison.exit_code for one in found}
    return next((code for code in (1, INTERRUPTED, 3) if code in codes), 0)


def show(found: Sequence[Found], json: bool) -> None:
    """Print the comparisons; the last lines name their pages."""
    if json:
        documents = [
            document(one.comparison) | {"folder": None if one.folder is None else str(one.folder)} for one in found
        ]
        sys.stdout.write(dump({"comparisons": documents, "exit_code": exit_code_of(found)}))
        return
    out = terminal.console()
    for one in found:
        terminal.show_comparison(out, one.comparison)
    for one in found:
        if one.page is not None:
            out.print(f"  written: {one.page}, and Markdown, JSON, CSV and Parquet beside it", soft_wrap=True)


def _compare(plan: Plan, asked: Asked) -> Comparison | None:
    """The builds that were finished before Ctrl-C, and the runs that were read; ``None`` if there is none of either."""
    made, left_out = _made(plan, asked) if plan.scenario is not None else ([], [])
    runs = with_repeats([*made, *plan.read])
    arms = {run.arm for run in runs}
    if not runs:
        return None
    baseline = asked.baseline if asked.baseline in arms else None
    historical = _historical(dict.fromkeys(run.build for run in runs))
    judged = {run.build for run in plan.read}
    if plan.scenario is not None:
        judged |= {plan.scenario.build, *plan.scenario.builds, *plan.scenario.expect.by_build}
    return compare(runs, historical, judged - set(historical), left_out, baseline, asked.unit)


def _made(plan: Plan, asked: Asked) -> tuple[list[Evidence], list[str]]:
    """Runs of the builds that were finished with all their seeds, and the names of the others.

    Every build has the same seeds, the scenario's own first, so that arms are paired seed by seed.
    """
    scenario = plan.scenario
    assert scenario is not None
    made: list[Evidence] = []
    served = scenario.workload().requests if scenario.workload_spec is not None else 0
    follows = plan.folder is not None and served <= FOLLOWED
    for place, build in enumerate(plan.builds):
        runs: list[Evidence] = []
        try:
            for repeat in range(asked.repeats):
                events = follows and not repeat  # the page tells of the course of the first run
                label = f"{scenario.name}{f', repeat {repeat}' if repeat else ''} on {build.name}"
                with terminal.progress(label) as tick:
                    one = scenario if not repeat else _reseeded(scenario, repeat)
                    result = run_scenario(one, build, check=asked.check, keep_events=events, progress=tick)
                if result.interrupted:
                    raise KeyboardInterrupt
                told = stories_of(result, STORIES)
                runs.append(replace(evidence_of(result), told=told))
        except KeyboardInterrupt:
            return made, [other.name for other in plan.builds[place:]]
        made += runs
    return made, []


def _reseeded(scenario: Scenario, repeat: int) -> Scenario:
    """The scenario with another seed, of which nothing is expected but the laws: its figures are of its own seed."""
    return scenario.replace(seed=(scenario.seed + repeat) % SEEDS, expect=Expect(violations=None))


def _historical(names: Collection[str]) -> Mapping[str, Collection[str]]:
    """The builds that may break laws, and which.

    Of rules of one's own nothing is known: a law that they break is news, as it is on a correct build.
    """
    builds = [find_build(name) for name in names if not is_own(name)]
    return {build.name: build.must_fire for build in builds if not build.correct}
