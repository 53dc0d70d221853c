"""``kvtwin compare``: several builds on each scenario, the files of the comparison, and what is shown of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model.builds import Build
from reports import terminal
from reports.catalogue import find_build
from reports.comparison import Comparison, compare, document
from reports.comparison_files import PAGE, write_comparison_files
from reports.course import course_of
from reports.document import INTERRUPTED, dump
from reports.evidence import Evidence, evidence_of
from reports.folder import Output
from reports.sources import TraceFile, folders_below, load_sources, usage
from reports.stories import stories_of
from scenarios.schema import Scenario
from scenarios.user_rules import is_own
from sim.run import run_scenario

STORIES = 300  # of the violations of a run


@dataclass(frozen=True, slots=True)
class Found:
    """A comparison and the folder that holds its files, if any."""

    comparison: Comparison
    folder: Path | None

    @property
    def page(self) -> Path | None:
        """The HTML page."""
        return None if self.folder is None else self.folder / PAGE


def run(
    names: tuple[str, ...],
    trace: TraceFile | None,
    builds: Sequence[str] | None,
    otherwise: Sequence[str],
    check: str,
    out: Path | None,
) -> list[Found]:
    """Run every build on every scenario; ``builds`` defaults to the scenario's own list, and that to ``otherwise``.

    Ctrl-C keeps the builds that are finished and leaves out the rest; before the first it is a ``KeyboardInterrupt``.
    Raises ``InputError`` before anything runs.
    """
    sources = load_sources(names, trace)
    plans: list[tuple[Scenario, list[Build], Path | None]] = []
    for (_, scenario), folder in zip(sources, folders_below(out, sources), strict=True):
        names_of_builds = (scenario.builds or otherwise) if builds is None else builds
        chosen = [find_build(name) for name in names_of_builds]
        if len({build.name for build in chosen}) < len(chosen):
            raise usage(f"expected each build once, found {', '.join(build.name for build in chosen)}")
        plans.append((scenario, chosen, folder))
    found: list[Found] = []
    with Output(out, several=len(plans) > 1) as output:
        for scenario, chosen, folder in plans:
            comparison = _compare(scenario, chosen, check, events=folder is not None)
            if comparison is None:
                break
            if folder is not None:
                write_comparison_files(output.folder(scenario.name), comparison)
            found.append(Found(comparison, folder))
            if comparison.interrupted:
                break
    if not found:
        raise KeyboardInterrupt
    return found


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


def _compare(scenario: Scenario, builds: list[Build], check: str, events: bool) -> Comparison | None:
    """The builds that were finished before Ctrl-C, side by side; ``None`` if there is none.

    ``events``: with what a page tells of the course of each.
    """
    results: list[Evidence] = []
    try:
        for build in builds:
            with terminal.progress(f"{scenario.name} on {build.name}") as tick:
                result = run_scenario(scenario, build, check=check, keep_events=events, progress=tick)
            if result.interrupted:
                break
            results.append(replace(evidence_of(result), course=course_of(result), told=stories_of(result, STORIES)))
    except KeyboardInterrupt:  # between two runs
        pass
    if not results:
        return None
    # Of rules of one's own nothing is known: a law that they break is news, as it is on a correct build.
    historical = {build.name: build.must_fire for build in builds if not (build.correct or is_own(build.name))}
    judged = frozenset({scenario.build, *scenario.builds, *scenario.expect.by_build}) - frozenset(historical)
    return compare(results, historical, judged, left_out=[build.name for build in builds[len(results) :]])
