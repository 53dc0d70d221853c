"""Predicted against measured acceptance length of every run, and the curve that was fitted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

COLOURS = {"correct": "#1b7f5c", "historical": "#3465a4", "fault": "#b5432e"}


def draw(path: Path, calibration: dict[str, Any]) -> None:
    """Two panels as SVG: AL predicted over AL measured by kind of build, the kept share of the rates by coverage."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    rows, model = calibration["predictions"], json.loads(calibration["model"])
    figure = Figure(figsize=(10.5, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for kind, colour in COLOURS.items():
        own = [row for row in rows if row["kind"] == kind]
        if own:
            left.scatter(
                [row["measured"] for row in own], [row["predicted"] for row in own], s=26, color=colour, alpha=0.75,
                label=f"{kind} ({len(own)})",
            )  # fmt: skip
    ends = [row[name] for row in rows for name in ("measured", "predicted")] or [1.0, 2.0]
    span = [min(ends) - 0.05, max(ends) + 0.05]
    left.plot(span, span, color="#888888", linewidth=1)
    worst = {row["build"]: row for row in sorted(rows, key=lambda one: abs(one["error"]))}
    for place, row in enumerate(list(worst.values())[:-4:-1]):  # by name
        left.annotate(
            f"{row['build'].removeprefix('fault:')}, {row['condition']}", (row["measured"], row["predicted"]),
            xytext=(8, -14 - 10 * place), textcoords="offset points", fontsize=7,
        )  # fmt: skip
    left.set_xlabel("AL measured, hits that were not fitted")
    left.set_ylabel("AL predicted by the sim")
    left.legend(frameon=False, fontsize=8)
    right.plot(model["shares"], model["kept"], marker="o", color="#1b7f5c")
    right.set_xlabel("share of the drafter's window that is valid, newest rows first")
    right.set_ylabel("kept of every acceptance rate")
    right.set_ylim(0, 1.05)
    for axes in (left, right):
        axes.grid(color="#e6e6e6", linewidth=0.8)
    told = model["provenance"]
    title = f"{told['weights']}, {told['rule']}: {told['fitted_steps']:,} verify steps of {told['prompts']} prompts"
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": "kvtwin"})
