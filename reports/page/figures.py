"""The plots of a page. Each takes runs side by side, and is left out (``None``) where no run has what it shows.

Tokens are counts, times milliseconds or seconds of the simulated clock, pages those of a pool on one worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, PercentFormatter

from reports.evidence import Evidence
from reports.page.frames import Floats, Ints, floats, ints, rows, texts
from reports.page.theme import FAINT, GRID, HEIGHT, INK, PAPER, Sheet, colour, dash, mark

POINTS = 320  # of a line, which is some 380 units wide
ROW = 30 / 72  # inches of a bar
BINS = 10  # of the drafter-window coverage


@dataclass(frozen=True, slots=True)
class Plot:
    """An SVG element with its heading and what a reader must know to read it."""

    heading: str
    svg: str
    caption: str


def plots(arms: Sequence[Evidence], drafts: int) -> list[Plot]:
    """All plots that these runs have data for; ``drafts`` is K."""
    drawn: list[Plot | None] = [
        reuse(arms),
        prefilled(arms),
        acceptance(arms, drafts),
        *occupancy(arms),
        latency(arms, "ttft_ms", "Time to first token", "ttft"),
        latency(arms, "tpot_ms", "Time per output token", "tpot"),
        step_time(arms),
    ]
    return [plot for plot in drawn if plot is not None]


def reuse(arms: Sequence[Evidence]) -> Plot | None:
    """Share of the prompt tokens that was claimed, a bar a lifecycle. They are never summed."""
    lives = list(dict.fromkeys(str(life) for arm in arms for life in arm.pools["lifecycle"]))
    if not any(arm.pools["prompt_tokens"].sum() for arm in arms):
        return None
    thick = 0.78 / len(lives)
    with Sheet("reuse", height=max(ROW, ROW * 0.62 * len(lives)) * len(arms) + 0.66, left=98) as sheet:
        axes = sheet.axes
        for row, arm in enumerate(arms):
            known = arm.pools.drop_duplicates("lifecycle").set_index("lifecycle")  # hits are those of all workers
            for number, life in enumerate(lives):
                if life not in known.index or not known.at[life, "prompt_tokens"]:
                    continue
                share = float(known.at[life, "hit_tokens"]) / float(known.at[life, "prompt_tokens"])
                place = row + thick * (number - (len(lives) - 1) / 2)
                alpha = 0.45 if known.at[life, "role"] == "draft" else 1.0
                axes.barh(place, share, thick * 0.92, color=colour(row), alpha=alpha)
                axes.annotate(f"{share:.1%} {life}", (share, place), (4, 0), **BESIDE)
        _builds(axes, arms)
        axes.set_xlim(0, 1.42)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.set_xlabel("share of the prompt tokens that was a hit")
        svg = sheet.svg("Reuse by build and lifecycle")
    return Plot("Reuse by build", svg, "Hits of the first admissions, a bar a lifecycle: the drafter's are paler.")


def prefilled(arms: Sequence[Evidence]) -> Plot | None:
    """Prefilled tokens summed over the requests in their order, and below it the distance to the first build."""
    order = texts(arms[0].requests, "key")  # numbers of requests may differ between builds, keys do not
    sums = []
    for arm in arms:
        tokens = dict(zip(texts(arm.requests, "key"), floats(arm.requests, "prefilled_tokens").tolist(), strict=True))
        in_order = [tokens[key] for key in order] if tokens.keys() == set(order) else list(tokens.values())
        sums.append(np.cumsum([0.0, *in_order]))
    if not any(len(one) > 1 for one in sums):
        return None
    base = sums[0]
    several = len(arms) > 1
    with Sheet("prefilled", rows=2 if several else 1, height=HEIGHT * (1.25 if several else 1)) as sheet:
        for place, total in enumerate(sums):
            _line(sheet.axes, np.arange(len(total)), total, place, arms[place].arm)
            if several and len(total) == len(base):
                _line(sheet.rows[1], np.arange(len(total)), total - base, place, "")
        sheet.axes.set_ylabel("tokens in all")
        sheet.axes.set_ylim(bottom=0)
        if several:
            sheet.rows[1].set_ylabel(f"more than {_short(arms[0].arm, 16)}")
        sheet.rows[-1].set_xlabel(f"requests, in their order on {_short(arms[0].arm, 24)}")
        for axes in sheet.rows:
            axes.yaxis.set_major_formatter(FuncFormatter(thousands))
        _legend(sheet.axes)
        svg = sheet.svg("Prefilled tokens over the workload")
    return Plot("Prefilled tokens over the workload", svg, "What the target computed, recomputation included.")


def acceptance(arms: Sequence[Evidence], drafts: int) -> Plot | None:
    """Mean acceptance length of the requests by the coverage of the drafter's window, with two standard errors."""
    with Sheet("acceptance") as sheet:
        axes, drawn = sheet.axes, False
        for place, arm in enumerate(arms):
            coverage, length = floats(arm.requests, _coverage(arm.requests)), floats(arm.requests, "acceptance_length")
            known = (coverage >= 0) & (length >= 0)
            if not known.any():
                continue
            drawn = True
            coverage, length = coverage[known], length[known]
            axes.scatter(coverage[:: max(1, len(coverage) // 120)], length[:: max(1, len(length) // 120)],
                         s=5, color=colour(place), alpha=0.22, linewidths=0)  # fmt: skip
            middles, means, errors = _binned(coverage, length)
            shift = (place - (len(arms) - 1) / 2) * 0.012  # builds of equal coverage stay apart
            axes.errorbar(middles + shift, means, yerr=errors, color=colour(place), marker=mark(place), markersize=6,
                          linewidth=1.2, markeredgecolor=PAPER, markeredgewidth=0.8, label=_short(arm.arm))  # fmt: skip
        if not drawn:
            return None
        axes.set_xlim(-0.05, 1.05)
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.set_xlabel("valid share of the drafter's window")
        axes.set_ylabel(f"tokens per verify step (1 to {drafts + 1})")
        axes.set_ylim(bottom=1)
        _legend(axes)
        svg = sheet.svg("Acceptance length by drafter-window coverage")
    caption = "Small dots are requests; large ones means of a tenth of the axis with two standard errors."
    return Plot("Acceptance length by drafter-window coverage", svg, caption)


def occupancy(arms: Sequence[Evidence]) -> Iterator[Plot]:
    """Pages in use over time, a plot a lifecycle's pool: solid what requests hold, thin what could be reclaimed."""
    frames = [None if arm.course is None else arm.course.occupancy for arm in arms]
    pools = dict.fromkeys(pool for frame in frames if frame is not None for pool in texts(frame, "pool"))
    for number, pool in enumerate(pools):
        with Sheet(f"occupancy{number}") as sheet:
            axes = sheet.axes
            for place, frame in enumerate(frames):
                if frame is None or pool not in (names := texts(frame, "pool")):
                    continue
                seconds, used, reusable = _of_pool(rows(frame, [name == pool for name in names]))
                for column, width, label in ((used, 1.6, arms[place].arm), (reusable, 0.9, "")):
                    x, y = _highest(seconds, column)
                    axes.plot(x, y, color=colour(place), linewidth=width, linestyle=dash(place), label=_short(label),
                              alpha=1 if label else 0.8, drawstyle="steps-post")  # fmt: skip
            axes.set_xlabel("seconds of the simulated clock")
            axes.set_ylabel("pages")
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(FuncFormatter(thousands))
            _legend(axes)
            svg = sheet.svg(f"Occupancy of pool {pool} over time")
        yield Plot(f"Occupancy of pool {pool}", svg, "Strong: held by requests. Thin: cached pages that nobody holds.")


def latency(arms: Sequence[Evidence], column: str, heading: str, name: str) -> Plot | None:
    """Distribution of a latency: the share of requests within it, first turns above continuations."""
    parts = []
    for label, later in (("first turns", False), ("continuations", True)):
        values = [floats(rows(arm.requests, (floats(arm.requests, "turn") > 0) == later), column) for arm in arms]
        values = [np.sort(one[one >= 0]) for one in values]
        if any(len(one) for one in values):
            parts.append((label, values))
    if not parts:
        return None
    with Sheet(name, rows=len(parts), height=HEIGHT * (1.25 if len(parts) > 1 else 1), head=22) as sheet:
        for axes, (label, values) in zip(sheet.rows, parts, strict=True):
            for place, one in enumerate(values):
                if len(one):
                    _line(axes, one, np.arange(1, len(one) + 1) / len(one), place, arms[place].arm)
            axes.set_title(label, loc="left", color=FAINT, fontsize=10.5, pad=5)
            axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            axes.set_yticks([0, 0.5, 0.9] if len(parts) > 1 else [0, 0.25, 0.5, 0.75, 0.9, 1])
            axes.set_ylim(0, 1.03)
        low, high = sheet.axes.get_xlim()
        if min(float(one[0]) for _, values in parts for one in values if len(one)) > 0 and high > 8 * max(low, 1e-3):
            sheet.axes.set_xscale("log")
        for axes in sheet.rows:
            axes.xaxis.set_major_formatter(FuncFormatter(_plain))
            axes.xaxis.set_minor_formatter(FuncFormatter(_sparse))
            axes.tick_params(axis="x", which="minor", labelsize=9, size=2)
        sheet.rows[-1].set_xlabel("milliseconds")
        _legend(sheet.axes)
        svg = sheet.svg(heading)
    return Plot(heading, svg, "Share of the requests that had it within so long.")


def step_time(arms: Sequence[Evidence]) -> Plot | None:
    """Median duration of an iteration by its verify rows, for iterations without a chunk; whiskers p10 to p90."""
    with Sheet("steps") as sheet:
        axes, drawn = sheet.axes, False
        for place, arm in enumerate(arms):
            frame = None if arm.course is None else arm.course.iterations
            if frame is None:
                continue
            plain = rows(frame, (ints(frame, "chunks") == 0) & (ints(frame, "steps") > 0))
            if plain.empty:
                continue
            drawn = True
            x, low, middle, high = _spread(ints(plain, "steps"), floats(plain, "duration") / 1e6)
            axes.fill_between(x, low, high, color=colour(place), alpha=0.15, linewidth=0)
            axes.plot(x, middle, color=colour(place), linestyle=dash(place), label=_short(arm.arm),
                      marker=mark(place) if len(x) < 20 else None, markersize=4)  # fmt: skip
        if not drawn:
            return None
        axes.set_xlabel("verify rows in the batch")
        axes.set_ylabel("milliseconds")
        axes.set_ylim(bottom=0)
        _legend(axes, "lower right")
        svg = sheet.svg("Step time by batch")
    return Plot("Step time by batch", svg, "Iterations that prefill nothing: median, and the band from p10 to p90.")


# -- parts -------------------------------------------------------------------------------------------------------------

BESIDE = {"textcoords": "offset points", "va": "center", "color": INK, "fontsize": 10}


def thousands(value: float, _: int | None = None) -> str:
    """``1.2M``, ``350K``, ``80``."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def _plain(value: float, _: int | None = None) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def _sparse(value: float, _: int | None = None) -> str:
    """A label for 2 and 5 of each decade alone."""
    return _plain(value) if f"{value:e}"[0] in "25" else ""


def _short(name: str, most: int = 30) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _coverage(rows: pd.DataFrame) -> str:
    return "coverage_mean" if "coverage_mean" in rows else "coverage_first"


def _of_pool(frame: pd.DataFrame) -> tuple[Floats, Floats, Floats]:
    """Seconds, used and reusable pages of one pool, of all workers together at every look of any of them."""
    times, place = np.unique(ints(frame, "time_ns"), return_inverse=True)
    worker = ints(frame, "worker")
    sums = np.zeros((2, len(times)))
    for one in np.unique(worker):
        mine = worker == one
        last = np.full(len(times), -1)
        last[place[mine]] = np.flatnonzero(mine)  # the last look at a time counts
        last = np.maximum.accumulate(last)
        for row, name in enumerate(("used", "reusable")):
            sums[row] += np.where(last >= 0, floats(frame, name)[last], 0)
    return times / 1e9, sums[0], sums[1]


def _spread(groups: Ints, values: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """For each group, in order: its number, and p10, median and p90 of its values."""
    found = [(group, *np.quantile(values[groups == group], (0.1, 0.5, 0.9))) for group in np.unique(groups)]
    group, low, middle, high = np.array(found, dtype=np.float64).T
    return group, low, middle, high


def _binned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean of x, mean of y and two standard errors of it, for each tenth of [0, 1] that has a point."""
    places = np.minimum((x * BINS).astype(int), BINS - 1)
    rows = []
    for place in np.unique(places):
        here = places == place
        count = int(here.sum())
        error = 2 * float(y[here].std(ddof=1)) / count**0.5 if count > 1 else 0.0
        rows.append((float(x[here].mean()), float(y[here].mean()), error))
    columns = np.array(rows).T
    return columns[0], columns[1], columns[2]


def _line(axes: Axes, x: np.ndarray, y: np.ndarray, place: int, label: str) -> None:
    """A line of at most :data:`POINTS` points, the last one among them."""
    keep = np.unique(np.linspace(0, len(x) - 1, min(len(x), POINTS)).round().astype(int))
    axes.plot(x[keep], y[keep], color=colour(place), linestyle=dash(place), label=_short(label) or None)


def _highest(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most :data:`POINTS` points of a line, each the highest of its stretch: no peak is lost."""
    if len(x) <= POINTS:
        return x, y
    starts = np.unique(np.linspace(0, len(x) - 1, POINTS).astype(int))
    return np.append(x[starts], x[-1]), np.append(np.maximum.reduceat(y, starts), y[-1])


def _builds(axes: Axes, arms: Sequence[Evidence]) -> None:
    """Builds down the side, in their order."""
    axes.set_ylim(len(arms) - 0.45, -0.55)
    axes.set_yticks(range(len(arms)), [_short(arm.arm, 18) for arm in arms], color=INK)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.axvline(0, color=GRID, linewidth=0.9)


def _legend(axes: Axes, place: Literal["best", "lower right"] = "best") -> None:
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(loc=place, handlelength=2.6, labelspacing=0.25, borderaxespad=0.2)
