"""The catalogues: scenarios, builds, faults, invariants, each as rows of plain values that start with a name."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from model.builds import BUILDS, DEFAULT_BUILD, Build
from model.faults import FAULTS, resolve_build
from model.invariants import INVARIANTS
from reports import terminal
from reports.document import dump
from scenarios import catalog
from scenarios.errors import InputError, quote

Row = dict[str, Any]
FAULT_PREFIX = "fault:"


def build_rows() -> list[Row]:
    """One row a build: what it is, where it comes from, and its answer to every rule."""
    return [build_row(build) for build in BUILDS.values()]


def build_row(build: Build) -> Row:
    """What a build is, where it comes from, and its answer to every rule."""
    return {
        "name": build.name,
        "summary": build.summary,
        "default": build.name == DEFAULT_BUILD,
        "correct": build.correct,
        "must_fire": list(build.must_fire),
        "provenance": build.provenance,
        "rules": build.rules.named(),
    }


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


def difference(one: Build, other: Build) -> list[Row]:
    """The rules on which two builds answer differently, each with both answers."""
    left, right = one.rules.named(), other.rules.named()
    return [{"name": rule, one.name: left[rule], other.name: right[rule]} for rule in left if left[rule] != right[rule]]


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


def show_build(name: str, json: bool) -> None:
    """Print one build: what it is, and its answer to every rule."""
    found = find_build(name)
    row = build_row(found)
    if json:
        sys.stdout.write(dump(row))
        return
    out = terminal.console()
    terminal.show_paragraphs(out, [_about(row)])
    rules = [{"name": rule, "answer": answer} for rule, answer in row["rules"].items()]
    terminal.show_rows(out, rules, {"name": "rule", "answer": "answer"})


def show_builds(json: bool) -> None:
    """Print the builds, and below them who answers what: only the rules that differ anywhere."""
    rows = build_rows()
    if json:
        sys.stdout.write(dump(rows))
        return
    out = terminal.console()
    terminal.show_paragraphs(out, [_about(row) for row in rows])
    answers = []
    for rule in rows[0]["rules"]:
        names: dict[str, list[str]] = {}
        for row in rows:
            names.setdefault(row["rules"][rule], []).append(row["name"])
        if len(names) > 1:
            groups = [{"answer": answer, "builds": builds} for answer, builds in names.items()]
            answers += [{"name": " " if place else rule, **group} for place, group in enumerate(groups)]
    terminal.show_rows(out, answers, {"name": "rule", "answer": "answer", "builds": "builds"})
    same = [rule for rule in rows[0]["rules"] if len({row["rules"][rule] for row in rows}) == 1]
    terminal.show_lines(out, f"All builds agree on: {', '.join(same)}.")


def _about(row: Row) -> tuple[str, str, list[str]]:
    """A build as a heading, what it is in two words, and lines below."""
    return row["name"], _kind(row), [row["summary"], f"from {row['provenance']}"]


def _kind(row: Row) -> str:
    if not row["correct"]:
        breaks = f", breaks {', '.join(row['must_fire'])}" if row["must_fire"] else ""
        return ("a fault" if row["name"].startswith(FAULT_PREFIX) else "historical") + breaks
    return "correct, the default" if row["default"] else "correct"
