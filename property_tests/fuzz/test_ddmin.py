"""Delta debugging of plain lists."""

from __future__ import annotations

from itertools import product

import pytest

from property_tests.fuzz.ddmin import ddmin


@pytest.mark.parametrize("needed", [(), (0,), (19,), (3, 4), (0, 7, 19), (1, 5, 9, 13, 17)])
def test_what_is_needed_is_left(needed: tuple[int, ...]) -> None:
    assert ddmin(tuple(range(20)), lambda items: items if {*needed} <= {*items} else None, lambda: False) == needed


def test_no_single_item_can_be_left_out_of_what_is_left() -> None:
    """Items that need each other: where one of a pair is gone, a later one may go, too."""

    def fails(items: tuple[int, ...]) -> bool:
        return 9 in items and (4 in items or 2 in items) and (2 not in items or 1 in items)

    def left_of(items: tuple[int, ...]) -> tuple[int, ...] | None:
        return items if fails(items) else None

    for size, extra in product(range(10, 14), range(3)):
        left = ddmin((*range(size), *range(20, 20 + extra)), left_of, lambda: False)
        assert fails(left)
        assert not any(fails(left[:place] + left[place + 1 :]) for place in range(len(left)))


def test_a_candidate_may_leave_less_than_it_has() -> None:
    """A run that repairs its program says what of it was carried out."""
    left = ddmin(
        (1, -1, 2, -2, 3), lambda items: tuple(n for n in items if n > 0) if 2 in items else None, lambda: False
    )
    assert left == (2,)


def test_a_budget_that_is_spent_ends_it_with_what_fails() -> None:
    tried: list[tuple[int, ...]] = []

    def left_of(items: tuple[int, ...]) -> tuple[int, ...] | None:
        tried.append(items)
        return items if 63 in items else None

    left = ddmin(tuple(range(64)), left_of, lambda: len(tried) >= 3)
    assert len(tried) == 3
    assert 63 in left
    assert 1 < len(left) < 64
