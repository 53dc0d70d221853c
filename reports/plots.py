"""Pictures of a comparison, for people who look rather than read."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no display is needed, and none is looked for

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from reports.comparison import Comparison
from reports.document import plural

CACHED, PREFILLED = "#2a9d8f", "#e9a23b"
STRONG, SOFT = "#27547d", "#9dbcd8"
BROKEN, INK, FAINT = "#b3261e", "#222222", "#777777"
DPI = 130
BAR = 0.62
LEGEND: dict[str, Any] = {
    "loc": "lower right",
    "bbox_to_anchor": (1.0, 1.0),
    "ncols": 2,
    "frameon": False,
    "fontsize": 8.5,
    "borderaxespad": 0.2,
}


def comparison_figure(comparison: Comparison) -> Figure:
    """Four panels over the builds: reuse, prefilled tokens, predicted acceptance length, drafter-window coverage."""
    table = comparison.table
    height = 3.4 + 0.75 * len(table)
    figure = Figure(figsize=(12.5, height), dpi=DPI, layout="constrained")
    figure.get_layout_engine().set(h_pad=0.12, w_pad=0.1, hspace=0.06, wspace=0.04)  # type: ignore[union-attr]
    count = f"{len(table)} builds, {plural(comparison.requests, 'request')}"
    figure.suptitle(f"{comparison.scenario}: {count}", x=0.012, ha="left", fontsize=15, fontweight="bold", color=INK)
    reuse, prefilled, length, coverage = figure.subplots(2, 2).flat
    _reuse(reuse, table)
    _prefilled(prefilled, table)
    _acceptance(length, comparison)
    _coverage(coverage, table)
    for axes in (reuse, prefilled, length, coverage):
        _dress(axes, comparison)
    figure.supxlabel(_footnote(comparison), x=0.012, ha="left", fontsize=8.5, color=FAINT)
    return figure


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write the figure as a PNG at ``path``; the bytes depend on the figures only."""
    comparison_figure(comparison).savefig(path, format="png", metadata={"Software": "kvtwin"})


def _column(table: pd.DataFrame, name: str) -> list[float]:
    """A column as plain numbers; NaN where a run has no such figure."""
    return [float(value) for value in table[name].astype(float)]


def _reuse(axes: Axes, table: pd.DataFrame) -> None:
    """Where the tokens of the prompts came from."""
    cached, prefilled = _column(table, "cached_tokens"), _column(table, "prefilled_tokens")
    rows = range(len(table))
    axes.barh(rows, cached, BAR, color=CACHED, label="cached")
    axes.barh(rows, prefilled, BAR, left=cached, color=PREFILLED, label="prefilled")
    for row, share in zip(rows, _column(table, "reuse_share"), strict=True):
        if not isnan(share):
            text = f"{share:.1%} reused"
            colour = "white" if share > 0.25 else INK
            axes.annotate(text, (0, row), (6, 0), textcoords="offset points", va="center", color=colour, fontsize=9)
    axes.set_title("Prompt tokens")
    axes.set_xlabel("tokens")
    axes.xaxis.set_major_formatter(FuncFormatter(_thousands))
    axes.legend(**LEGEND)
    axes.set_xlim(0, max(map(sum, zip(cached, prefilled, strict=True))) * 1.02 or 1)


def _prefilled(axes: Axes, table: pd.DataFrame) -> None:
    """What the target had to compute, with the distance to the least of all builds."""
    values = _column(table, "prefilled_tokens")
    axes.barh(range(len(table)), values, BAR, color=PREFILLED)
    least = min(values)
    for row, value in enumerate(values):
        beside = f"   +{value / least - 1:.2%}" if 0 < least < value else ""
        _label(axes, row, value, f"{value:,.0f}{beside}")
    axes.set_title("Prefilled tokens, and the distance to the fewest")
    axes.set_xlabel("tokens")
    axes.xaxis.set_major_formatter(FuncFormatter(_thousands))
    axes.set_xlim(0, max(values) * 1.35 or 1)


def _acceptance(axes: Axes, comparison: Comparison) -> None:
    """Both means of the acceptance length, from 1: no draft accepted."""
    table = comparison.table
    step, request = _column(table, "al_step_weighted"), _column(table, "al_request_mean")
    rows = [row for row, value in enumerate(step) if not isnan(value)]
    if rows:
        axes.barh(rows, [step[row] - 1 for row in rows], BAR, left=1, color=STRONG, label="step-weighted")
        means = [request[row] for row in rows]
        axes.plot(means, rows, "D", color="white", markeredgecolor=INK, markersize=6, label="request mean")
        for row in rows:
            _label(axes, row, max(step[row], request[row]), f"{step[row]:.3f}   (mean {request[row]:.3f})", gap=9)
        axes.legend(**LEGEND)
        highest = max(max(step[row], request[row]) for row in rows)
        axes.set_xlim(1, 1 + ((highest - 1) * 1.4 or 2))
    else:
        axes.text(0.5, 0.5, "no verify step of real drafts", transform=axes.transAxes, ha="center", color=FAINT)
    mode = "predicted" if comparison.acceptance_mode == "modelled" else f"{comparison.acceptance_mode}: an input"
    axes.set_title(f"Acceptance length, {mode}")
    axes.set_xlabel(f"tokens per verify step (1 to {comparison.drafts + 1})")


def _coverage(axes: Axes, table: pd.DataFrame) -> None:
    """How much of what the drafter reads is valid."""
    half = BAR / 2
    first, overall = _column(table, "coverage_first"), _column(table, "coverage_all")
    for row, (hit, every) in enumerate(zip(first, overall, strict=True)):
        for shift, value, colour in ((-half / 2, hit, STRONG), (half / 2, every, SOFT)):
            if not isnan(value):
                axes.barh(row + shift, value, half, color=colour)
                _label(axes, row + shift, value, f"{value:.1%}")
    axes.barh([0], [0], color=STRONG, label="first step after a hit")
    axes.barh([0], [0], color=SOFT, label="all verify steps")
    axes.set_title("Drafter-window coverage")
    axes.set_xlabel("valid share of what the drafter may read")
    axes.set_xlim(0, 1.16)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.legend(**LEGEND)


def _label(axes: Axes, row: float, value: float, text: str, gap: int = 5) -> None:
    """Write ``text`` right of the end of a bar."""
    axes.annotate(text, (value, row), (gap, 0), textcoords="offset points", va="center", fontsize=9, color=INK)


def _dress(axes: Axes, comparison: Comparison) -> None:
    """One look for every panel: builds down the side in their order, those that broke a law in red with its code."""
    builds = [str(build) for build in comparison.table.index]
    axes.set_ylim(len(builds) - 0.5, -0.5)
    names = [f"{build}\n{' '.join(comparison.laws[build])}" if comparison.laws[build] else build for build in builds]
    axes.set_yticks(range(len(builds)), names, fontsize=9.5)
    for tick, build in zip(axes.get_yticklabels(), builds, strict=True):
        tick.set_color(BROKEN if comparison.laws[build] else INK)
    axes.set_title(axes.get_title(), loc="left", fontsize=10.5, color=INK, pad=22)
    axes.set_title("")
    axes.xaxis.label.set(color=FAINT, fontsize=9)
    axes.tick_params(axis="x", colors=FAINT, labelsize=8.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#bbbbbb")


def _footnote(comparison: Comparison) -> str:
    """What a reader must know of where the figures come from."""
    lines = wrap(f"K = {comparison.drafts}; acceptance {comparison.acceptance_mode}: {comparison.acceptance}.", 180)
    if any(comparison.laws.values()):
        lines.append("Red: the build breaks the named laws of the cache.")
    return "\n".join(lines)


def _thousands(value: float, _: int | None = None) -> str:
    """``1.2M``, ``350K``, ``80``."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"
