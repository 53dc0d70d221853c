"""The figures of the seeds, each computed by running the model: exact ones, measured shapes, and what a step costs."""

from __future__ import annotations

from reports.figures.base import Figure
from reports.figures.claims import CLAIMS
from reports.figures.exact import EXACT
from reports.figures.shapes import SHAPES
from reports.figures.steps import STEPS
from reports.figures.warmup import WARMUP

_ALL = (*EXACT, *CLAIMS, *SHAPES, *WARMUP, *STEPS)


def _order(figure: Figure) -> tuple[int, int]:
    """Exact figures, then shapes, then costs of a step, each by number."""
    return "XSC".index(figure.id[0]), int(figure.id[1:])


FIGURES: dict[str, Figure] = {figure.id: figure for figure in sorted(_ALL, key=_order)}
