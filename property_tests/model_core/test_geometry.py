"""Windows, sinks, trailing pages and bytes, against definitions that look at one position at a time."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.geometry import AttentionShape, Lifecycle, ReusePolicy, cdiv, floor_to

KIB = 1024
M3_DRAFTER = AttentionShape(layers=5, kv_heads=4, head_dim=128)


def windowed(window: int | None, sinks: int = 0, trail: int = 0) -> Lifecycle:
    return Lifecycle("draft", "draft", "draft", window=window, sinks=sinks, trail=trail)


page_sizes = st.sampled_from([1, 2, 3, 4, 8, 16])
lifecycles = st.builds(
    windowed, window=st.none() | st.integers(1, 12), sinks=st.integers(0, 9), trail=st.integers(0, 16)
)
histories = st.integers(0, 60)


def attended(lifecycle: Lifecycle, query: int) -> set[int]:
    """Positions that the query at ``query`` reads: causal, within the window, and the sinks."""
    window = lifecycle.window
    return {p for p in range(query + 1) if window is None or query - p < window or p < lifecycle.sinks}


def trailing(lifecycle: Lifecycle, query: int) -> set[int]:
    """Positions kept below the window of ``query``."""
    low = query + 1 - (lifecycle.window or query + 1)
    return set(range(max(0, low - lifecycle.trail), max(0, low)))


def needed_from(lifecycle: Lifecycle, history: int, horizon: int) -> set[int]:
    """Positions that some query from ``history`` on attends, or that the trail keeps for it."""
    needed: set[int] = set()
    for query in range(history, horizon):
        needed |= attended(lifecycle, query) | trailing(lifecycle, query)
    return needed


@given(value=st.integers(0, 10**9), unit=st.integers(1, 10**5))
def test_pages_round_up_and_boundaries_round_down(value: int, unit: int) -> None:
    assert cdiv(value, unit) == ceil(Fraction(value, unit))
    assert floor_to(value, unit) == floor(Fraction(value, unit)) * unit
    assert floor_to(value, unit) <= value <= cdiv(value, unit) * unit


@given(lifecycle=lifecycles, position=histories)
def test_the_read_bound_is_the_first_position_of_the_window(lifecycle: Lifecycle, position: int) -> None:
    without_sinks = windowed(lifecycle.window, trail=lifecycle.trail)
    assert lifecycle.read_from(position) == min(attended(without_sinks, position))


@given(lifecycle=lifecycles, history=histories)
def test_everything_that_will_be_read_is_retained(lifecycle: Lifecycle, history: int) -> None:
    without_sinks = windowed(lifecycle.window, trail=lifecycle.trail)
    needed = needed_from(without_sinks, history, history + 1) | {history}
    assert lifecycle.retained_from(history) == min(needed)


@given(lifecycle=lifecycles, history=histories, page_size=page_sizes)
def test_a_block_is_stale_if_and_only_if_nothing_from_history_on_needs_it(
    lifecycle: Lifecycle, history: int, page_size: int
) -> None:
    horizon = history + page_size + 1
    needed = needed_from(lifecycle, history, horizon)
    blocks = range(cdiv(horizon, page_size))
    stale = [block for block in blocks if needed.isdisjoint(range(block * page_size, (block + 1) * page_size))]
    begin, end = lifecycle.stale_range(history, page_size)
    assert list(range(begin, end)) == stale
    assert begin <= end <= cdiv(history, page_size)


@pytest.mark.parametrize(
    ("window", "history", "stale"),
    [(4, 7, (0, 1)), (8, 7, (0, 0)), (1, 8, (0, 2)), (None, 400, (0, 0))],
)
def test_stale_ranges_of_pages_of_four(window: int | None, history: int, stale: tuple[int, int]) -> None:
    assert windowed(window).stale_range(history, 4) == stale


def test_the_query_in_flight_counts_towards_the_window() -> None:
    """At history 7 a window of 4 reads [4, 7]; were the query not counted, block 0 would stay until history 8."""
    assert windowed(4).read_from(7) == 4
    assert windowed(4).stale_range(6, 4) == (0, 0)
    assert windowed(4).stale_range(7, 4) == (0, 1)


@given(lifecycle=lifecycles, history=histories, page_size=page_sizes)
def test_a_released_block_never_comes_back(lifecycle: Lifecycle, history: int, page_size: int) -> None:
    now = set(range(*lifecycle.stale_range(history, page_size)))
    later = set(range(*lifecycle.stale_range(history + 1, page_size)))
    assert now <= later


@given(lifecycle=lifecycles, history=histories, page_size=page_sizes, growth=st.integers(0, 40))
def test_live_blocks_are_those_of_the_capacity_that_are_not_stale(
    lifecycle: Lifecycle, history: int, page_size: int, growth: int
) -> None:
    blocks = set(range(cdiv(history + growth, page_size)))
    live = blocks - set(range(*lifecycle.stale_range(history, page_size)))
    assert lifecycle.live_blocks(history, history + growth, page_size) == len(live)


@given(lifecycle=lifecycles, page_size=page_sizes, longest=st.integers(1, 60), step=st.integers(1, 12))
def test_the_peak_is_the_most_that_any_history_backs(
    lifecycle: Lifecycle, page_size: int, longest: int, step: int
) -> None:
    most = max(
        lifecycle.live_blocks(history, capacity, page_size)
        for history in range(longest + 1)
        for capacity in range(history, min(history + step, longest) + 1)
    )
    assert lifecycle.peak_blocks(longest, step, page_size) == most


@given(lifecycle=lifecycles, page_size=page_sizes, longest=st.integers(0, 60))
def test_the_peak_bounds_a_sequence_that_stands_still(lifecycle: Lifecycle, page_size: int, longest: int) -> None:
    most = max(lifecycle.live_blocks(history, history, page_size) for history in range(longest + 1))
    assert most <= lifecycle.peak_blocks(longest, 0, page_size)


def test_a_window_no_longer_than_a_page_may_straddle_two() -> None:
    """TensorRT-LLM#15588: a pool of one page stops a lone request with a window of 4 on pages of 8."""
    narrow = windowed(4)
    assert [narrow.live_blocks(history, history + 1, 8) for history in (7, 8, 9, 10, 11)] == [1, 2, 2, 2, 1]
    assert narrow.peak_blocks(longest=64, step=1, page_size=8) == 2


def test_a_trailing_page_costs_one_page_of_the_window() -> None:
    assert windowed(4096, trail=128).peak_blocks(1 << 20, 16, 128) == windowed(4096).peak_blocks(1 << 20, 16, 128) + 1


@given(page_size=page_sizes, window=st.integers(1, 12), history=histories, lag=st.integers(0, 15))
def test_a_slot_that_lags_by_less_than_a_page_reads_inside_the_trailing_page(
    page_size: int, window: int, history: int, lag: int
) -> None:
    lag %= page_size
    released_below = windowed(window, trail=page_size).stale_range(history, page_size)[1]
    assert windowed(window).read_from(max(0, history - lag)) >= released_below * page_size


def test_sinks_stay_while_the_window_moves_on() -> None:
    with_sinks = windowed(4, sinks=4)
    assert with_sinks.sink_blocks(4) == 1
    assert with_sinks.stale_range(100, 4) == (1, 24)
    assert windowed(None, sinks=4).sink_blocks(4) == 0


def test_a_page_of_the_m3_drafter() -> None:
    """Seed 003: five layers of four KV heads of 128 in bf16, pages of 128 tokens."""
    assert M3_DRAFTER.bytes_per_page(128, tensor_parallel=2) == 655_360
    assert M3_DRAFTER.bytes_per_page(128, tensor_parallel=4) == 327_680


def test_the_trailing_page_of_the_m3_drafter() -> None:
    """Seed 002: 320 KiB a request with pages of 32 tokens before tensor parallelism, 0.8 % of its window."""
    assert M3_DRAFTER.bytes_per_page(32) == 320 * KIB
    assert M3_DRAFTER.bytes_per_page(32) / (4096 * M3_DRAFTER.bytes_per_token()) == pytest.approx(0.008, abs=0.0005)


@given(
    heads=st.integers(1, 64),
    ranks=st.integers(1, 64),
    page_size=page_sizes,
    layers=st.integers(1, 8),
)
def test_the_fullest_rank_holds_its_share_of_the_heads(heads: int, ranks: int, page_size: int, layers: int) -> None:
    one_head = AttentionShape(layers, 1, 64).bytes_per_token()
    sharded = AttentionShape(layers, heads, 64).bytes_per_token(ranks)
    dealt = [len(range(rank, heads, ranks)) for rank in range(ranks)]  # heads dealt to the ranks one by one
    assert sharded == max(dealt) * one_head
    assert AttentionShape(layers, heads, 64).bytes_per_page(page_size, ranks) == page_size * sharded


def test_reuse_policies_keep_their_order() -> None:
    """Required, optional, private: the order is part of the record of a run."""
    assert [policy.name for policy in sorted(ReusePolicy)] == ["REQUIRED", "OPTIONAL", "PRIVATE"]
    assert windowed(4).policy is ReusePolicy.REQUIRED
