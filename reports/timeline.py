"""The picture of a failure: requests over ops, the pages behind each, and a red mark where the law broke.

Time runs to the right, an op a column. Each request has a lane for each lifecycle, the target's above the drafter's,
with a cell for each block that is backed: the slot that backs it, in the colour of the request that the page was
granted to. So a page that one request claimed from another shows the other's colour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from model.invariants import INVARIANTS, Violation
from reports.failure_story import noticed, op_words
from reports.plots import BROKEN, DPI, FAINT, INK
from sim.sampling import Lane, Sample

MOST_OPS = 200  # columns; of a longer trace the last ones are drawn
_MOST_ROWS = 16  # of a lane; with more blocks a cell stands for several
_COLOURS = ("#9cc3e6", "#f4c27a", "#a5d6a7", "#d7a9dc", "#f2a59d", "#c8c08a", "#8fd3cf", "#b9b5e0")
_UNKNOWN = "#d9d9d9"
_CLAIM, _PUBLISH, _WINDOW = "#1f5fa8", "#1b7a3d", "#6a3d9a"
_ROW_INCHES, _HEAD_INCHES = 0.19, 1.75
_STYLE = {"svg.hashsalt": "kvtwin", "svg.fonttype": "none", "font.family": "DejaVu Sans"}

Key = tuple[int, int, int]  # worker, request, place of the lane


@dataclass(slots=True)
class _Track:
    """A lane of the picture: from which row on it is drawn, its lowest block, and how many blocks a cell stands for."""

    label: str
    pool: str
    worker: int
    request: int
    lowest: int
    highest: int
    top: float = 0.0

    @property
    def stride(self) -> int:
        return -(-(self.highest - self.lowest) // _MOST_ROWS) if self.highest > self.lowest else 1

    @property
    def rows(self) -> int:
        return max(1, -(-(self.highest - self.lowest) // self.stride))

    def row(self, block: float) -> float:
        """Where a block begins, counted downwards."""
        return self.top + (block - self.lowest) / self.stride


@dataclass(slots=True)
class _Sheet:
    """Everything about one picture that does not change from column to column."""

    samples: Sequence[Sample]
    page: int
    left_out: int
    tracks: dict[Key, _Track] = field(default_factory=dict)
    colours: dict[int, str] = field(default_factory=dict)
    bottom: float = 0.0
    several: bool = False

    @property
    def cell(self) -> float:
        """Width of a column in inches."""
        return min(0.62, max(0.2, 40 / len(self.samples)))

    @property
    def small(self) -> float:
        """Size of the text in a cell; 0 where it would not fit."""
        return 7.0 if self.cell > 0.34 else 5.5 if self.cell > 0.24 else 0.0


def timeline(samples: Sequence[Sample], violation: Violation, page_size: int, build: str) -> Figure:
    """The picture of ``samples``, the last of which is the op that broke the law."""
    shown = [sample for sample in samples if sample.op is not None or sample.violations]
    sheet = _Sheet(shown[-MOST_OPS:], page_size, max(0, len(shown) - MOST_OPS))
    sheet.several = any("@" in pool for pool in sheet.samples[-1].free)
    _lay_out(sheet, violation)
    pools = list(sheet.samples[0].free)
    width = max(10.5, 2.1 + sheet.cell * len(sheet.samples))
    height = _HEAD_INCHES + 1.25 + _ROW_INCHES * (sheet.bottom + len(pools) + 1)
    figure = Figure(figsize=(width, height), dpi=DPI)
    side, head, foot = 1.75 / width, _HEAD_INCHES / height, 0.85 / height
    span = sheet.cell * len(sheet.samples) / width
    axes = figure.add_axes((side, foot, min(span, 1 - side - 0.01), 1 - head - foot))
    axes.set_xlim(0, len(sheet.samples))
    axes.set_ylim(sheet.bottom + len(pools) + 1, 0)
    axes.axis("off")
    _frame(axes, sheet)
    for place, sample in enumerate(sheet.samples):
        _column(axes, sheet, place, sample)
    _free(axes, sheet, pools)
    _mark(axes, sheet, violation)
    _title(figure, sheet, violation, build, width, height)
    _legend(figure, sheet, width)
    return figure


def write_timeline(path: Path, figure: Figure) -> None:
    """Write an SVG (or what the ending of ``path`` says); its bytes depend on the failure only."""
    metadata = {"Date": None, "Creator": "kvtwin"} if path.suffix == ".svg" else {"Software": "kvtwin"}
    with rc_context(_STYLE):  # type: ignore[arg-type]
        figure.savefig(path, metadata=metadata)


# -- where things stand ------------------------------------------------------------------------------------------------


def _lay_out(sheet: _Sheet, violation: Violation) -> None:
    """A track for each lane that is ever there, requests in the order of arrival, and a colour for each request."""
    broken = (violation.request, violation.pool, violation.position // sheet.page)
    for sample in sheet.samples:
        for standing in sample.standings:
            sheet.colours.setdefault(standing.request, _COLOURS[len(sheet.colours) % len(_COLOURS)])
            for place, lane in enumerate(standing.lanes):
                ordinals = [block.ordinal for block in lane.blocks] or [lane.frontier // sheet.page]
                if (standing.request, lane.pool) == broken[:2] and violation.position >= 0:
                    ordinals.append(broken[2])  # it may not be backed: that is what is wrong
                key = (standing.worker, standing.request, place)
                track = sheet.tracks.get(key)
                if track is None:
                    name = (_label(lane), lane.pool, standing.worker, standing.request)
                    track = sheet.tracks[key] = _Track(*name, min(ordinals), max(ordinals) + 1)
                track.lowest = min(track.lowest, *ordinals)
                track.highest = max(track.highest, max(ordinals) + 1, -(-lane.frontier // sheet.page))
    sheet.tracks = dict(sorted(sheet.tracks.items(), key=lambda entry: _order(sheet, entry[0])))
    top, before = 0.7, None
    for (worker, request, _), track in sheet.tracks.items():
        top += 1.6 if before not in (None, (worker, request)) else 0.9
        before = (worker, request)
        track.top = top
        top += track.rows
    sheet.bottom = top + 1.2


def _order(sheet: _Sheet, key: Key) -> tuple[int, int, int]:
    return list(sheet.colours).index(key[1]), key[0], key[2]


def _label(lane: Lane) -> str:
    side = "draft" if lane.draft else "target"
    return side if lane.name == side else f"{side} {lane.name}"


def _frame(axes: Axes, sheet: _Sheet) -> None:
    """Names of the lanes at the left, names of the ops above, a faint line for every iteration."""
    before = None
    for track in sheet.tracks.values():
        if before not in (None, (track.worker, track.request)):
            axes.axhline(track.top - 1.2, color="#bbbbbb", linewidth=0.7)
        if before != (track.worker, track.request):
            name = f"request {track.request}" + (f" @{track.worker}" if sheet.several else "")
            colour = sheet.colours[track.request]
            axes.text(-0.15, track.top - 0.05, name, ha="right", va="bottom", fontsize=9, fontweight="bold", color=INK)
            axes.plot([-0.08, -0.08], [track.top - 0.9, track.top], color=colour, linewidth=5, clip_on=False)
        before = (track.worker, track.request)
        per_cell = f", {track.stride} pages a cell" if track.stride > 1 else ""
        text = f"{track.label}\nblocks {track.lowest}-{track.highest - 1}{per_cell}"
        axes.text(-0.15, track.top + 0.1, text, ha="right", va="top", fontsize=7.5, color=FAINT, linespacing=1.1)
    iteration = None
    for place, sample in enumerate(sheet.samples):
        axes.text(place + 0.42, -0.1, op_words(sample.op), rotation=52, ha="left", va="bottom", fontsize=7.5, color=INK)
        if sample.iteration != iteration:
            axes.axvline(place, color="#dddddd", linewidth=0.6, zorder=0)
            if iteration is not None or sample.iteration:
                axes.text(place + 0.04, 0.12, f"it {sample.iteration}", fontsize=6, color=FAINT, va="top")
            iteration = sample.iteration


# -- a column ----------------------------------------------------------------------------------------------------------


def _column(axes: Axes, sheet: _Sheet, place: int, sample: Sample) -> None:
    for standing in sample.standings:
        for number, lane in enumerate(standing.lanes):
            track = sheet.tracks[standing.worker, standing.request, number]
            _lane(axes, sheet, place, track, lane, sample)
    if sample.violations and place:  # what ended with the very op that broke the law is shown once more, faded
        there = {(standing.worker, standing.request) for standing in sample.standings}
        for standing in sheet.samples[place - 1].standings:
            if (standing.worker, standing.request) not in there:
                for number, lane in enumerate(standing.lanes):
                    track = sheet.tracks[standing.worker, standing.request, number]
                    _lane(axes, sheet, place, track, lane, None)
    words: dict[Key, list[str]] = {}
    for happening in sample.happenings:
        word = _WORDS.get(happening.kind)
        key = next((key for key in sheet.tracks if key[:2] == (happening.worker, happening.request)), None)
        if word is not None and key is not None:
            words.setdefault(key, []).append(word.format(**happening.fields))
    for key, told in words.items():
        text, top = "\n".join(dict.fromkeys(told[-2:])), sheet.tracks[key].top - 0.12
        axes.text(place + 0.05, top, text, ha="left", va="bottom", fontsize=6.2, color=_CLAIM, linespacing=1.0)


_WORDS = {
    "claim": "claims {tokens}",
    "finish": "finished",
    "cancel": "cancelled",
    "suspend": "suspended",
    "preempt": "preempted",
    "refuse": "no pages",
    "defer": "waits for {behind}",
    "send": "sent",
    "arrive": "arrived",
    "abort": "transfer lost",
}


def _touched(sample: Sample | None, kind: str) -> set[tuple[int, str, int]]:
    """(worker, pool, slot) of what was granted, published or copied to with an op."""
    found: set[tuple[int, str, int]] = set()
    for happening in sample.happenings if sample else ():
        if happening.kind == kind:
            fields: dict[str, Any] = happening.fields
            slots = fields["slots"] if kind == "grant" else [fields["slot" if kind == "publish" else "target"]]
            found |= {(happening.worker, fields["pool"], slot) for slot in slots}
    return found


def _lane(axes: Axes, sheet: _Sheet, place: int, track: _Track, lane: Lane, sample: Sample | None) -> None:
    """The pages of one lane after one op; faded where there is no ``sample``: they were given back with the op."""
    granted, published, copied = (_touched(sample, kind) for kind in ("grant", "publish", "copy"))
    for block in lane.blocks:
        spot, row = (track.worker, lane.pool, block.slot), track.row(block.ordinal)
        colour = _UNKNOWN if block.origin is None else sheet.colours.get(block.origin, _UNKNOWN)
        fresh = spot in granted
        cell = Rectangle((place + 0.06, row), 0.88, 1 / track.stride, facecolor=colour, zorder=3 if fresh else 2)
        cell.set(edgecolor=INK if fresh else "white", linewidth=0 if track.stride > 1 else 1.1 if fresh else 0.8)
        cell.set(alpha=1.0 if lane.locked and sample else 0.45)
        if block.on_host or (sample and not lane.locked):
            cell.set_hatch("...." if block.on_host else "////")
        axes.add_patch(cell)
        if track.stride > 1 or not sheet.small:
            continue
        word, ink = f"h{block.slot}" if block.on_host else str(block.slot), INK if lane.locked and sample else FAINT
        axes.text(place + 0.5, row + 0.52, word, ha="center", va="center", fontsize=sheet.small, color=ink)
        if spot in published:
            axes.plot(place + 0.82, row + 0.28, "o", color=_PUBLISH, markersize=3.2, zorder=5)
        if spot in copied:
            axes.plot(place + 0.2, row + 0.5, ">", color=_CLAIM, markersize=3.6, zorder=5)
    _bounds(axes, sheet, place, track, lane)


def _bounds(axes: Axes, sheet: _Sheet, place: int, track: _Track, lane: Lane) -> None:
    """The frontier as a tick across the column, and a bracket over what the window reads."""
    frontier = track.row(lane.frontier / sheet.page)
    for begin, end in ((0.0, 0.2), (0.8, 1.0)):  # at both sides of the number in the cell
        ends = [place + begin, place + end]
        axes.plot(ends, [frontier, frontier], color=INK, linewidth=1.8, zorder=6, solid_capstyle="butt")
    if lane.window_from:
        top = track.row(max(track.lowest, lane.window_from / sheet.page))
        x = place + 0.05
        axes.plot([x + 0.13, x, x, x + 0.13], [top, top, frontier, frontier], color=_WINDOW, linewidth=1.3, zorder=5)


# -- around the columns ------------------------------------------------------------------------------------------------


def _free(axes: Axes, sheet: _Sheet, pools: list[str]) -> None:
    """Free pages of every pool below the lanes, where they change."""
    for row, pool in enumerate(pools):
        y = sheet.bottom + row + 0.4
        axes.text(-0.15, y, f"free in {pool}", ha="right", va="center", fontsize=7.5, color=FAINT)
        before = None
        for place, sample in enumerate(sheet.samples):
            free = sample.free[pool]
            if free != before:
                colour = BROKEN if free == 0 else INK
                axes.text(place + 0.5, y, str(free), ha="center", va="center", fontsize=sheet.small or 5, color=colour)
            before = free


def _mark(axes: Axes, sheet: _Sheet, violation: Violation) -> None:
    """A red column for the op that broke the law, and a red frame around what it names."""
    place = next((place for place, sample in enumerate(sheet.samples) if sample.violations), len(sheet.samples) - 1)
    depth = axes.get_ylim()[0]
    axes.add_patch(Rectangle((place, 0), 1, depth, facecolor=BROKEN, alpha=0.10, edgecolor="none", zorder=1))
    axes.plot([place, place, place + 1, place + 1], [0, depth, depth, 0], color=BROKEN, linewidth=1.0, zorder=4)
    tracks = list(_broken_tracks(sheet, violation))
    cell = _broken_cell(sheet, place, tracks, violation)
    if cell is not None:
        track, block = cell
        row = min(max(track.row(block), track.top), track.top + track.rows - 1)
        axes.plot(place + 0.5, row + 0.5, "x", color=BROKEN, markersize=10, markeredgewidth=1.6, alpha=0.6, zorder=8)
        frames = [(row, 1.0)]
    elif violation.request >= 0:
        frames = [(track.top, float(track.rows)) for track in tracks]
    else:  # of a pool or of the whole step
        frames = []
        axes.plot(place + 0.5, 0.45, "X", color=BROKEN, markersize=9, clip_on=False, zorder=8)
    for row, height in frames:
        frame = Rectangle((place - 0.02, row - 0.06), 1.04, height + 0.12, facecolor="none", edgecolor=BROKEN, zorder=8)
        frame.set_linewidth(2.4)
        axes.add_patch(frame)


def _broken_tracks(sheet: _Sheet, violation: Violation) -> Iterator[_Track]:
    """The lanes that a violation is about: of its worker, request and pool, as far as it names them."""
    for track in sheet.tracks.values():
        of_worker = violation.worker in (-1, track.worker)
        if of_worker and violation.request in (-1, track.request) and violation.pool in ("", track.pool):
            yield track


def _broken_cell(sheet: _Sheet, last: int, tracks: list[_Track], violation: Violation) -> tuple[_Track, int] | None:
    """The track and block that a violation names: where its page was last, else by its position."""
    for sample in reversed(sheet.samples[: last + 1]) if violation.page >= 0 else ():
        for standing in sample.standings:
            for number, lane in enumerate(standing.lanes):
                track = sheet.tracks[standing.worker, standing.request, number]
                for block in lane.blocks if track in tracks else ():
                    if block.slot == violation.page:
                        return track, block.ordinal
    if violation.position >= 0 and violation.request >= 0 and tracks:
        return tracks[0], violation.position // sheet.page
    return None


def _title(figure: Figure, sheet: _Sheet, violation: Violation, build: str, width: float, height: float) -> None:
    where = [f"request {violation.request}"] if violation.request >= 0 else []
    where += [f"worker {violation.worker}"] if violation.worker >= 0 else []
    where += [f"pool {violation.pool}"] if violation.pool else []
    where += [f"page {violation.page}"] if violation.page >= 0 else []
    where += [f"position {violation.position}"] if violation.position >= 0 else []
    title = f"{violation.code} broke on {build}" + (f": {', '.join(where)}" if where else "")
    title += noticed(sheet.samples, violation)
    against = f"; expected {violation.expected}, found {violation.found}" if violation.expected else ""
    law = f"  (law: {INVARIANTS[violation.code].sentence})" if violation.code in INVARIANTS else ""
    text = f"{violation.message}{against}{law}"
    lines = wrap(" ".join(text.split()), int(width * 14.5))[:2]
    if sheet.left_out:
        lines.append(f"The first {sheet.left_out} ops are left out.")
    figure.text(0.12 / width, 1 - 0.1 / height, title, fontsize=12.5, fontweight="bold", color=BROKEN, va="top")
    figure.text(0.12 / width, 1 - 0.36 / height, "\n".join(lines), fontsize=8.5, color=INK, va="top", linespacing=1.25)


def _legend(figure: Figure, sheet: _Sheet, width: float) -> None:
    handles: list[Any] = [
        Patch(facecolor=colour, label=f"granted to request {request}") for request, colour in sheet.colours.items()
    ]
    handles += [
        Patch(facecolor="white", edgecolor=INK, label="granted by this op"),
        Patch(facecolor="#eeeeee", edgecolor="#999999", hatch="////", label="suspended: not locked"),
        Line2D([], [], color=INK, linewidth=1.5, label="frontier (history)"),
        Line2D([], [], color=_WINDOW, linewidth=1.3, label="window of the next query"),
        Line2D([], [], color=_PUBLISH, marker="o", linestyle="none", markersize=4, label="published"),
        Line2D([], [], color=_CLAIM, marker=">", linestyle="none", markersize=4, label="copied from a shared page"),
    ]
    if any(block.on_host for s in sheet.samples for one in s.standings for lane in one.lanes for block in lane.blocks):
        handles.append(Patch(facecolor="#eeeeee", edgecolor="#999999", hatch="....", label="in the host tier"))
    columns = min(len(handles), int(width / 1.9))
    figure.legend(handles=handles, loc="lower left", ncols=columns, frameon=False, fontsize=8, bbox_to_anchor=(0, 0))
