"""The page arithmetic of windows, trailing pages, lookahead and mirrors, against counting one token at a time."""

from __future__ import annotations

import itertools

import pytest

from property_tests.fuzz import oracle
from property_tests.fuzz.oracle_records import Group, World

PAGES, WINDOWS = (2, 4, 8), range(1, 13)


def read_later(group: Group, history: int) -> set[int]:
    """The positions below ``history`` that the query at ``history`` or any later one reads."""
    return {cell for query in range(history, history + 30) for cell in oracle.reads(group, query) if cell < history}


@pytest.mark.parametrize("sinks", [0, 1, 2])
@pytest.mark.parametrize("page", PAGES)
def test_a_block_is_released_exactly_when_no_query_to_come_reads_it(page, sinks):
    for window, history in itertools.product(WINDOWS, range(40)):
        group = Group("g", "target", window, sinks * page)
        needed = {cell // page for cell in read_later(group, history)}
        released = set(oracle.stale(page, group, history, window))
        whole = set(range(history // page))
        # the page in which the query itself is written stays, and with W = 1 no earlier cell of it is read
        assert released == whole - needed, (window, history)


@pytest.mark.parametrize("page", PAGES)
def test_a_fresh_mirror_may_start_one_token_below_the_first_read_of_the_first_drafts(page):
    for window, length in itertools.product(WINDOWS, range(1, 40)):
        kind = World(page, (Group("target", "target"), Group("draft", "draft", window)))
        # the first draft query stands at L + 1, for one accepted token; from its first read on everything is recomputed
        first_read = min(oracle.reads(kind.groups[1], length + 1), default=length + 1)
        assert oracle.fresh_limit(kind, length, spare=1) == min(length, first_read)
        assert oracle.fresh_limit(kind, length) == max(0, min(length, length + 1 - window))


@pytest.mark.parametrize("page", PAGES)
def test_below_a_fresh_mirror_at_most_a_window_and_a_page_less_one_token_are_recomputed(page):
    lost = set()
    for window, length, match in itertools.product(WINDOWS, range(1, 40), range(40)):
        if match < length:
            limit = max(0, length + 1 - window)
            plain = match if match <= limit else limit // page * page
            branch = match if match <= limit else max(0, match - window) // page * page
            assert branch <= plain <= match
            lost.add(match - branch - window)
    assert max(lost) == page - 1


def test_two_trees_trimmed_by_the_lookahead_have_the_trimmed_minimum_as_their_joint_frontier():
    for target, draft, lookahead in itertools.product(range(12), range(12), range(5)):
        trimmed = min(max(target - lookahead, 0), max(draft - lookahead, 0))
        assert trimmed == max(min(target, draft) - lookahead, 0)


def test_shifted_keys_and_raw_keys_with_back_off_claim_the_same_of_a_common_prefix():
    for common, lookahead in itertools.product(range(1, 14), range(4)):
        one, other = (*range(common), 70, 71, 72, 73, 74), (*range(common), 80, 81, 82, 83, 84)

        def shifted(tokens: tuple[int, ...], ahead: int = lookahead) -> list[tuple[int, ...]]:
            return [tokens[: ahead + 1], *((token,) for token in tokens[ahead + 1 :])]

        pairs = zip(shifted(one), shifted(other), strict=True)
        equal = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
        assert equal == max(common - lookahead, 0)


@pytest.mark.parametrize("page", PAGES)
def test_a_run_of_tokens_touches_at_most_one_page_more_than_it_fills(page):
    for tokens in range(1, 30):
        touched = max(len({cell // page for cell in range(start, start + tokens)}) for start in range(page))
        assert touched == -(-(tokens - 1) // page) + 1


def test_a_drafter_of_the_seeds_needs_thirty_four_pages_a_sequence():
    # W = 4,096, and 8 tokens to reserve with 8 tokens of a step: (4,096 + 16 - 1) / 128, rounded up, and one more
    window, headroom = 4096, 8 + 8
    assert -(-(window + headroom - 1) // 128) + 1 == 34
    assert max(len({c // 128 for c in range(s, s + window + headroom)}) for s in range(128)) == 34


@pytest.mark.parametrize("page", PAGES)
def test_a_mirror_with_a_history_holds_its_window_and_the_chunk_in_flight(page):
    for window, history, chunk in itertools.product(WINDOWS, range(0, 40, page), range(1, 17)):
        gone = set(oracle.stale(page, Group("draft", "draft", window), history, window))
        held = [block for block in range(-(-(history + chunk) // page)) if block not in gone]
        assert len(held) <= -(-window // page) + 1 + -(-chunk // page)


def violations(page: int, window: int, kept: int, lag: int, widths: tuple[int, ...], steps: int = 600) -> int:
    """Steps at which a slot ``lag`` tokens behind its mirror reads a page that retention of ``kept`` tokens released.

    The slot was seeded ``lag`` tokens into a page far along; each step accepts the next of ``widths``.
    """
    history, bad = 40 * window // page * page + lag, 0
    for step in range(steps):
        accepted = widths[step % len(widths)]
        first_read = history - lag + accepted + 1 - window
        bad += first_read // page < (history + 1 - kept) // page
        history += accepted
    return bad


@pytest.mark.parametrize(("lag", "clean"), [(2, True), (7, False), (31, False), (127, False)])
def test_without_a_trailing_page_a_slot_that_lags_more_than_it_accepts_reads_released_pages(lag, clean):
    widths = (2, 3, 4, 5)
    assert (violations(128, 4096, 4096, lag, widths) == 0) == clean
    assert violations(128, 4096, 4096 + 128, lag, widths) == 0


def test_one_token_a_step_breaks_a_lag_of_two_and_eight_a_step_spare_a_lag_of_seven():
    assert violations(128, 4096, 4096, 2, (1,)) > 0
    assert violations(128, 4096, 4096, 7, (8,)) == 0


@pytest.mark.parametrize("page", PAGES)
def test_one_trailing_page_is_enough_for_every_lag_below_a_page(page):
    for window, lag, accepted in itertools.product(WINDOWS, range(page), range(1, 9)):
        assert violations(page, window, window + page, lag, (accepted,), steps=4 * page) == 0
        if accepted >= lag:
            assert violations(page, window, window, lag, (accepted,), steps=4 * page) == 0
