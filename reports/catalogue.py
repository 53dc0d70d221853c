"""The catalogues: scenarios, builds, faults, invariants, each as rows of plain values that start with a name."""

from __future__ import annotations

import sys
from typing import Any

from model.builds import BUILDS, DEFAULT_BUILD, Build
from model.faults import FAULTS, resolve_build
from model.invariants import INVARIANTS
from reports import terminal
from reports.document import dump
from scenarios import catalog
from scenarios.errors import InputError

Row = dict[str, Any]
FAULT_PREFIX = "fault:"


def build_rows() -> list[Row]:
    """One row a build: what it is, where it comes from, and its answer to every rule."""
    return [
        {
            "name": build.name,
            "summary": build.summary,
            "default": build.name == DEFAULT_BUILD,
            "correct": build.correct,
            "must_fire": list(build.must_fire),
            "provenance": build.provenance,
            "rules": build.rules.named(),
        }
        for build in BUILDS.values()
    ]


def find_build(name: str) -> Build:
    """The build that ``name`` means, or the build of ``fault:NAME``; :class:`InputError` that lists the known ones."""
    try:
        return resolve_build(name)
    except KeyError as error:
        is_fault = name.startswith(FAULT_PREFIX)
        known = ", ".join(FAULT_PREFIX + fault for fault in FAULTS) if is_fault else ", ".join([*BUILDS, "fault:NAME"])
        raise InputError("build", 0, "", f"expected one of {known}, found {name!r}") from error


def difference(one: Build, other: Build) -> list[Row]:
    """The rules on which two builds answer differently, each with both answers."""
    left, right = one.rules.named(), other.rules.named()
    return [{"name": rule, one.name: left[rule], other.name: right[rule]} for rule in left if left[rule] != right[rule]]


def fault_rows() -> list[Row]:
    """One row a fault: the rule it replaces, the report behind it, the laws that must fire and where to see it."""
    return [
        {
            "name": fault.name,
            "rule": fault.rule,
            "base": fault.base,
            "fires": list(fault.fires),
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


def show_builds(json: bool) -> None:
    """Print the builds, and below them the matrix of build and rule: only the rules that differ anywhere."""
    rows = build_rows()
    if json:
        sys.stdout.write(dump(rows))
        return
    out = terminal.console()
    terminal.show_rows(
        out,
        [row | {"kind": _kind(row)} for row in rows],
        {"name": "build", "kind": "is", "summary": "what it is", "provenance": "from"},
    )
    rules = [rule for rule in rows[0]["rules"] if len({row["rules"][rule] for row in rows}) > 1]
    matrix = [{"name": rule, **{row["name"]: row["rules"][rule] for row in rows}} for rule in rules]
    terminal.show_rows(out, matrix, {"name": "rule"} | {row["name"]: row["name"] for row in rows})
    same = [rule for rule in rows[0]["rules"] if rule not in rules]
    out.print(f"All builds agree on: {', '.join(same)}.", soft_wrap=True)


def _kind(row: Row) -> str:
    if not row["correct"]:
        return f"historical: {', '.join(row['must_fire'])}"
    return "correct, the default" if row["default"] else "correct"
