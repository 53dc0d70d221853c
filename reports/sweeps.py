"""``kvtwin sweep``: which grids on which builds, the files of what was found, and what is shown of it."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from rich.text import Text

from model.builds import BUILDS
from reports import terminal
from reports.catalogue import find_build, unknown_name
from reports.document import INTERRUPTED, dump, plural, violation_document
from reports.folder import Output, stamp
from reports.sources import usage
from scenarios.errors import InputError
from sim.sweep.grids import GRIDS
from sim.sweep.run import Finding, Order, Swept, points, sweep, word

STATES = (  # counters worth a line of their own, by what a reader calls them
    "joint_claims",
    "partial_claims",
    "fresh_claims",
    "branch_windows",
    "fallbacks",
    "deferrals",
    "preemptions",
    "refused_admissions",
    "suspensions",
    "skipped_forwards",
    "failed_forwards",
    "cancelled",
    "late_outputs",
    "evicted from target",
    "evicted from draft",
    "host moves",
)


def order(what: str | None, builds: str | None, full: bool, every: int) -> Order:
    """The sweep that the options mean; raises ``InputError`` for an unknown grid or build."""
    grids = _names(what) or list(GRIDS)
    for name in grids:
        if name not in GRIDS:
            raise InputError("what", 0, "", unknown_name("a grid", name, GRIDS, "kvtwin sweep --list"))
    chosen = _names(builds) or [build.name for build in BUILDS.values() if build.correct]
    for kind, names in (("grid", grids), ("build", chosen)):
        if len(set(names)) < len(names):
            raise usage(f"expected each {kind} once, found {', '.join(names)}")
    return Order(tuple(grids), tuple(find_build(name).name for name in chosen), full, every)


def _names(listed: str | None) -> list[str]:
    return [] if listed is None else [name.strip() for name in listed.split(",")]


def run(wanted: Order, workers: int | None, out: Path | None) -> Swept:
    """Sweep with a bar, on every core unless told otherwise, and write the folder ``out``."""
    with Output(out, several=False) as output:
        with terminal.progress("sweep") as tick:
            swept = sweep(wanted, workers or os.cpu_count() or 1, tick)
        if out is not None:
            _write(output.folder("sweep"), swept)
    return swept


def exit_code(swept: Swept) -> int:
    """1 if a law broke, 130 after Ctrl-C, 3 if a grid reached nothing of what it is for, else 0."""
    if swept.findings:
        return 1
    if swept.interrupted:
        return INTERRUPTED
    return 3 if swept.unasked() or not swept.done else 0


def _write(folder: Path, swept: Swept) -> None:
    """``sweep.json`` and, for each finding, a scenario that reproduces it."""
    for number, finding in enumerate(swept.findings, 1):
        (folder / _file(number, finding)).write_text(finding.scenario, encoding="utf-8")
    (folder / "sweep.json").write_text(dump(document(swept)), encoding="utf-8")
    stamp(folder, "sweep")


def _file(number: int, finding: Finding) -> str:
    build = re.sub(r"[^\w.-]", "-", finding.build)
    return f"{number:02d}-{finding.grid}-{build}-{finding.violation.code}.yaml"


# -- as JSON -----------------------------------------------------------------------------------------------------------


def document(swept: Swept) -> dict[str, Any]:
    """The sweep as plain values; ``broken`` counts combinations by the law that broke first."""
    return {
        "full": swept.order.full,
        "every": swept.order.every,
        "builds": list(swept.order.builds),
        "planned": swept.planned,
        "done": swept.done,
        "interrupted": swept.interrupted,
        "exit_code": exit_code(swept),
        "grids": [_grid_document(swept, name) for name in swept.order.grids],
        "findings": [
            {
                "grid": finding.grid,
                "build": finding.build,
                "point": {axis: _plain(value) for axis, value in finding.point.items()},
                "violation": violation_document(finding.violation),
                "scenario": finding.scenario,
            }
            for finding in swept.findings
        ],
    }


def _grid_document(swept: Swept, name: str) -> dict[str, Any]:
    tallies = [tally for tally in swept.tallies if tally.grid == name]
    return {
        **_axes_document(name, swept.order),
        "done": sum(tally.cases for tally in tallies),
        "laws_evaluated": sum(tally.checks for tally in tallies),
        "reached": dict(sorted(swept.reached(name).items())),
        "nothing_checked": name in swept.unasked(),
        "by_build": {tally.build: {"done": tally.cases, "broken": dict(tally.broken)} for tally in tallies},
    }


def _axes_document(name: str, wanted: Order) -> dict[str, Any]:
    grid = GRIDS[name]
    axes = grid.full if wanted.full else grid.fast
    return {
        "name": name,
        "question": grid.question,
        "axes": {axis: [_plain(value) for value in values] for axis, values in axes.items()},
        "reaches": list(grid.reaches),
        "combinations": len(points(name, wanted.full, wanted.every)),
    }


def _plain(value: Any) -> Any:
    value = getattr(value, "value", value)
    return list(value) if isinstance(value, tuple) else value


# -- on a terminal -----------------------------------------------------------------------------------------------------


def show_grids(wanted: Order, json: bool) -> None:
    """List the grids: what each asks, and how many combinations its axes have."""
    rows = [_axes_document(name, wanted) for name in wanted.grids]
    if json:
        sys.stdout.write(dump(rows))
        return
    for row in rows:
        axes = ", ".join(f"{axis} ({len(values)})" for axis, values in row["axes"].items())
        lines = [row["question"], f"axes: {axes}"]
        count = plural(row["combinations"], "combination")
        terminal.show_paragraphs(terminal.console(), [(row["name"], f"{count} on each build", lines)])


def show(swept: Swept, json: bool, out: Path | None) -> None:
    """Print the sweep: a line a grid, the states that it reached in all, and what broke."""
    if json:
        sys.stdout.write(dump(document(swept)))
        return
    screen = terminal.console()
    columns = {"name": "grid", "done": "done", "laws": "laws evaluated", "reached": "reached", "broken": "broken"}
    terminal.show_rows(screen, [_row(swept, name) for name in swept.order.grids], columns)
    total: Counter[str] = Counter()
    for name in swept.order.grids:
        total += swept.reached(name)
    states = ", ".join(f"{_state(name)} {total[name]:,}" for name in STATES if total[name])
    terminal.show_lines(screen, f"Reached in all: {states or 'nothing'}.")
    unseen = [_state(name) for name in STATES if not total[name]]
    if unseen:
        terminal.show_lines(screen, f"Not reached: {', '.join(unseen)}.")
    _show_verdict(swept)
    if swept.findings:
        _show_findings(swept, out)


def _show_verdict(swept: Swept) -> None:
    builds = plural(len(swept.order.builds), "build")
    done = f"{swept.done:,} of {plural(swept.planned, 'combination')} on {builds}"
    broken = sum(sum(tally.broken.values()) for tally in swept.tallies)
    if swept.findings:
        verdict = Text(f"a law broke in {broken:,}", "bold red")
    elif swept.interrupted:
        verdict = Text("interrupted; no law broke until then", "yellow")
    elif exit_code(swept) == 3:
        names = ", ".join(swept.unasked()) or "no combination ran"
        verdict = Text(f"nothing checked ({names})", "yellow")
    else:
        verdict = Text("no law broke", "green")
    terminal.show_lines(terminal.console(), Text.assemble(f"{done}: ", verdict))


def _show_findings(swept: Swept, out: Path | None) -> None:
    rows = [
        {
            "name": f"{number}",
            "law": finding.violation.code,
            "build": finding.build,
            "grid": finding.grid,
            "at": ", ".join(f"{axis} {word(value)}" for axis, value in finding.point.items()),
            "what": finding.violation.message,
        }
        for number, finding in enumerate(swept.findings, 1)
    ]
    columns = {"name": "#", "law": "law", "build": "build", "grid": "grid", "at": "at", "what": "what is wrong"}
    screen = terminal.console()
    terminal.show_rows(screen, rows, columns)
    if out is None:
        terminal.show_lines(screen, "  --out DIR keeps a scenario of each that kvtwin run repeats.")
    else:
        first = out / _file(1, swept.findings[0])
        terminal.show_lines(screen, f"  written: {out}; kvtwin run {first} repeats the first")


def _row(swept: Swept, name: str) -> dict[str, Any]:
    tallies = [tally for tally in swept.tallies if tally.grid == name]
    reached = swept.reached(name)
    broken: Counter[str] = Counter()
    for tally in tallies:
        broken += tally.broken
    return {
        "name": name,
        "done": f"{sum(tally.cases for tally in tallies):,}",
        "laws": f"{sum(tally.checks for tally in tallies):,}",
        "reached": ", ".join(f"{_state(what)} {reached[what]:,}" for what in GRIDS[name].reaches),
        "broken": ", ".join(f"{code} {count:,}" for code, count in broken.items()),
    }


def _state(counter: str) -> str:
    return counter.replace("_", " ")
