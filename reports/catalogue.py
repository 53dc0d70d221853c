"""The catalogues: scenarios, builds, faults, invariants, each as rows of plain values that start with a name."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from model.builds import BUILDS, Build
from model.faults import FAULTS, resolve_build
from model.invariants import INVARIANTS
from reports import terminal
from reports.document import dump
from scenarios import catalog
from scenarios.errors import InputError, quote

Row = dict[str, Any]
FAULT_PREFIX = "fault:"


def find_build(name: str) -> Build:
    """The build that ``name`` means, or the build of ``fault:NAME``; :class:`InputError` that lists the known ones."""
    try:
        return resolve_build(name)
    except KeyError as error:
        if name.startswith(FAULT_PREFIX):
            problem = unknown_name("a fault", name.removeprefix(FAULT_PREFIX), FAULTS, "kvtwin faults")
        else:
            problem = unknown_name("a build or fault:NAME", name, BUILDS, "kvtwin builds")
        raise InputError("build", 0, "", problem) from error


def unknown_name(what: str, name: str, known: Iterable[str], listed_by: str) -> str:
    """The problem with a name that is not ``known``: the nearest one, and the command that lists them all."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"expected {what}{hint}, found {quote(name)}; {listed_by} lists the names"


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
