"""``kvtwin builds``: the matrix of builds and rules, the rules of one build, or what differs between two."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from model.builds import BUILDS, DEFAULT_BUILD, Build
from model.provenance import brought_by
from reports import terminal
from reports.catalogue import FAULT_PREFIX, find_build
from reports.document import dump
from reports.sources import usage
from scenarios.user_rules import is_own

Row = dict[str, Any]
DEFAULT = "·"  # the default build's answer, in the matrix
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def show(names: Sequence[str], json: bool) -> None:
    """Print all builds, one, or what differs between two; raises ``InputError`` for more and for unknown ones."""
    chosen = [find_build(name) for name in names]
    if not chosen:
        _show_all(json)
    elif len(chosen) == 1:
        _show_one(chosen[0], json)
    elif len(chosen) == 2:
        _show_difference(chosen[0], chosen[1], json)
    else:
        raise usage(f"expected at most two builds, found {len(chosen)}")


def build_row(build: Build) -> Row:
    """What a build is, where it is from, its answer to every rule, and who brought those that are not the default's."""
    usual, rules = BUILDS[DEFAULT_BUILD].rules.named(), build.rules.named()
    return {
        "name": build.name,
        "summary": build.summary,
        "default": build.name == DEFAULT_BUILD,
        "correct": build.correct,
        "must_fire": list(build.must_fire),
        "provenance": build.provenance,
        "rules": rules,
        "changes": [
            {"rule": rule, "answer": answer, "brought_by": brought_by(build, rule)}
            for rule, answer in rules.items()
            if answer != usual[rule]
        ],
    }


def difference(one: Build, other: Build) -> list[Row]:
    """The rules on which two builds answer differently: both answers, who brought them, and the fields that differ."""
    rows = []
    left, right = one.rules.named(), other.rules.named()
    for rule in left:
        answers = getattr(one.rules, rule), getattr(other.rules, rule)
        if answers[0] == answers[1]:
            continue
        rows.append(
            {
                "name": rule,
                one.name: left[rule],
                other.name: right[rule],
                "brought_by": {build.name: brought_by(build, rule) for build in (one, other)},
                "fields": _fields(*answers),
            }
        )
    return rows


def _fields(one: Any, other: Any) -> dict[str, list[Any]]:
    """Fields, names aside, in which two answers of one class differ."""
    if type(one) is not type(other) or not is_dataclass(one):
        return {}
    pairs = {part.name: [_plain(getattr(side, part.name)) for side in (one, other)] for part in fields(one)}
    return {name: pair for name, pair in pairs.items() if name != "name" and pair[0] != pair[1]}


def _plain(value: Any) -> Any:
    value = getattr(value, "value", value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


# -- all of them -------------------------------------------------------------------------------------------------------


def _show_all(json: bool) -> None:
    builds = list(BUILDS.values())
    if json:
        sys.stdout.write(dump([build_row(build) for build in builds]))
        return
    screen = terminal.console()
    terminal.show_paragraphs(screen, [_about(build) for build in builds])
    answers = {rule: _marks(rule, builds) for rule in builds[0].rules.named()}
    told = {rule: marks for rule, marks in answers.items() if len(marks) > 1}
    screen.print()
    _show_matrix(screen, builds, told)
    screen.print()
    legend = []
    for rule, marks in told.items():
        for place, (answer, mark) in enumerate(marks.items()):
            first = next(build for build in builds if build.rules.named()[rule] == answer)
            name = " " if place else rule
            legend.append({"name": name, "mark": mark, "answer": answer, "brought": brought_by(first, rule)})
    headings = {"name": "rule", "mark": "", "answer": "answer", "brought": "brought by"}
    terminal.show_rows(screen, legend, headings)
    same = [rule for rule in answers if rule not in told]
    terminal.show_lines(screen, f"All builds agree on: {', '.join(same)}.")


def _marks(rule: str, builds: Sequence[Build]) -> dict[str, str]:
    """The answers to ``rule`` with a mark each: the default's first, then letters in the order of the builds."""
    usual = BUILDS[DEFAULT_BUILD].rules.named()[rule]
    given = dict.fromkeys([usual, *(build.rules.named()[rule] for build in builds)])
    return dict(zip(given, [DEFAULT, *LETTERS], strict=False))


def _show_matrix(screen: Console, builds: Sequence[Build], told: dict[str, dict[str, str]]) -> None:
    """Builds down, rules across, a mark in each place; a line a build where there is no room for the columns."""
    name = max(len(build.name) for build in builds)
    if name + sum(len(rule) + 2 for rule in told) > screen.width:
        for build in builds:
            answers = build.rules.named()
            marks = [f"{rule} {told[rule][answers[rule]]}" for rule in told if told[rule][answers[rule]] != DEFAULT]
            terminal.show_lines(screen, f"{build.name}: {', '.join(marks) or 'the default everywhere'}")
        return
    table = Table(header_style="bold", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("build", no_wrap=True)
    for rule in told:
        table.add_column(rule, no_wrap=True)
    for build in builds:
        answers = build.rules.named()
        table.add_row(build.name, *(told[rule][answers[rule]] for rule in told))
    terminal.show_lines(screen, table)


def _about(build: Build) -> tuple[str, str, list[str]]:
    """A build as a heading, what it is in two words, and lines below."""
    return build.name, _kind(build), [build.summary, f"from {build.provenance}"]


def _kind(build: Build) -> str:
    if is_own(build.name):
        return "nothing is known of it"
    if not build.correct:
        breaks = f", breaks {', '.join(build.must_fire)}" if build.must_fire else ""
        return ("a fault" if build.name.startswith(FAULT_PREFIX) else "historical") + breaks
    return "correct, the default" if build.name == DEFAULT_BUILD else "correct"


# -- one or two --------------------------------------------------------------------------------------------------------


def _show_one(build: Build, json: bool) -> None:
    row = build_row(build)
    if json:
        sys.stdout.write(dump(row))
        return
    screen = terminal.console()
    terminal.show_paragraphs(screen, [_about(build)])
    changed = {change["rule"]: change["brought_by"] for change in row["changes"]}
    rules = [
        {"name": rule, "answer": answer, "brought": changed.get(rule, "the default's")}
        for rule, answer in row["rules"].items()
    ]
    if build.name == DEFAULT_BUILD:
        rules = [rule | {"brought": brought_by(build, rule["name"])} for rule in rules]
    terminal.show_rows(screen, rules, {"name": "rule", "answer": "answer", "brought": "brought by"})


def _show_difference(one: Build, other: Build, json: bool) -> None:
    rows = difference(one, other)
    if json:
        sys.stdout.write(dump(rows))
        return
    screen = terminal.console()
    if not rows:
        terminal.show_lines(screen, f"{one.name} and {other.name} answer every rule alike.")
        return
    terminal.show_rows(screen, rows, {"name": "rule", one.name: one.name, other.name: other.name})
    for row in rows:
        lines = [f"{build.name}: {row[build.name]}, by {row['brought_by'][build.name]}" for build in (one, other)]
        if row["fields"]:
            lines.append("; ".join(f"{name}: {_word(a)} → {_word(b)}" for name, (a, b) in row["fields"].items()))
        terminal.show_paragraphs(screen, [(row["name"], "", lines)])


def _word(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else "none" if value is None else str(value)
