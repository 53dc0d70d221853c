"""One request in one manager: claim, first resume, growth, window release, suspension and the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.eviction import PageState
from model.geometry import Lifecycle, cdiv
from model.manager import Manager
from model.plan import Record
from model.sequence import SequenceCache, Status
from property_tests.model_core.helpers import LIMITS, NOTHING, claimed, lifecycle, manager, opened, published, view

PROMPT = list(range(10, 30))


def image(sequence: SequenceCache) -> tuple[object, ...]:
    """Everything that a failed operation must leave as it was."""
    pools = sequence.manager.distinct_pools
    return (
        (sequence.status, sequence.committed, sequence.history, sequence.capacity, sequence.blocks, sequence.resumed),
        [(table.base, table.pages.tolist(), table.sinks.tolist()) for table in sequence.tables],
        [(pool.state.hex(), pool.locks.tolist(), pool.holds.tolist(), pool.rings.order()) for pool in pools],
        [sorted(pool.free_ids) for pool in pools],
        len(sequence.manager.recorder.records),
    )


def backed(sequence: SequenceCache, column: int = 0) -> list[int]:
    """Blocks that a lifecycle of the sequence has pages for."""
    table = sequence.tables[column]
    return [*range(len(table.sinks)), *range(table.base, table.end())]


def records(manager: Manager, kind: Record) -> list[tuple]:
    return [record for record in manager.recorder.records if record[0] == kind]


# -- create -----------------------------------------------------------------------------------------------------------


def test_a_new_sequence_is_suspended_and_as_long_as_its_claim() -> None:
    target = manager()
    published(target, 1, PROMPT)
    sequence = claimed(target, 2, [*PROMPT[:10], 1, 2, 3])
    assert sequence.status is Status.SUSPENDED
    assert (sequence.committed, sequence.history, sequence.capacity) == (8, 10, 10)
    assert backed(sequence) == [0, 1, 2]
    pool = target.pools[0]
    assert [pool.state[page] for page in sequence.tables[0].pages] == [PageState.HELD] * 3


def test_a_claim_holds_only_what_is_live_at_its_end() -> None:
    """W = 4: at 16 tokens the query reads from 13 on, so block 3 is live and the blocks below it are not."""
    target = manager(lifecycle(window=4))
    published(target, 1, PROMPT, keep=True)  # its own pages below the window went before the end
    sequence = claimed(target, 2, [*PROMPT, 1])
    assert sequence.claimed == 20
    assert backed(sequence) == [4]


def test_a_claim_holds_its_sinks_as_well() -> None:
    target = manager(lifecycle(window=4, sinks=4))
    published(target, 1, PROMPT)
    assert backed(claimed(target, 2, [*PROMPT, 1])) == [0, 4]


def test_a_prompt_without_keys_looks_nothing_up_and_publishes_nothing() -> None:
    target = manager()
    published(target, 1, PROMPT)
    sequence = target.create(2, None, NOTHING, 0)
    assert sequence.resume()
    assert sequence.resize(20, 0)
    sequence.wrote(20)
    target.commit(sequence, 20, final=True)
    assert (sequence.claimed, sequence.committed, len(target.tree.index)) == (0, 0, 5)


def test_one_owner_has_one_sequence() -> None:
    target = manager()
    opened(target, 1, PROMPT)
    with pytest.raises(AssertionError):
        target.create(1, None, NOTHING, 0)


# -- resume -----------------------------------------------------------------------------------------------------------


def test_the_first_resume_copies_a_shared_partial_page_and_leaves_its_source() -> None:
    target = manager()
    published(target, 1, PROMPT)
    sequence = claimed(target, 2, [*PROMPT[:10], 1, 2, 3])
    source = sequence.tables[0].pages[2]
    shared = list(sequence.tables[0].pages[:2])
    assert sequence.resume()
    own = sequence.tables[0].pages[2]
    pool = target.pools[0]
    assert own != source
    assert (pool.state[own], pool.node[own]) == (PageState.LOCKED, None)
    assert pool.state[source] == PageState.DROPPABLE
    assert pool.node[source] is not None
    assert records(target, Record.COPY) == [(Record.COPY, 0, source, own, 2)]
    assert list(sequence.tables[0].pages[:2]) == shared
    assert target.probe(view([*PROMPT, 1])).tokens == 20


def test_a_claim_on_a_page_end_copies_nothing() -> None:
    target = manager()
    published(target, 1, PROMPT)
    sequence = claimed(target, 2, [*PROMPT[:8], 1, 2, 3])
    assert sequence.resume()
    assert records(target, Record.COPY) == []
    assert target.pools[0].granted == 5


def test_each_lifecycle_gets_its_own_copy() -> None:
    target = manager(lifecycle(), lifecycle("draft", 8))
    published(target, 1, PROMPT)
    assert claimed(target, 2, [*PROMPT[:10], 1, 2, 3]).resume()
    assert [record[1] for record in records(target, Record.COPY)] == [0, 1]


def test_later_resumes_only_lock_again() -> None:
    target = manager()
    published(target, 1, PROMPT)
    sequence = claimed(target, 2, [*PROMPT[:10], 1, 2, 3])
    assert sequence.resume()
    told, pages = len(target.recorder.records), sequence.tables[0].pages.tolist()
    sequence.suspend()
    assert sequence.status is Status.SUSPENDED
    assert {target.pools[0].state[page] for page in pages} == {PageState.HELD}
    assert sequence.resume()
    assert sequence.resume()  # an active one has nothing to do
    assert len(target.recorder.records) == told
    assert sequence.tables[0].pages.tolist() == pages
    assert {target.pools[0].locks[page] for page in pages} == {1}


def test_a_resume_that_finds_no_page_for_its_copy_changes_nothing() -> None:
    target = manager(pages=6)
    published(target, 1, PROMPT)
    opened(target, 9, [1, 2, 3])
    sequence = claimed(target, 2, [*PROMPT[:18], 1, 2, 3])  # holds all five cached pages
    before = image(sequence)
    assert not sequence.resume()
    assert image(sequence) == before
    target.free(9)
    assert sequence.resume()


def test_nothing_resumes_while_a_pool_is_fuller_than_the_gate_allows() -> None:
    target = manager(pages=10)  # the gate is at 0.97: ten locked pages are too many
    busy = opened(target, 1, list(range(100, 140)))
    waiting = target.create(2, view(PROMPT), NOTHING, 0)
    assert target.pools[0].utilization() == 1.0
    assert not target.gate_open()
    assert not waiting.resume()
    assert busy.resize(36, 0)
    assert target.gate_open()
    assert waiting.resume()


def test_a_page_in_the_host_tier_is_brought_back_before_it_is_locked() -> None:
    target = manager(pages=6, host=4)
    published(target, 1, PROMPT[:12])
    sequence = claimed(target, 2, [*PROMPT[:12], 1])
    assert sequence.resume()
    sequence.suspend()
    busy = opened(target, 3, list(range(100, 120)))
    pool = target.pools[0]
    assert pool.host_resident(sequence.tables[0].pages) == 2
    before = image(sequence)
    assert not sequence.resume()  # one page is free, two have to come back
    assert image(sequence) == before
    busy.close()
    assert sequence.resume()
    assert pool.host_resident(sequence.tables[0].pages) == 0
    assert len(records(target, Record.MOVE)) == 4


# -- resize -----------------------------------------------------------------------------------------------------------


def test_growth_backs_whole_pages() -> None:
    sequence = opened(manager(), 1, PROMPT[:1])
    assert (sequence.blocks, sequence.backed) == (1, 4)
    assert sequence.resize(4, 0)
    assert sequence.blocks == 1
    assert sequence.resize(5, 0)
    assert (sequence.blocks, sequence.backed) == (2, 8)


def test_shrinking_gives_the_last_pages_back() -> None:
    target = manager()
    sequence = opened(target, 1, PROMPT)
    assert sequence.resize(9, 0)
    assert backed(sequence) == [0, 1, 2]
    assert target.pools[0].free_count() == 13


@pytest.mark.parametrize("short", ["target", "draft"])
def test_growth_that_one_pool_cannot_follow_changes_nothing_in_any(short: str) -> None:
    target = manager(lifecycle(), lifecycle("draft"), pages=8)
    sequence = opened(target, 1, PROMPT)
    pool = next(pool for pool in target.pools if pool.name == short)
    pool.grant(pool.free_count() - 1)
    before = image(sequence)
    assert not sequence.resize(28, 0)
    assert image(sequence) == before
    assert target.short == (pool, 1)
    assert sequence.resize(24, 0)


def test_growth_may_use_the_pages_that_its_own_window_releases() -> None:
    target = manager(lifecycle(window=4), pages=5)
    sequence = opened(target, 1, PROMPT)
    target.stop_committing(sequence)
    assert not sequence.resize(24, 0)
    assert sequence.resize(24, 8)  # the block below the window of 8 goes, and pays
    assert backed(sequence) == [1, 2, 3, 4, 5]


def test_history_never_goes_back_and_never_passes_the_capacity() -> None:
    sequence = opened(manager(), 1, PROMPT)
    assert sequence.resize(20, 12)
    for capacity, history in ((20, 11), (12, 13)):
        with pytest.raises(AssertionError):
            sequence.resize(capacity, history)
    sequence.settle(5)
    assert sequence.history == 12


def test_a_suspended_sequence_cannot_grow() -> None:
    sequence = opened(manager(), 1, PROMPT)
    sequence.suspend()
    with pytest.raises(AssertionError):
        sequence.resize(24, 0)


def test_a_windowed_pool_stays_small_only_if_the_history_moves_along() -> None:
    target = manager(lifecycle(window=8), pages=16)
    for history, pages in ((0, 15), (52, 4)):
        sequence = target.create(history, None, NOTHING, 0)
        assert sequence.resume()
        assert sequence.resize(60, history)
        assert sequence.tables[0].count() == pages
        target.free(history)


# -- window release ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "history", "released"),
    [(4, 7, [0]), (8, 7, []), (1, 8, [0, 1]), (4, 6, []), (5, 8, [0]), (None, 20, [])],
)
def test_blocks_below_the_window_of_the_query_in_flight_are_released(
    window: int | None, history: int, released: list[int]
) -> None:
    """semantics.md section 1: the live window at H is [H + 1 - W, H]."""
    target = manager(lifecycle(window=window))
    sequence = opened(target, 1, PROMPT)
    target.stop_committing(sequence)
    sequence.settle(history)
    assert backed(sequence) == [block for block in range(5) if block not in released]
    assert target.pools[0].free_count() == 11 + len(released)


def test_sinks_stay_when_the_window_has_left_them() -> None:
    target = manager(lifecycle(window=4, sinks=5))
    sequence = opened(target, 1, PROMPT)
    target.stop_committing(sequence)
    sequence.settle(19)
    assert backed(sequence) == [0, 1, 4]
    assert sequence.tables[0].sinks.tolist() == [0, 1]


lengths = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=14)
lives = st.builds(
    lifecycle,
    window=st.none() | st.integers(1, 12),
    sinks=st.sampled_from([0, 1, 4, 6]),
    trail=st.integers(0, 5),
)


@given(life=lives, moves=lengths)
def test_what_is_backed_is_what_the_window_of_some_history_has_not_made_stale(
    life: Lifecycle, moves: list[tuple[int, int, bool]]
) -> None:
    """Whatever grows, shrinks and settles: blocks are backed up to the capacity, except the stale ones."""
    target = manager(life, pages=40)
    sequence = target.create(1, None, NOTHING, 0)
    assert sequence.resume()
    for grow, advance, settles in moves:
        history = min(sequence.history + advance, sequence.capacity)
        if settles:
            sequence.settle(history)
        else:
            assert sequence.resize(max(history, sequence.capacity + grow - 4, 0), history)
        begin, end = life.stale_range(sequence.history, 4)
        wanted = [block for block in range(cdiv(sequence.capacity, 4)) if not begin <= block < end]
        assert backed(sequence) == wanted
        assert target.pools[0].used() == len(wanted)
        if not settles:  # histories up to the quiet point release nothing
            stale = life.stale_range(max(history, min(sequence.quiet, 400) - 1), 4)
            assert not set(range(*stale)) & set(wanted)


# -- suspend, close ---------------------------------------------------------------------------------------------------


def test_released_blocks_stay_released_over_a_suspension() -> None:
    target = manager(lifecycle(window=4))
    sequence = opened(target, 1, PROMPT)
    target.stop_committing(sequence)
    sequence.settle(15)
    sequence.suspend()
    sequence.suspend()  # once is enough
    assert sequence.resume()
    assert backed(sequence) == [3, 4]
    assert sequence.resize(24, 16)


@pytest.mark.parametrize("suspended", [False, True])
def test_a_closed_sequence_leaves_only_what_is_published(suspended: bool) -> None:
    target = manager(lifecycle(window=8, sinks=4))
    sequence = opened(target, 1, PROMPT)
    sequence.wrote(20)
    target.commit(sequence, 14)
    if suspended:
        sequence.suspend()
    target.free(1)
    target.free(1)  # nobody is left to free
    pool = target.pools[0]
    assert sequence.status is Status.CLOSED
    assert (pool.used(), pool.droppable) == (0, 3)
    assert claimed(target, 2, PROMPT, 12).claimed == 12


def test_the_limits_of_these_tests_are_those_of_the_defaults() -> None:
    assert LIMITS.max_util_for_resume == 0.97
