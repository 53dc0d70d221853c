"""The catalogues: scenarios, builds, faults, invariants, each as rows of plain values that start with a name."""

from __future__ import annotations

import sys
from typing import Any

from model.builds import Build
from model.faults import FAULTS
from model.invariants import INVARIANTS
from reports import terminal
from reports.document import dump
from scenarios import catalog
from scenarios.names import FAULT_PREFIX as FAULT_PREFIX
from scenarios.names import unknown_name as unknown_name
from sim import rulespec

Row = dict[str, Any]


def find_build(name: str) -> Build:
    """The build that ``name`` means (see :func:`sim.rulespec.find`); :class:`InputError` that lists the known ones."""
    return rulespec.find(name)


def fault_rows() -> list[Row]:
    """One row a fault: the rule it replaces, the report behind it, and the scenario that shows it.

    ``first`` is the law that must fire before any other; ``fires`` lists it and those that may follow.
    """
    return [
        {
            "name": fault.name,
            "rule": fault.rule,
            "base": fault.base,
            "fires": list(fault.fires),
            "first": fault.fires[0],
            "scenario": fault.scenario,
            "looks_like": fault.looks_like,
            "sources": list(fault.sources),
        }
        for fault in FAULTS.values()
    ]


def invariant_rows() -> list[Row]:
    """One row a law: its sentence, where it is checked, and the faults that show that it can fail."""
    return [
        {
            "name": law.code,
            "sentence": law.sentence,
            "checked": law.checked,
            "faults": [fault.name for fault in FAULTS.values() if law.code in fault.fires],
        }
        for law in INVARIANTS.values()
    ]


def scenario_rows() -> list[Row]:
    """One row a scenario that comes with kvtwin."""
    return [dict(entry.as_dict()) for entry in catalog.entries()]


def show(rows: list[Row], json: bool, columns: dict[str, str]) -> None:
    """Print a catalogue; ``columns`` maps keys to the headings of the table."""
    if json:
        sys.stdout.write(dump(rows))
    else:
        terminal.show_rows(terminal.console(), rows, columns)


def show_faults(json: bool) -> None:
    """Print the faults: the law that must fire first, and those that may follow it."""
    columns = {
        "name": "fault",
        "rule": "wrong rule",
        "base": "in build",
        "first": "fires first",
        "follow": "may follow",
        "scenario": "scenario",
        "looks_like": "looks like",
    }
    rows = fault_rows()
    show(rows if json else [row | {"follow": row["fires"][1:]} for row in rows], json, columns)
