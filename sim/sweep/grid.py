"""A grid: one question, the axes that it runs over in full combination, and what it has to reach to have asked it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from sim.sweep.case import Case

Axes = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Grid:
    """``fast`` and ``full`` map axes to their values; ``case`` makes a case of one combination, or ``None`` where the
    combination means nothing. ``reaches`` names counters of which some must move, or nothing was checked."""

    name: str
    question: str
    reaches: tuple[str, ...]
    fast: Axes
    full: Axes
    case: Callable[..., Case | None]

    def points(self, full: bool) -> list[tuple[dict[str, Any], Case]]:
        """Every combination that means something, with its case; the last axis runs fastest."""
        axes = self.full if full else self.fast
        found = []
        for values in product(*axes.values()):
            point = dict(zip(axes, values, strict=True))
            case = self.case(**point)
            if case is not None:
                found.append((point, case))
        return found
