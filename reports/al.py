"""``kvtwin al``: acceptance cold against acceptance on a hit, as tables for people, spreadsheets and machines."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from rich.text import Text

from gpu_backend.al import seeds
from gpu_backend.al.order import BROKEN, CONDITIONS, Told
from reports import al_plot, terminal
from reports.comparison import NONE
from reports.document import dump, plural
from reports.folder import Output, stamp

COLUMNS = {
    "build": "build",
    "verdict": "verdict",
    "same": "as cold",
    "al16": "AL16 against cold",
    "al128": "AL128",
    "al": "AL",
    "first": "first",
    "prefilled": "prefilled",
    "cached": "cached",
}


def document(told: Told) -> dict[str, Any]:
    """Everything for a machine; the rows of single hits are a file of their own. What is not known is ``null``."""
    found = {name: _known(value) for name, value in asdict(told).items() if name != "hits"}
    return found | {"exit_code": told.exit_code}


def _known(value: Any) -> Any:
    """``value`` without NaN, such as the ends of an interval over a single hit, for which JSON has no word."""
    if isinstance(value, dict):
        return {name: _known(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_known(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def show(told: Told, json: bool) -> None:
    """Print the tables and one line that says how it went."""
    if json:
        sys.stdout.write(dump(document(told)))
        return
    out = terminal.console()
    for (decoding, name), rows in _tables(told).items():
        out.print(Text(f"{name}, {decoding}: {CONDITIONS[name]}", style="bold"), soft_wrap=True)
        out.print(f"  {_cold(rows[0])}", soft_wrap=True)
        for line in _lines([COLUMNS, *map(_told, rows)]):
            out.print(Text(f"  {line}"), soft_wrap=True)
    for row in told.arms:
        for law in row["laws"]:
            out.print(Text(f"{row['condition']} on {row['build']}: {law}", style="red"), soft_wrap=True)
        if row["error"]:
            out.print(Text(f"{row['condition']} on {row['build']}: {row['error']}", style="yellow"), soft_wrap=True)
    out.print(
        "first: tokens of the first step of real drafts; prefilled, cached: tokens of target/drafter", soft_wrap=True
    )
    for note in (*told.notes, *seeds.lines(told), *calibrated(told)):
        out.print(note, soft_wrap=True)
    out.print(headline(told), soft_wrap=True)


def headline(told: Told) -> str:
    """One line: how many traces were owed, how many were equal."""
    owed, same = (sum(row[name] for row in told.arms) for name in ("owed", "owed_and_same"))
    broken = sum(row["verdict"] == BROKEN for row in told.arms)
    mode = "exact" if told.pair["exact"] else "not exact: ties may fall either way, nothing is owed"
    end = ", interrupted" if told.interrupted else ""
    seconds = sorted(row["seconds"] for row in told.arms if row["seconds"] is not None)
    pace = f"; {seconds[len(seconds) // 2]:.2f} s a run (median)" if seconds else ""
    return (
        f"{plural(len(told.arms), 'run')} ({mode}): of {owed} accept traces that are owed to be the cold ones "
        f"{same} are, {plural(broken, 'violation')}{end}{pace}"
    )


def calibrated(told: Told) -> list[str]:
    """How well the fitted model predicts the hits that it was not fitted from."""
    if told.calibration is None:
        return []
    error, lines = told.calibration["error"], []
    for name, label in (
        ("correct", "correct builds"),
        ("builds", "all builds"),
        ("faults", "faults, which were not fitted"),
    ):
        if f"{name}_rms" in error:
            off = f"{error[f'{name}_rms']:.1%} (root mean square), {error[f'{name}_largest']:.1%} at most"
            change = f"its change against cold by {100 * error[f'{name}_change_rms']:.1f} points"
            lines.append(f"predicted by the fitted model for {label}: AL is off by {off}, {change}")
    return lines


def _tables(told: Told) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Rows by how drafts are judged, and by condition."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in told.arms:
        found.setdefault((row["decoding"], row["condition"]), []).append(row)
    return found


def _cold(row: dict[str, Any]) -> str:
    lengths = ", ".join(f"{name} {_number(row[f'{name}_cold'])}" for name in ("AL16", "AL128", "AL"))
    return f"cold: {lengths}, first step {_number(row['first_cold'])}"


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """A row as the table shows it."""
    shown = {"build": row["build"], "verdict": row["verdict"], "same": f"{row['same_traces']}/{row['hits']}"}
    shown["al16"] = None if row["AL16"] is None else f"{_number(row['AL16'])} {_change(row, 'AL16')}"
    for name in ("AL128", "AL"):
        change = row[f"{name}_change"]
        shown[name.lower()] = None if change is None else f"{_number(row[name])} {change:+.1%}"
    shown["first"] = _number(row["first"])
    for what in ("prefilled", "cached"):
        shown[what] = None if row["seconds"] is None else f"{row[f'{what}_target']:,}/{row[f'{what}_draft']:,}"
    return shown


def _lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Rows in columns, the first of them the heading; words to the left, figures to the right."""
    cells = [[str(row[key] or NONE) for key in COLUMNS] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        words = [cell.ljust(width) for cell, width in zip(row[:2], widths, strict=False)]
        yield "  ".join([*words, *(cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True))])


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


def _change(row: dict[str, Any], name: str) -> str | None:
    """A change with its interval in per cent."""
    low, value, high = (row[f"{name}_{end}"] for end in ("low", "change", "high"))
    if value is None:
        return None
    if math.isnan(low):
        return f"{value:+.1%}"
    return f"{value:+.1%} [{100 * low:+.1f}, {100 * high:+.1f}]"


def markdown(told: Told) -> str:
    """The tables as Markdown."""
    pair = told.pair
    lines = [f"# Cold against hit: {pair['name']}, {pair['prompts']} requests of {pair['tokens']} tokens", ""]
    for (decoding, name), rows in _tables(told).items():
        lines += [f"## {name}, {decoding}", "", f"{CONDITIONS[name]}; {_cold(rows[0])}.", ""]
        lines += ["| " + " | ".join(COLUMNS.values()) + " |", "|" + "---|" * len(COLUMNS)]
        lines += ["| " + " | ".join(str(row[key] or NONE) for key in COLUMNS) + " |" for row in map(_told, rows)]
        lines.append("")
    return "\n".join(
        [
            *lines,
            *(f"* {note}" for note in (*told.notes, *seeds.lines(told), *calibrated(told))),
            "",
            headline(told),
            "",
        ]
    )


def write(target: Path, told: Told) -> None:
    """Leave ``al.json``, ``al.md``, ``arms.csv``, ``hits.csv``, and the model that was fitted, whole or not at all."""
    with Output(target, several=False) as output:
        folder = output.folder("al")
        (folder / "al.json").write_text(dump(document(told)), encoding="utf-8")
        (folder / "al.md").write_text(markdown(told), encoding="utf-8")
        pd.DataFrame(told.arms).to_csv(folder / "arms.csv", index=False)
        pd.DataFrame(told.hits).to_csv(folder / "hits.csv", index=False)
        if told.calibration is not None:
            (folder / "acceptance.json").write_text(told.calibration["model"], encoding="utf-8")
            pd.DataFrame(told.calibration["predictions"]).to_csv(folder / "predictions.csv", index=False)
            al_plot.draw(folder / "calibration.svg", told.calibration)
        stamp(folder, "al")
