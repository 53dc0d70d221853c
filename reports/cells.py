"""A cell of a table: a figure as text, or a dash where there is none."""

from __future__ import annotations

from typing import Any

NONE = "–"


def shown(value: Any, pattern: str) -> str:
    """A cell: a figure that a run does not have (``None`` or NaN) is a dash, never a zero."""
    return NONE if value is None or value != value else pattern.format(value)
