"""Colours and text of the plots of a page, and the SVG that matplotlib makes of them.

A plot is drawn once for light and dark: where a colour stands for a role of the page, matplotlib is given a
placeholder, and the SVG names the page's CSS variable in its place.
"""

from __future__ import annotations

import re
from html import escape
from io import StringIO
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no display is needed, and none is looked for

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, FAINT, GRID, PAPER, WARN = "#010101", "#010102", "#010103", "#010104", "#010105"
SERIES = tuple(f"#0102{number:02x}" for number in range(8))  # of the builds, in their order
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
MARKS = "osD^vPX*"
_VARIABLES = {
    INK: "--ink",
    FAINT: "--faint",
    GRID: "--grid",
    PAPER: "--paper",
    WARN: "--bad",
    **{colour: f"--s{number}" for number, colour in enumerate(SERIES)},
}
WIDTH, HEIGHT = 400 / 72, 262 / 72  # inches; a point is a unit of the SVG
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # names of builds are no formulas
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.titlesize": 11.5,
    "axes.labelsize": 10.5,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "legend.fontsize": 10,
    "path.simplify": True,
    "path.simplify_threshold": 0.4,
    "text.color": INK,
    "axes.labelcolor": FAINT,
    "axes.edgecolor": GRID,
    "axes.linewidth": 0.9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": FAINT,
    "ytick.labelcolor": FAINT,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "lines.linewidth": 1.7,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


def colour(place: int) -> str:
    """The colour of the build at ``place``."""
    return SERIES[place % len(SERIES)]


def dash(place: int) -> Any:
    """The dashes of its lines: a build is told by more than its colour."""
    return DASHES[place % len(DASHES)]


def mark(place: int) -> str:
    """The marker of its points."""
    return MARKS[place % len(MARKS)]


class Sheet:
    """A figure under the style of the page, as a context: ``axes`` to draw on, then :meth:`svg`.

    ``name`` tells its ids from those of the other figures of a page. ``rows`` of axes share x. Margins are fixed (to
    lay them out by the text takes longer than to draw): ``left`` is the room for the labels of y, in units.
    """

    def __init__(self, name: str, rows: int = 1, height: float = HEIGHT, left: int = 52, head: int = 10) -> None:
        self.name = name
        self._style = rc_context({**_STYLE, "svg.hashsalt": f"kvtwin {name}"})  # type: ignore[arg-type]
        self._shape = (rows, height, left, head)

    def __enter__(self) -> Sheet:
        self._style.__enter__()
        rows, height, left, head = self._shape
        self.figure = Figure(figsize=(WIDTH, height))
        x, y = 1 / (72 * WIDTH), 1 / (72 * height)
        gap = 0.2 if rows > 1 else 0.0
        self.figure.subplots_adjust(left * x, 36 * y, 1 - 14 * x, 1 - head * y, hspace=gap)
        self.rows: list[Axes] = list(self.figure.subplots(rows, 1, squeeze=False, sharex=True)[:, 0])
        self.axes = self.rows[0]
        return self

    def __exit__(self, *error: Any) -> None:
        self._style.__exit__(*error)

    def svg(self, title: str) -> str:
        """The figure as an SVG element for a page; ``title`` is what a screen reader says of it."""
        file = StringIO()
        self.figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        return _inlined(file.getvalue(), self.name, title)


def _inlined(text: str, name: str, title: str) -> str:
    """An SVG file as an element among others: no header, no style of its own, ids that no other figure has."""
    body = text[text.index("<svg") :]
    for part in ("metadata", "style"):
        body = re.sub(rf"<{part}[ >].*?</{part}>", "", body, flags=re.DOTALL)
    view = re.search(r'viewBox="([^"]+)"', body)
    assert view is not None
    used = set(re.findall(r'(?:url\(#|href="#)([\w-]+)', body))
    body = re.sub(r"<[^!>]+>", lambda tag: _tag(tag[0], name, used), body[body.index(">") + 1 :])
    body = re.sub(r"<!--.*?-->|<defs>\s*</defs>|<g>\s*</g>|<g/>", "", body, flags=re.DOTALL)
    body = re.sub(r"\s*\n\s*", "\n", body)
    return f'<svg viewBox="{view[1]}" role="img" aria-label="{escape(title)}">{body}'


def _tag(tag: str, name: str, used: set[str]) -> str:
    """A tag with its ids in the name of the figure, the page's font and colours, and coordinates of two decimals."""
    tag = re.sub(r' id="([^"]*)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", tag)
    tag = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", tag)
    tag = tag.replace("font-family: 'DejaVu Sans'", "font-family: inherit")
    for placeholder, variable in _VARIABLES.items():
        tag = tag.replace(placeholder, f"var({variable})")
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), tag)
