"""``kvtwin al``: acceptance cold against acceptance on a hit, as tables for people, spreadsheets and machines."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from rich.text import Text

from gpu_backend.al.order import BROKEN, CONDITIONS, Told
from reports import terminal
from reports.comparison import NONE
from reports.document import dump, plural
from reports.folder import Output, stamp

COLUMNS = {
    "build": "build",
    "verdict": "verdict",
    "same": "traces as cold",
    "al16": "AL16, against cold",
    "al128": "AL128, against cold",
    "al": "AL",
    "first": "first step",
    "prefilled": "prefilled by pool",
    "cached": "cached by pool",
}
UNBROKEN = ("verdict", "al16", "al128", "prefilled", "cached")


def document(told: Told) -> dict[str, Any]:
    """Everything for a machine; the rows of single hits are a file of their own."""
    return {name: value for name, value in asdict(told).items() if name != "hits"} | {"exit_code": told.exit_code}


def show(told: Told, json: bool) -> None:
    """Print the tables and one line that says how it went."""
    if json:
        sys.stdout.write(dump(document(told)))
        return
    out = terminal.console()
    for name, rows in _by_condition(told).items():
        out.print(Text(f"{name}: {CONDITIONS[name]}", style="bold"), soft_wrap=True)
        out.print(f"  {_cold(rows[0])}", soft_wrap=True)
        terminal.show_rows(out, [_told(row) for row in rows], COLUMNS, UNBROKEN)
    for row in told.arms:
        for law in row["laws"]:
            out.print(Text(f"{row['condition']} on {row['build']}: {law}", style="red"), soft_wrap=True)
        if row["error"]:
            out.print(Text(f"{row['condition']} on {row['build']}: {row['error']}", style="yellow"), soft_wrap=True)
    for note in told.notes:
        out.print(f"note: {note}", soft_wrap=True)
    out.print(headline(told), soft_wrap=True)


def headline(told: Told) -> str:
    """One line: how many traces were owed, how many were equal."""
    owed, same = (sum(row[name] for row in told.arms) for name in ("owed", "owed_and_same"))
    broken = sum(row["verdict"] == BROKEN for row in told.arms)
    mode = "exact" if told.pair["exact"] else "not exact: ties may fall either way, nothing is owed"
    end = ", interrupted" if told.interrupted else ""
    return (
        f"{plural(len(told.arms), 'run')} ({mode}): of {owed} accept traces that are owed to be the cold ones "
        f"{same} are, {plural(broken, 'violation')}{end}"
    )


def _by_condition(told: Told) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in told.arms:
        found.setdefault(row["condition"], []).append(row)
    return found


def _cold(row: dict[str, Any]) -> str:
    lengths = ", ".join(f"{name} {_number(row[f'{name}_cold'])}" for name in ("AL16", "AL128", "AL"))
    return f"cold: {lengths}, first step {_number(row['first_cold'])}"


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """A row as the table shows it."""
    shown = {"build": row["build"], "verdict": row["verdict"], "same": f"{row['same_traces']}/{row['hits']}"}
    for name in ("AL16", "AL128"):
        shown[name.lower()] = None if row[name] is None else f"{_number(row[name])}  {_change(row, name)}"
    shown |= {"al": _number(row["AL"]), "first": _number(row["first"])}
    for what in ("prefilled", "cached"):
        shown[what] = None if row["seconds"] is None else f"{row[f'{what}_target']:,} / {row[f'{what}_draft']:,}"
    return shown


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


def _change(row: dict[str, Any], name: str) -> str | None:
    """A change with its interval in per cent."""
    low, value, high = (row[f"{name}_{end}"] for end in ("low", "change", "high"))
    if value is None:
        return None
    return "0%" if value == low == high == 0 else f"{value:+.1%} [{low:+.1%}, {high:+.1%}]"


def markdown(told: Told) -> str:
    """The tables as Markdown."""
    pair = told.pair
    lines = [f"# Cold against hit: {pair['name']}, {pair['prompts']} requests of {pair['tokens']} tokens", ""]
    for name, rows in _by_condition(told).items():
        lines += [f"## {name}", "", f"{CONDITIONS[name]}; {_cold(rows[0])}.", ""]
        lines += ["| " + " | ".join(COLUMNS.values()) + " |", "|" + "---|" * len(COLUMNS)]
        lines += ["| " + " | ".join(str(row[key] or NONE) for key in COLUMNS) + " |" for row in map(_told, rows)]
        lines.append("")
    return "\n".join([*lines, *(f"* {note}" for note in told.notes), headline(told), ""])


def write(target: Path, told: Told) -> None:
    """Leave ``al.json``, ``al.md``, ``arms.csv`` and ``hits.csv`` in ``target``, whole or not at all."""
    with Output(target, several=False) as output:
        folder = output.folder("al")
        (folder / "al.json").write_text(dump(document(told)), encoding="utf-8")
        (folder / "al.md").write_text(markdown(told), encoding="utf-8")
        pd.DataFrame(told.arms).to_csv(folder / "arms.csv", index=False)
        pd.DataFrame(told.hits).to_csv(folder / "hits.csv", index=False)
        stamp(folder, "al")
