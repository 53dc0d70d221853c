"""The files of a comparison: a page, a picture, Markdown, JSON, and its tables as CSV and Parquet.

``comparison``: wide, a row a build and a column a figure. ``figures``: long, a row a figure and build, with intervals
and ratios. ``requests``: a row a request of every run. ``lifecycles``: pools and hits, a row a lifecycle and worker.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from reports.compared import Comparison
from reports.comparison_document import document
from reports.comparison_words import markdown
from reports.document import dump
from reports.folder import stamp

PAGE, PICTURE, TEXT, VALUES = "report.html", "comparison.png", "comparison.md", "comparison.json"


def write_comparison_files(folder: Path, comparison: Comparison) -> None:
    """Fill ``folder`` with the comparison."""
    from reports.page.content import comparison_page  # matplotlib takes half a second to import
    from reports.page.render import render
    from reports.plots import write_comparison

    (folder / PAGE).write_text(render(comparison_page(comparison)), encoding="utf-8")
    write_comparison(comparison, folder / PICTURE)
    (folder / TEXT).write_text(markdown(comparison), encoding="utf-8")
    (folder / VALUES).write_text(dump(document(comparison)), encoding="utf-8")
    for name, table in tables(comparison).items():
        table.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")
        table.to_parquet(folder / f"{name}.parquet", index=False)
    stamp(folder, "comparison")


def tables(comparison: Comparison) -> dict[str, pd.DataFrame]:
    """The tables by the names of their files."""
    return {
        "comparison": comparison.table.reset_index(),
        "figures": comparison.rows.drop(columns=["short", "shown"]),
        "requests": _stacked(comparison, "requests").drop(columns=["claims"], errors="ignore"),
        "lifecycles": _stacked(comparison, "pools"),
    }


def _stacked(comparison: Comparison, table: str) -> pd.DataFrame:
    """One table of all runs, each row with the arm and the seed that it is of."""
    frames = []
    for run in comparison.arms:
        frame = getattr(run, table).copy()
        for place, (column, value) in enumerate((("arm", run.arm), ("seed", run.seed), ("on", run.on))):
            frame.insert(place, column, value)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)
