"""``kvtwin al``: acceptance cold against acceptance on a hit, as tables for people, spreadsheets and machines."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from rich.text import Text

from gpu_backend.al.order import CONDITIONS, Told
from reports import al_page, al_plot, terminal
from reports.al_words import (
    COLUMNS,
    KINDS,
    LEGEND,
    as_markdown,
    by_kind,
    by_table,
    closing,
    cold_line,
    headline,
    in_columns,
    of_table,
)
from reports.document import dump, plural
from reports.folder import Output, stamp


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
    for (kind, decoding, name), rows in by_table(told).items():
        out.print(Text(f"{kind}, {name}, {decoding}: {CONDITIONS[name]}", style="bold"), soft_wrap=True)
        out.print(f"  {cold_line(rows[0])}", soft_wrap=True)
        for line in in_columns(COLUMNS, [*map(of_table, rows)]):
            out.print(Text(f"  {line}"), soft_wrap=True)
    if kinds := by_kind(told):
        out.print(Text("builds by kind of drafter", style="bold"), soft_wrap=True)
        for line in in_columns(KINDS, kinds, words=4):
            out.print(Text(f"  {line}"), soft_wrap=True)
    for row in told.arms:
        place = f"{row['drafter']}, {row['condition']} on {row['build']}"
        for law in row["laws"]:
            out.print(Text(f"{place}: {law}", style="red"), soft_wrap=True)
        if row["error"]:
            out.print(Text(f"{place}: {row['error']}", style="yellow"), soft_wrap=True)
    for line in (LEGEND, *closing(told), headline(told)):
        out.print(line, soft_wrap=True)


def markdown(told: Told) -> str:
    """The tables as Markdown."""
    pair, kinds = told.pair, by_kind(told)
    size = f"{plural(pair['prompts'], 'request')} of {pair['tokens']} tokens"
    lines = [f"# Cold against hit: {pair['name']}, {size}", ""]
    if kinds:
        lines += ["## Builds by kind of drafter", "", *as_markdown(KINDS, kinds), ""]
    for (kind, decoding, name), rows in by_table(told).items():
        lines += [f"## {kind}, {name}, {decoding}", "", f"{CONDITIONS[name]}; {cold_line(rows[0])}.", ""]
        lines += [*as_markdown(COLUMNS, [*map(of_table, rows)]), ""]
    notes = (f"* {note}" for note in (LEGEND, *closing(told)))
    return "\n".join([*lines, *notes, "", headline(told), ""])


def write(target: Path, told: Told) -> None:
    """Leave ``al.json``, ``al.md``, ``al.html``, ``arms.csv``, ``hits.csv``, and the models that were fitted, whole or
    not at all."""
    with Output(target, several=False) as output:
        folder = output.folder("al")
        (folder / "al.json").write_text(dump(document(told)), encoding="utf-8")
        (folder / "al.md").write_text(markdown(told), encoding="utf-8")
        (folder / "al.html").write_text(al_page.html(told), encoding="utf-8")
        pd.DataFrame(told.arms).to_csv(folder / "arms.csv", index=False)
        pd.DataFrame(told.hits).to_csv(folder / "hits.csv", index=False)
        if told.calibrations:
            for kind, found in told.calibrations.items():
                (folder / f"acceptance-{kind}.json").write_text(found["model"], encoding="utf-8")
            rows = [row for found in told.calibrations.values() for row in found["predictions"]]
            pd.DataFrame(rows).to_csv(folder / "predictions.csv", index=False)
            al_plot.draw(folder / "calibration.svg", told.calibrations)
        stamp(folder, "al")
