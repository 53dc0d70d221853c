"""Pools: what each layout makes of one memory, and what all ranks agree on."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.budget import (
    GIB,
    BudgetError,
    HostOutcome,
    Layout,
    Pair,
    SplitAsk,
    admissible_sequences,
    agree_host,
    agree_sizes,
    below_resume_gate,
    drafter_window_pages,
    gib,
    pool_sizes,
    window_share,
)
from model.config import Drafter, Limits, PoolSize
from model.geometry import Lifecycle, cdiv
from model.rules.budget import FUNDING, SLOPES, Budget

from .seed_003 import DSPARK, HOST, SEPARATE_SHARE, TP2, TP2_BYTES, TP2_PAGES, TP4, TP4_BYTES, TP4_PAGES, limits

TODAY: dict[Layout, Budget] = {"separate": SLOPES, "paired": FUNDING}


def split(
    layout: Layout, page_bytes: Pair, device: int, host: int, limits: Limits, drafter: Drafter, **more: int | None
) -> dict[str, PoolSize]:
    """The split of a rank's memory by today's rule for ``layout``."""
    ask = SplitAsk(page_bytes, device, host, limits, drafter, **more)  # pyright: ignore[reportArgumentType]
    return pool_sizes(layout, ask, TODAY.get(layout, Budget()))


counts = st.integers(1, 10**6)
layouts = st.sampled_from(["separate", "paired", "unified"])


# --- the window-sized share ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("engine", "seed_pages"), [(TP4, 4_505), (TP2, 6_092)], ids=["TP4", "TP2"])
def test_the_window_sized_share_is_the_draft_group_of_seed_003(engine: Limits, seed_pages: int) -> None:
    assert 34 * 2 * engine.max_batch == pytest.approx(seed_pages, rel=0.04)
    assert window_share(engine, DSPARK) == 34 * (2 * engine.max_batch + 1) + 64
    assert window_share(engine, DSPARK) == pytest.approx(seed_pages, rel=0.013)


def test_44_sequences_in_flight_leave_the_share_mostly_free() -> None:
    """Seed 003 saw a peak of 1,176 to 1,517 pages in use."""
    in_use = 44 * drafter_window_pages(4096, 128, drafts=7, extra_tokens=8)
    assert 1_100 < in_use < 1_700
    assert in_use < window_share(TP2, DSPARK) / 4


@given(
    window=st.integers(1, 24),
    page_size=st.sampled_from([1, 2, 4, 8]),
    drafts=st.integers(1, 7),
    extra=st.integers(0, 9),
    trail=st.integers(0, 8),
    max_batch=st.integers(1, 8),
    run_ahead=st.integers(0, 1),
    chunk=st.integers(1, 64),
    max_seq_len=st.integers(1, 96),
)
def test_the_share_holds_every_admissible_sequence_while_one_is_in_prefill(
    window: int,
    page_size: int,
    drafts: int,
    extra: int,
    trail: int,
    max_batch: int,
    run_ahead: int,
    chunk: int,
    max_seq_len: int,
) -> None:
    """Admitted implies allocatable: no sequence is stopped by pages that the others keep (TensorRT-LLM#15588)."""
    engine = limits(
        max_batch,
        max_seq_len,
        page_size=page_size,
        extra_tokens=extra,
        run_ahead=run_ahead,
        max_num_tokens=chunk,
    )
    step = extra + drafts + 1
    lifecycle = Lifecycle("draft", "draft", "draft", window=window, trail=trail)
    longest = max_seq_len + step
    generation = lifecycle.peak_blocks(longest, step, page_size)
    prefill = lifecycle.peak_blocks(longest, step + chunk, page_size)
    others = admissible_sequences(max_batch, run_ahead) - 1
    share = window_share(engine, Drafter("dflash", drafts, window), trail)
    assert others * generation + prefill <= share <= (others + 1) * cdiv(longest, page_size)


def test_full_attention_has_no_window_sized_share() -> None:
    with pytest.raises(BudgetError, match="full attention"):
        window_share(TP2, Drafter("eagle3", drafts=3))


# --- pools --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page_bytes", "device", "engine", "before", "gain"),
    [(TP4_PAGES, TP4_BYTES, TP4, 83_319, 2.9), (TP2_PAGES, TP2_BYTES, TP2, 38_178, 12.9)],
    ids=["TP4", "TP2"],
)
def test_the_unified_layout_gains_the_target_pages_of_seed_003(
    page_bytes: Pair, device: int, engine: Limits, before: int, gain: float
) -> None:
    paired = split("paired", page_bytes, device, 0, engine, DSPARK, draft_pages_per_slot=SEPARATE_SHARE)
    unified = split("unified", page_bytes, device, 0, engine, DSPARK)
    assert paired["target"].device_pages == before
    assert paired["draft"].device_pages == SEPARATE_SHARE * engine.max_batch
    assert unified["draft"].device_pages == window_share(engine, DSPARK)
    assert 100 * (unified["target"].device_pages / before - 1) == pytest.approx(gain, abs=0.3)


def test_the_unified_layout_returns_the_host_tier_to_the_target() -> None:
    """Seed 003: 64.57 GiB paired, 82.89 GiB unified (+28 %)."""
    paired = split("paired", TP2_PAGES, TP2_BYTES, HOST, TP2, DSPARK, draft_pages_per_slot=SEPARATE_SHARE)
    unified = split("unified", TP2_PAGES, TP2_BYTES, HOST, TP2, DSPARK)
    assert round(gib(paired["target"].host_pages * TP2_PAGES.target), 2) == 64.57
    assert round(gib(unified["target"].host_pages * TP2_PAGES.target), 2) == 82.89
    assert paired["draft"].host_pages == paired["draft"].device_pages
    assert unified["draft"].host_pages == 0


def test_the_unified_host_tier_can_be_shared_with_the_drafter() -> None:
    sizes = split("unified", TP2_PAGES, TP2_BYTES, HOST, TP2, DSPARK, host_draft=4 * GIB)
    assert sizes["draft"].host_pages == 4 * GIB // TP2_PAGES.draft
    assert sizes["target"].host_pages == (HOST - 4 * GIB) // TP2_PAGES.target


def test_a_pool_of_its_own_keeps_its_windows_below_the_resume_gate() -> None:
    sizes = {
        layout: split(layout, TP2_PAGES, TP2_BYTES, 0, TP2, DSPARK)["draft"].device_pages
        for layout in ("separate", "paired", "unified")
    }
    assert sizes == {"separate": 6_271, "paired": 6_271, "unified": 6_082}
    assert window_share(TP2, DSPARK) <= 0.97 * sizes["paired"]


def test_the_trail_is_charged_for_every_admissible_sequence() -> None:
    plain = split("unified", TP2_PAGES, TP2_BYTES, 0, TP2, DSPARK)
    trailing = split("unified", TP2_PAGES, TP2_BYTES, 0, TP2, DSPARK, trail=128)
    assert trailing["draft"].device_pages - plain["draft"].device_pages == 177
    assert trailing["target"].device_pages < plain["target"].device_pages


def test_a_share_given_by_hand_is_that_of_a_pool_of_its_own() -> None:
    given = split("unified", TP2_PAGES, TP2_BYTES, 0, TP2, DSPARK, draft_pages_per_slot=SEPARATE_SHARE)
    assert given == split("unified", TP2_PAGES, TP2_BYTES, 0, TP2, DSPARK)


def test_fused_pages_are_as_many_in_either_pool_and_shared_ones_take_the_larger() -> None:
    fused = split("fused", Pair(100, 28), 1_280, 256, TP2, DSPARK)
    assert fused == {"target": PoolSize(10, 2), "draft": PoolSize(10, 2)}
    shared = split("shared", Pair(100, 28), 1_280, 256, TP2, DSPARK)
    assert shared == {"target": PoolSize(12, 2), "draft": PoolSize(12, 2)}


@pytest.mark.parametrize(
    ("answer", "pages"),
    [
        (Budget("bare-windows", headroom=False), 177 * 32 + 64),
        (Budget("trail-uncharged", trail=False), 177 * 34 + 64),
        (Budget("window-of-the-target", own_window=False), 177 * 131 + 64),
        (Budget(), 177 * 35 + 64),
    ],
    ids=lambda answer: answer.name if isinstance(answer, Budget) else "",
)
def test_what_a_budget_rule_leaves_out_changes_the_share(answer: Budget, pages: int) -> None:
    assert answer.share(TP2, DSPARK, 128, 16_384) == pages


def test_ranks_agree_on_the_least_and_may_agree_on_no_host() -> None:
    ranks = [{"target": PoolSize(8, 4)}, {"target": PoolSize(9, 2)}]
    assert agree_sizes(ranks) == {"target": PoolSize(8, 2)}
    assert agree_sizes(ranks, HostOutcome.USE_NO_HOST) == {"target": PoolSize(8, 0)}


def test_a_drafter_without_kv_has_no_pool() -> None:
    sizes = split("separate", Pair(100, 0), 1_050, 250, TP2, Drafter("ngram", drafts=4))
    assert sizes == {"target": PoolSize(10, 2)}


@given(
    layout=layouts,
    page_bytes=st.builds(Pair, counts, counts),
    device=st.integers(1, 10**9),
    host=st.integers(0, 10**9),
    window=st.none() | st.integers(1, 32),
    max_batch=st.integers(1, 8),
)
def test_pools_use_the_memory_they_are_given_and_no_more(
    layout: Layout, page_bytes: Pair, device: int, host: int, window: int | None, max_batch: int
) -> None:
    engine = limits(max_batch, max_seq_len=256, page_size=4, max_num_tokens=16)
    drafter = Drafter("dspark", drafts=3, window=window)
    fixed = 0
    if window is not None:
        share = window_share(engine, drafter)
        share = share if layout == "unified" else below_resume_gate(share, engine.max_util_for_resume)
        fixed = share * page_bytes.draft
    try:
        sizes = split(layout, page_bytes, device, host, engine, drafter)
    except BudgetError as error:
        assert device < fixed + sum(page_bytes), error
        return
    used = sum(sizes[name].device_pages * size for name, size in page_bytes._asdict().items())
    kept = sum(sizes[name].host_pages * size for name, size in page_bytes._asdict().items())
    assert device - sum(page_bytes) < used <= device
    assert kept <= host
    if window is None:
        assert abs(sizes["target"].device_pages - sizes["draft"].device_pages) <= 1
    else:
        assert sizes["draft"].device_pages * page_bytes.draft == fixed


@pytest.mark.parametrize(
    ("device", "window", "message"),
    [
        (10_000, 4096, "a budget of 10,000 bytes has no room beside fixed costs of"),
        (6_082 * 10 + 99, 4096, "the target pool gets 99 bytes on the device, less than one page of 100"),
        (50, None, "the target pool gets 45 bytes on the device, less than one page of 100"),
    ],
)
def test_memory_that_nothing_fits_in_is_named_in_one_sentence(device: int, window: int | None, message: str) -> None:
    with pytest.raises(BudgetError, match=message):
        split("unified", Pair(100, 10), device, 0, TP2, Drafter("dspark", 7, window))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layout": "woven"}, "layout 'woven' is not one of separate, paired, unified, shared, fused"),
        ({"page_bytes": Pair(0, 10)}, "a page cannot have 0 \\(target\\) and 10 \\(draft\\) bytes"),
        ({"page_bytes": Pair(10, -1)}, "a page cannot have 10 \\(target\\) and -1 \\(draft\\) bytes"),
        ({"device": 0}, "0 bytes on the device and 0 on the host are no budget"),
        ({"host": -1}, "and -1 on the host are no budget"),
        ({"host_draft": 5}, "the drafter cannot be given 5 of 0 host bytes in the unified layout"),
        ({"host": 9, "host_draft": 5, "layout": "paired"}, "5 of 9 host bytes in the paired layout"),
        ({"draft_pages_per_slot": 0, "layout": "paired"}, "the draft pool gets 0 bytes"),
    ],
)
def test_senseless_figures_are_refused(changes: dict[str, object], message: str) -> None:
    arguments = {"layout": "unified", "page_bytes": Pair(100, 10), "device": GIB, "host": 0} | changes
    with pytest.raises(BudgetError, match=message):
        split(limits=TP2, drafter=DSPARK, **arguments)  # pyright: ignore[reportArgumentType]


# --- agreement over ranks -----------------------------------------------------------------------------------------

rank_sizes = st.lists(
    st.fixed_dictionaries({name: st.builds(PoolSize, counts, counts) for name in ("target", "draft")}),
    min_size=1,
    max_size=4,
)


@given(ranks=rank_sizes)
def test_the_agreed_sizes_fit_every_rank_and_no_larger_ones_do(ranks: list[dict[str, PoolSize]]) -> None:
    agreed = agree_sizes(ranks)
    for name, tier in itertools.product(("target", "draft"), ("device_pages", "host_pages")):
        offered = [getattr(rank[name], tier) for rank in ranks]
        assert all(getattr(agreed[name], tier) <= size for size in offered)
        assert getattr(agreed[name], tier) in offered


@given(ranks=rank_sizes.flatmap(lambda ranks: st.tuples(st.just(ranks), st.permutations(ranks))))
def test_all_ranks_agree_whatever_order_they_report_in(
    ranks: tuple[list[dict[str, PoolSize]], list[dict[str, PoolSize]]],
) -> None:
    assert agree_sizes(ranks[0]) == agree_sizes(ranks[1])


def test_host_tiers_of_different_size_shrink_to_the_smallest() -> None:
    """TensorRT-LLM#17380: tiers sized from each node's own free memory evict on one rank and keep on another."""
    ranks = [{"target": PoolSize(8, 4)}, {"target": PoolSize(9, 2)}]
    assert agree_sizes(ranks) == {"target": PoolSize(8, 2)}


def test_one_rank_without_a_host_tier_takes_it_from_all() -> None:
    outcome = agree_host([HostOutcome.KEEP_HOST, HostOutcome.USE_NO_HOST, HostOutcome.KEEP_HOST])
    ranks = [{"target": PoolSize(8, 4), "draft": PoolSize(6, 3)}] * 3
    assert outcome is HostOutcome.USE_NO_HOST
    assert agree_sizes(ranks, outcome) == {"target": PoolSize(8, 0), "draft": PoolSize(6, 0)}


def test_the_worst_outcome_of_any_rank_is_the_outcome_of_all() -> None:
    assert [outcome.value for outcome in HostOutcome] == [0, 1, 2]
    for outcomes in itertools.product(HostOutcome, repeat=3):
        expected = next(worst for worst in reversed(HostOutcome) if worst in outcomes)
        assert agree_host(outcomes) is expected
    assert agree_host([]) is HostOutcome.KEEP_HOST


@pytest.mark.parametrize(
    ("ranks", "outcome", "message"),
    [
        ([], HostOutcome.KEEP_HOST, "no rank reported"),
        ([{"target": PoolSize(8)}], HostOutcome.ABORT, "asked all ranks to abort"),
        ([{"target": PoolSize(8)}, {"draft": PoolSize(8)}], HostOutcome.KEEP_HOST, "all of the pools draft, target"),
    ],
    ids=["no rank", "abort", "different pools"],
)
def test_ranks_that_cannot_agree_say_why(ranks: list[dict[str, PoolSize]], outcome: HostOutcome, message: str) -> None:
    with pytest.raises(BudgetError, match=message):
        agree_sizes(ranks, outcome)
