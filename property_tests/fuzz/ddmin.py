"""Delta debugging of a list: leave out halves, quarters, down to single items, for as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
Items = tuple[T, ...]


def ddmin(items: Items[T], left_of: Callable[[Items[T]], Items[T] | None], spent: Callable[[], bool]) -> Items[T]:
    """What is left of ``items`` when no single one of them can be left out, or when the budget is ``spent``.

    ``left_of`` runs a candidate: what of it is needed to fail, no longer than it is, or ``None`` where it passes. The
    last items are left out first: what comes early is what later ones stand on.
    """
    size = max(1, len(items) // 2)
    while items and not spent():
        end, dropped = len(items), False
        while end > 0 and not spent():
            start = max(0, end - size)
            left = left_of(items[:start] + items[end:])
            if left is not None:
                items, dropped = left, True
            end = min(start, len(items))
        if size == 1 and not dropped:
            break
        size = max(1, size // 2)
    return items
