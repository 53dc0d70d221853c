"""X13: a drafter slot that was seeded on a page boundary trails its request, and needs one page below its window."""

from __future__ import annotations

import pytest

from model.builds import BUILDS
from model.drafter import SlotState
from sim.slot_lag import released_reads

PAGE = 128


@pytest.mark.parametrize("lag", [7, 31, 127])
def test_without_the_trailing_page_a_slot_reads_released_entries(lag: int) -> None:
    assert released_reads(lag, (2, 3, 4, 5), trail=0) > 0


def test_a_lag_that_every_step_makes_up_for_is_clean() -> None:
    assert released_reads(2, (2, 3, 4, 5), trail=0) == 0


@pytest.mark.parametrize("lag", [2, 7, 31, 127])
def test_with_the_trailing_page_no_lag_reads_a_released_entry(lag: int) -> None:
    assert released_reads(lag, (2, 3, 4, 5), trail=PAGE) == 0
    assert released_reads(lag, (1,), trail=PAGE) == 0


def test_one_token_a_step_breaks_even_a_lag_of_two_and_eight_make_up_for_seven() -> None:
    assert released_reads(2, (1,), trail=0) > 0
    assert released_reads(7, (8,), trail=0) == 0


def test_a_slot_is_seeded_on_the_page_boundary_only_where_a_trailing_page_is_kept() -> None:
    rule = BUILDS["mirror-21281"].rules.slots
    assert rule.returning(None, 10 * PAGE + 7, PAGE, trailing=True) == SlotState(10, 10 * PAGE)
    assert rule.returning(None, 10 * PAGE + 7, PAGE, trailing=False) == SlotState(11, 10 * PAGE + 7)
