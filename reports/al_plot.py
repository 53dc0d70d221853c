"""Predicted against measured acceptance length of every run, and the curves that were fitted, as a file of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

COLOURS = {"dflash": "#1b7f5c", "dspark": "#3465a4", "eagle3": "#b5432e", "mtp": "#8a5a9e"}  # by kind of drafter
MARKS = {"correct": "o", "historical": "s", "fault": "x"}  # by kind of build


def draw(path: Path, calibrations: dict[str, dict[str, Any]]) -> None:
    """Two panels as SVG: AL predicted over AL measured, the kept share of the rates by how much context is valid."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    rows = [row for found in calibrations.values() for row in found["predictions"]]
    for kind, colour in COLOURS.items():
        for build, mark in MARKS.items():
            own = [row for row in rows if row["drafter"] == kind and row["kind"] == build]
            if own:
                left.scatter(
                    [row["measured"] for row in own], [row["predicted"] for row in own], s=24, color=colour,
                    marker=mark, alpha=0.75, label=f"{kind}, {build} ({len(own)})",
                )  # fmt: skip
    ends = [row[name] for row in rows for name in ("measured", "predicted")] or [1.0, 2.0]
    span = [min(ends) - 0.05, max(ends) + 0.05]
    left.plot(span, span, color="#888888", linewidth=1)
    for place, row in enumerate(worst_of(rows)):
        left.annotate(
            f"{row['drafter']}, {row['build'].removeprefix('fault:')}, {row['condition']}",
            (row["measured"], row["predicted"]), xytext=(0.55, 0.22 - 0.06 * place), textcoords="axes fraction",
            fontsize=7, arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": "#888888"},
        )  # fmt: skip
    left.set_xlabel("AL measured, hits that were not fitted")
    left.set_ylabel("AL predicted by the sim")
    left.legend(frameon=False, fontsize=7)
    for kind, found in calibrations.items():
        model = json.loads(found["model"])
        right.plot(model["shares"], model["kept"], marker="o", color=COLOURS.get(kind), label=kind)
    right.set_xlabel("valid share of the window, or of all context, newest rows first")
    right.set_ylabel("kept of every acceptance rate")
    right.set_ylim(0, 1.05)
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.grid(color="#e6e6e6", linewidth=0.8)
    told = [json.loads(found["model"])["provenance"] for found in calibrations.values()]
    steps = sum(one["fitted_steps"] for one in told)
    title = f"{told[0]['weights']}, {told[0]['rule']}: {steps:,} verify steps of {told[0]['prompts']} prompts"
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": "kvtwin"})


def worst_of(rows: Iterable[dict[str, Any]], most: int = 3) -> list[dict[str, Any]]:
    """Predictions that are off by most, the worst first; a drafter's build once, under the worst of its conditions."""
    found = dict[tuple[str, str], dict[str, Any]]()
    for row in sorted(rows, key=lambda one: -abs(one["error"])):
        found.setdefault((row["drafter"], row["build"]), row)
    return [*found.values()][:most]
