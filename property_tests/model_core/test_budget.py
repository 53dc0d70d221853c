"""Budgets: who gets which bytes, and how many pages these are."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.budget import (
    GIB,
    BudgetError,
    Cost,
    Pair,
    admissible_sequences,
    below_resume_gate,
    draft_cost,
    drafter_window_pages,
    gib,
    pages_for,
    split_device,
    split_host,
    split_host_paired,
    table_columns,
    trailing_charge,
    window_pages,
)
from model.geometry import Lifecycle

from .seed_003 import HOST, M3_DRAFTER, SEPARATE_SHARE, TP2_PAGES, TP4_PAGES

KIB, MIB = 1 << 10, 1 << 20

costs = st.builds(Cost, slope=st.integers(0, 10**6), intercept=st.integers(0, 10**9))
budgets = st.integers(0, 10**13)
counts = st.integers(1, 10**6)


def summed(one: Cost, other: Cost) -> Cost:
    return Cost(one.slope + other.slope, one.intercept + other.intercept)


# --- the split of the device --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "target", "shares"),
    [
        pytest.param(Cost(100), Cost(80), Pair(8 * GIB, 2 * GIB), id="slopes of 100 and 80"),
        pytest.param(Cost(100, GIB), Cost(100), Pair(9 * GIB, GIB), id="fixed-only draft"),
        pytest.param(Cost(0, 3 * GIB), Cost(0, 2 * GIB), Pair(9 * GIB, GIB), id="both fixed, spare to the target"),
        pytest.param(Cost(20, 6 * GIB), Cost(0, 6 * GIB), Pair(6 * GIB, 4 * GIB), id="target fixed-only"),
        pytest.param(Cost(100, 5 * GIB), Cost(80, GIB), Pair(5 * GIB, 5 * GIB), id="slopes and intercepts"),
    ],
)
def test_a_device_budget_of_10_gib(total: Cost, target: Cost, shares: Pair) -> None:
    assert split_device(10 * GIB, total, target) == shares


def test_there_is_no_split_without_a_draft_cost_or_without_a_budget() -> None:
    assert split_device(10 * GIB, Cost(80, GIB), Cost(80, GIB)) is None
    assert split_device(None, Cost(100), Cost(80)) is None


@pytest.mark.parametrize(
    ("budget", "total", "target"),
    [(GIB, Cost(100, GIB), Cost(80)), (GIB, Cost(100, 2 * GIB), Cost(80)), (GIB, Cost(0, 2 * GIB), Cost(0, GIB))],
    ids=["nothing left to grow in", "fixed costs too high", "two fixed costs too high"],
)
def test_fixed_costs_that_leave_no_room_are_an_error(budget: int, total: Cost, target: Cost) -> None:
    with pytest.raises(BudgetError, match="a budget of 1,073,741,824 bytes has no room beside fixed costs of"):
        split_device(budget, total, target)


@pytest.mark.parametrize("target", [Cost(101), Cost(80, 1)])
def test_a_target_cannot_cost_more_than_target_and_draft(target: Cost) -> None:
    with pytest.raises(BudgetError, match="the target alone costs more"):
        split_device(10 * GIB, Cost(100), target)


@given(budget=budgets, target=costs, draft=costs)
def test_the_shares_are_the_whole_budget_and_hold_equally_many_tokens(budget: int, target: Cost, draft: Cost) -> None:
    """TensorRT-LLM#12188: two managers that each take the whole budget run out of memory at first use."""
    total = summed(target, draft)
    assert draft_cost(total, target) == draft
    fits = budget > total.intercept or (total.slope == 0 and budget == total.intercept)
    if draft == Cost(0, 0):
        assert split_device(budget, total, target) is None
    elif not fits:
        with pytest.raises(BudgetError):
            split_device(budget, total, target)
    else:
        shares = split_device(budget, total, target)
        assert shares is not None
        assert sum(shares) == budget
        tokens = (budget - total.intercept) // total.slope if total.slope else 0
        assert target.at(tokens) <= shares.target
        assert draft.at(tokens) <= shares.draft
        if total.slope:
            assert shares.target < target.at(tokens + 1) or target.slope == 0
            assert shares.draft <= draft.at(tokens + 1)


def test_a_budget_of_100_units_at_4_and_1_a_token_holds_20_tokens_in_each_pool() -> None:
    assert split_device(100, Cost(5), Cost(4)) == Pair(80, 20)


# --- the split of the host ----------------------------------------------------------------------------------------


@given(host=budgets, target=costs, draft=costs)
def test_host_shares_follow_the_slopes_and_sum_to_the_host_budget(host: int, target: Cost, draft: Cost) -> None:
    shares = split_host(host, summed(target, draft), target)
    assert sum(shares) == host
    if draft.slope == 0:
        assert shares == Pair(host, 0)
    else:
        ratio = Fraction(target.slope, target.slope + draft.slope)
        assert 0 <= host * ratio - shares.target < 1


@given(host=budgets, draft_device=budgets)
def test_a_paired_drafter_gets_its_device_funding_but_at_most_half_the_host(host: int, draft_device: int) -> None:
    shares = split_host_paired(host, draft_device)
    assert sum(shares) == host
    assert shares.draft == draft_device or (shares.draft == host // 2 < draft_device)
    assert shares.draft <= shares.target


def test_the_paired_pool_of_seed_003_leaves_64_57_of_82_89_gib_to_the_target() -> None:
    draft_device = SEPARATE_SHARE * 88 * TP2_PAGES.draft
    shares = split_host_paired(HOST, draft_device)
    assert [round(gib(size), 2) for size in (HOST, draft_device, shares.draft, shares.target)] == [
        82.89,
        18.32,
        18.32,
        64.57,
    ]


# --- pages --------------------------------------------------------------------------------------------------------


def test_pages_of_the_draft_groups_of_seed_003_in_gib() -> None:
    assert TP2_PAGES.draft == M3_DRAFTER.bytes_per_page(128, tensor_parallel=2)
    assert TP4_PAGES.draft == M3_DRAFTER.bytes_per_page(128, tensor_parallel=4)
    assert round(gib(6_092 * TP2_PAGES.draft), 2) == 3.72
    assert round(gib(4_505 * TP4_PAGES.draft), 3) == 1.375


@given(size=budgets, page_bytes=counts)
def test_only_whole_pages_count(size: int, page_bytes: int) -> None:
    pages = pages_for(size, page_bytes)
    assert pages * page_bytes <= size < (pages + 1) * page_bytes


def test_a_window_of_4096_with_the_headroom_of_seven_drafts_is_34_pages() -> None:
    assert window_pages(4096, 128) == 32
    assert drafter_window_pages(4096, 128, drafts=7, extra_tokens=8) == 34
    assert drafter_window_pages(4096, 128, drafts=7, extra_tokens=8, trail=128) == 35


@pytest.mark.parametrize(("window", "pages"), [(3, 3), (4, 3), (5, 4), (8, 4), (9, 5)])
def test_the_bonus_token_is_part_of_the_headroom(window: int, pages: int) -> None:
    """Three drafts, the bonus token and one extra token on pages of 4: cdiv(window + 4, 4) + 1."""
    assert drafter_window_pages(window, 4, drafts=3, extra_tokens=1) == pages


def test_the_charge_comes_from_the_drafters_window_not_the_targets() -> None:
    """A drafter's window of 512 tokens is 6 pages; charged as the target's 16K it would be 130."""
    assert drafter_window_pages(512, 128, drafts=7, extra_tokens=8) == 6
    assert drafter_window_pages(16_384, 128, drafts=7, extra_tokens=8) == 130


@given(
    window=st.integers(1, 40),
    page_size=st.sampled_from([1, 2, 4, 8, 16]),
    drafts=st.integers(1, 7),
    extra=st.integers(0, 9),
    trail=st.integers(0, 16),
)
def test_a_sequence_never_backs_more_pages_than_its_drafter_is_charged(
    window: int, page_size: int, drafts: int, extra: int, trail: int
) -> None:
    step = extra + drafts + 1
    lifecycle = Lifecycle("draft", "draft", "draft", window=window, trail=trail)
    most = max(lifecycle.live_blocks(history, history + step, page_size) for history in range(200))
    charged = drafter_window_pages(window, page_size, drafts, extra, trail)
    assert most <= charged <= most + 1


@given(window=st.integers(1, 40), page_size=st.integers(2, 16))
def test_the_plain_charge_of_a_window_misses_the_page_it_straddles(window: int, page_size: int) -> None:
    lifecycle = Lifecycle("draft", "draft", "draft", window=window)
    most = lifecycle.peak_blocks(longest=1_000, step=1, page_size=page_size)
    assert most - 1 <= window_pages(window, page_size) <= most


def test_the_trailing_page_is_320_kib_a_request() -> None:
    """Seed 002: pages of 32 tokens, before tensor parallelism; one page for each windowed group of layers."""
    page_bytes = M3_DRAFTER.bytes_per_page(32)
    assert trailing_charge(page_bytes) == 320 * KIB
    assert trailing_charge(page_bytes, requests=64) == 20 * MIB
    assert trailing_charge(page_bytes, requests=2, windowed_lifecycles=3) == 6 * 320 * KIB
    without, with_trail = (drafter_window_pages(4096, 32, 7, 8, trail) for trail in (0, 32))
    assert trailing_charge(page_bytes) == (with_trail - without) * page_bytes


def test_the_block_table_of_the_overlap_scheduler() -> None:
    """Seed 003: 177 rows for 88 batch slots and 8,193 columns for a million tokens."""
    assert admissible_sequences(88, run_ahead=1) == 177
    assert admissible_sequences(88, run_ahead=0) == 89
    assert table_columns(1_048_576, 128) == 8_193


@given(pages=st.integers(0, 10**6), hundredths=st.integers(50, 100))
def test_a_pool_below_its_resume_gate_is_no_larger_than_needed(pages: int, hundredths: int) -> None:
    gate = Fraction(hundredths, 100)
    pool = below_resume_gate(pages, hundredths / 100)
    assert pool == ceil(pages / gate)
    assert pages <= gate * pool


def test_97_pages_at_a_gate_of_097_are_a_pool_of_100() -> None:
    assert below_resume_gate(97, 0.97) == 100
