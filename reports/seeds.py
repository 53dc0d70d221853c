"""``kvtwin seeds``: every figure of the seeds beside what the model makes of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from time import monotonic
from typing import Any

from rich.text import Text

from reports import terminal
from reports.catalogue import unknown_name
from reports.document import dump, plural
from reports.figures import FIGURES
from reports.figures.base import Row, Runs, Verdict, readable
from scenarios.errors import InputError


def run(ids: Sequence[str], fast: bool) -> list[Row]:
    """Measure the named figures, or all, ``fast`` without the slow ones; ``InputError`` for an unknown one."""
    wanted = [name.upper() for name in ids]
    for name in wanted:
        if name not in FIGURES:
            raise InputError("figure", 0, "", unknown_name("a figure", name, FIGURES, "kvtwin seeds --fast"))
    chosen = [figure for figure in FIGURES.values() if figure.id in wanted or not wanted]
    chosen = [figure for figure in chosen if not (fast and figure.slow)]
    runs, rows = Runs(), []
    with terminal.progress("seeds") as tick:
        for place, figure in enumerate(chosen):
            start = monotonic()
            parts = figure.measure(runs) if figure.measure else []
            rows.append(Row(figure, parts, monotonic() - start))
            tick(place + 1, len(chosen))
    return rows


def exit_code(rows: Sequence[Row]) -> int:
    """1 if an exact figure differs or a shape left its band, 3 if nothing was measured."""
    if any(row.broken for row in rows):
        return 1
    return 0 if any(row.parts for row in rows) else 3


def document(rows: Sequence[Row]) -> dict[str, Any]:
    """The table as plain values."""
    return {
        "figures": [
            {
                "id": row.figure.id,
                "what": row.figure.what,
                "source": row.figure.source,
                "kind": row.kinds,
                "free": list(row.figure.free),
                "verdict": row.verdict,
                "needs": row.figure.needs if not row.parts else "",
                "note": row.figure.note,
                "parts": [asdict(part) | {"verdict": part.verdict.value} for part in row.parts],
                "seconds": round(row.seconds, 3),
            }
            for row in rows
        ],
        "seconds": round(sum(row.seconds for row in rows), 3),
        "exit_code": exit_code(rows),
    }


def show(rows: Sequence[Row], json: bool) -> None:
    """Print the table, what is open and why, and how long it took."""
    if json:
        sys.stdout.write(dump(document(rows)))
        return
    out = terminal.console()
    terminal.show_rows(out, [line for row in rows for line in _lines(row)], _COLUMNS)
    for row in rows:
        if row.figure.note:
            out.print(Text(f"{row.figure.id}: {row.figure.note}"), soft_wrap=True)
        if not row.parts:
            out.print(Text(f"{row.figure.id}: not measured here, needs {row.figure.needs}"), soft_wrap=True)
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.verdict] = counts.get(row.verdict, 0) + 1
    seconds = sum(row.seconds for row in rows)
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    out.print(f"{plural(len(rows), 'figure')} in {seconds:,.1f} s: {verdicts}", soft_wrap=True)


_COLUMNS = {
    "id": "id",
    "what": "figure",
    "seed": "seed",
    "ours": "ours",
    "kind": "kind: free parameters",
    "verdict": "verdict",
}


def _lines(row: Row) -> list[dict[str, Any]]:
    """The figure with its verdict, then its parts."""
    figure = row.figure
    head = {"id": figure.id, "what": figure.what, "seed": figure.source, "ours": " "}
    free = f": {'; '.join(figure.free)}" if figure.free else ""
    head |= {"kind": ", ".join(row.kinds) + free or " ", "verdict": row.verdict}
    return [head] + [
        {
            "id": " ",
            "what": f"  {part.what}",
            "seed": part.seed,
            "ours": readable(part.ours),
            "kind": part.kind.value if len(row.kinds) > 1 else " ",
            "verdict": " " if part.verdict is Verdict.TOLD else part.verdict.value,
        }
        for part in row.parts
    ]
