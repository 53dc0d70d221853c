"""``kvtwin drill --blind``: which faults the drivers found without a scenario, how soon, and by which law."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from rich.text import Text

from reports import terminal
from reports.document import INTERRUPTED, dump
from sim.findings import Hunted

SHARE = 0.95  # of the faults that every driver has to find
WORDS = {
    "first": "the law that fires first",
    "follows": "a law that may follow",
    "other": "another law",
    "missed": "missed",
    "crashed": "crashed",
}


def exit_code(rows: Sequence[Hunted], interrupted: bool) -> int:
    """0 if every driver found its share of the faults, 4 if the harness crashed, 130 after Ctrl-C, else 1."""
    if any(row.crash for row in rows):
        return 4
    if interrupted:
        return INTERRUPTED
    return 0 if rows and all(entry["share"] >= SHARE for entry in totals(rows)) else 1


def totals(rows: Sequence[Hunted]) -> list[dict[str, Any]]:
    """One entry a driver: the share of faults that it found, by which laws, and medians.

    A fault that was missed took all of the budget; ``requests`` and ``disturbances`` are those of the shrunk programs.
    """
    entries = []
    for driver in dict.fromkeys(row.driver for row in rows):
        mine = [row for row in rows if row.driver == driver]
        caught = [row for row in mine if row.law]
        entries.append(
            {
                "driver": driver,
                "faults": len(mine),
                "caught": len(caught),
                "share": round(len(caught) / len(mine), 4),
                "median_examples": median(row.examples for row in mine),
                "median_seconds": round(median(row.seconds for row in mine), 3),
                "by_verdict": {verdict: sum(row.verdict == verdict for row in mine) for verdict in WORDS},
                "median_requests": median(row.requests for row in caught) if caught else None,
                "median_disturbances": median(row.disturbances for row in caught) if caught else None,
            }
        )
    return entries


def document(rows: Sequence[Hunted], interrupted: bool) -> dict[str, Any]:
    """The drill as plain values."""
    return {
        "faults": [asdict(row) | {"verdict": row.verdict, "seconds": round(row.seconds, 3)} for row in rows],
        "drivers": totals(rows),
        "interrupted": interrupted,
        "exit_code": exit_code(rows, interrupted),
    }


def show(rows: Sequence[Hunted], interrupted: bool, json: bool) -> None:
    """Print the table and a line for each driver."""
    if json:
        sys.stdout.write(dump(document(rows, interrupted)))
        return
    screen = terminal.console()
    columns = {
        "name": "fault",
        "driver": "driver",
        "examples": "examples",
        "seconds": "seconds",
        "law": "caught by",
        "which": "which is",
        "left": "requests, disturbances",
    }
    terminal.show_rows(screen, [_row(row) for row in rows], columns)
    for entry in totals(rows):
        verdicts = ", ".join(f"{WORDS[name]} {count}" for name, count in entry["by_verdict"].items() if count)
        line = Text.assemble(
            f"{entry['driver']}: caught {entry['caught']} of {entry['faults']} ",
            (f"({entry['share']:.1%})", "green" if entry["share"] >= SHARE else "bold red"),
            f", median {entry['median_examples']:,g} examples: {verdicts}",
        )
        if entry["caught"]:
            left = (entry["median_requests"], entry["median_disturbances"])
            line.append(f"; shrunk to {left[0]:g} requests and {left[1]:g} disturbances in the median")
        terminal.show_lines(screen, line)


def _row(row: Hunted) -> dict[str, str]:
    return {
        "name": row.fault,
        "driver": row.driver,
        "examples": f"{row.examples:,}",
        "seconds": f"{row.seconds:.2f}",
        "law": row.law,
        "which": row.crash or WORDS[row.verdict],
        "left": f"{row.requests}, {row.disturbances}" if row.law else "",
    }
