"""``kvtwin compare``: several builds on each scenario, the files of the comparison, and what is shown of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model.builds import Build
from reports import terminal
from reports.catalogue import find_build
from reports.comparison import Comparison, compare, document, markdown
from reports.document import dump
from reports.folder import check_target, stamp, whole_folder
from reports.sources import TraceFile, folders_below, load_sources, usage
from scenarios.schema import Scenario
from sim.run import run_scenario


@dataclass(frozen=True, slots=True)
class Found:
    """A comparison and the folder that holds its files, if any."""

    comparison: Comparison
    folder: Path | None

    @property
    def picture(self) -> Path | None:
        """The plot."""
        return None if self.folder is None else self.folder / "comparison.png"


def run(
    names: tuple[str, ...],
    trace: TraceFile | None,
    builds: Sequence[str] | None,
    otherwise: Sequence[str],
    check: str,
    out: Path | None,
) -> list[Found]:
    """Run every build on every scenario; ``builds`` defaults to the scenario's own list, and that to ``otherwise``.

    Raises ``InputError`` before anything runs.
    """
    sources = load_sources(names, trace)
    plans: list[tuple[Scenario, list[Build], Path | None]] = []
    for (_, scenario), folder in zip(sources, folders_below(out, sources), strict=True):
        chosen = [find_build(name) for name in builds or scenario.builds or otherwise]
        if len({build.name for build in chosen}) < len(chosen):
            raise usage(f"expected each build once, found {', '.join(build.name for build in chosen)}")
        if folder is not None:
            check_target(folder)
        plans.append((scenario, chosen, folder))
    return [_compare(scenario, chosen, check, folder) for scenario, chosen, folder in plans]


def exit_code_of(found: Sequence[Found]) -> int:
    """The worst of all comparisons."""
    codes = {one.comparison.exit_code for one in found}
    return next((code for code in (1, 3) if code in codes), 0)


def show(found: Sequence[Found], json: bool) -> None:
    """Print the comparisons, and name the pictures."""
    if json:
        documents = [
            document(one.comparison) | {"folder": None if one.folder is None else str(one.folder)} for one in found
        ]
        sys.stdout.write(dump({"comparisons": documents, "exit_code": exit_code_of(found)}))
        return
    out = terminal.console()
    for one in found:
        terminal.show_comparison(out, one.comparison)
        if one.folder is not None:
            out.print(f"  written: {one.picture}, and comparison.md, .csv, .json beside it\n", soft_wrap=True)


def _compare(scenario: Scenario, builds: list[Build], check: str, folder: Path | None) -> Found:
    results = []
    for build in builds:
        with terminal.progress(f"{scenario.name} on {build.name}") as tick:
            result = run_scenario(scenario, build, check=check, progress=tick)
        if result.interrupted:
            raise KeyboardInterrupt  # half a comparison would be read as a whole one
        results.append(result)
    historical = frozenset(build.name for build in builds if not build.correct)
    judged = frozenset({scenario.build, *scenario.builds, *scenario.expect.by_build}) - historical
    comparison = compare(results, historical, judged)
    if folder is not None:
        with whole_folder(folder) as target:
            write_comparison_files(target, comparison)
    return Found(comparison, folder)


def write_comparison_files(folder: Path, comparison: Comparison) -> None:
    """Fill ``folder`` with the comparison as a picture, Markdown, CSV and JSON."""
    from reports.plots import write_comparison  # matplotlib takes half a second to import

    write_comparison(comparison, folder / "comparison.png")
    (folder / "comparison.md").write_text(markdown(comparison), encoding="utf-8")
    comparison.table.to_csv(folder / "comparison.csv", lineterminator="\n")
    (folder / "comparison.json").write_text(dump(document(comparison)), encoding="utf-8")
    stamp(folder, "comparison")
