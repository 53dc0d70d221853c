"""Windows, trails, clips and lookahead as statements about any numbers, page size 128 and long windows included.

``make arithmetic`` runs them by CrossHair, which solves for the numbers that take each path; here they are drawn.
"""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from model.geometry import Lifecycle, cdiv, floor_to
from model.rules.keys import KeyView
from model.rules.lookahead import chunk_inputs
from model.rules.slots import Slots

LONG, WIDE = 1 << 20, 1 << 13  # tokens of a sequence, of a window
PAGE = 128

positions = st.integers(0, LONG)
windows = st.integers(1, WIDE)
pages = st.sampled_from([1, 2, 4, 16, 64, PAGE])


def windowed(window: int, trail: int = 0, sinks: int = 0) -> Lifecycle:
    return Lifecycle("draft", "draft", "draft", window=window, trail=trail, sinks=sinks)


@given(history=positions, ahead=st.integers(0, WIDE), window=windows, trail=st.integers(0, 2 * PAGE), page=pages)
def test_no_later_query_reads_a_released_page(history: int, ahead: int, window: int, trail: int, page: int) -> None:
    life = windowed(window, trail)
    begin, end = life.stale_range(history, page)
    assert 0 <= begin <= end
    assert begin == end or end * page <= life.read_from(history + ahead)


@given(history=positions, window=windows, trail=st.integers(0, 2 * PAGE), sinks=st.integers(0, PAGE), page=pages)
def test_a_step_releases_no_page_for_ever_that_the_next_one_takes_back(
    history: int, window: int, trail: int, sinks: int, page: int
) -> None:
    life = windowed(window, trail, sinks)
    before, after = life.stale_range(history, page), life.stale_range(history + 1, page)
    assert before[1] <= after[1] or before[0] == before[1]
    assert after[0] <= life.sink_blocks(page)
    assert life.retained_from(history) <= life.retained_from(history + 1) <= life.retained_from(history) + 1


@given(history=positions, window=windows, trail=st.integers(0, 2 * PAGE), page=pages)
def test_the_page_below_a_released_one_is_released_and_the_window_is_whole(
    history: int, window: int, trail: int, page: int
) -> None:
    life = windowed(window, trail)
    begin, end = life.stale_range(history, page)
    assert begin == 0
    assert end * page <= life.retained_from(history)
    assert life.retained_from(history) - end * page < page or end == 0


@given(
    longest=st.integers(1, LONG),
    history=positions,
    step=st.integers(1, WIDE),
    window=windows,
    trail=st.integers(0, 2 * PAGE),
    sinks=st.integers(0, PAGE),
    page=pages,
)
def test_no_sequence_backs_more_pages_than_its_peak(
    longest: int, history: int, step: int, window: int, trail: int, sinks: int, page: int
) -> None:
    assume(history <= longest)
    life = windowed(window, trail, sinks)
    capacity = min(longest, history + step)
    assert 0 <= life.live_blocks(history, capacity, page) <= life.peak_blocks(longest, step, page)


@given(position=positions, window=windows)
def test_a_slot_on_its_page_boundary_reads_nothing_that_a_trailing_page_less_one_token_does_not_keep(
    position: int, window: int
) -> None:
    """The drafter's slot resumes at the boundary below its request and reads its window from there."""
    life = windowed(window, trail=PAGE - 1)
    slot = Slots().returning(None, position, PAGE, trailing=True)
    assert slot.base * PAGE == slot.length == floor_to(position, PAGE)
    assert life.read_from(slot.length) >= life.retained_from(position)


def test_one_token_less_is_not_enough() -> None:
    life = windowed(PAGE, trail=PAGE - 2)
    slot = Slots().returning(None, 2 * PAGE - 1, PAGE, trailing=True)
    assert life.read_from(slot.length) < life.retained_from(2 * PAGE - 1)


@given(claim=positions, reused=st.booleans(), page=pages)
def test_a_first_slot_hides_the_whole_page_in_which_a_prefix_that_is_not_there_ends(
    claim: int, reused: bool, page: int
) -> None:
    slot = Slots().first(claim, claim if reused else 0, page)
    assert slot.length == claim
    hidden = slot.base * page
    assert hidden == 0 if reused or not claim else claim <= hidden < claim + page


@given(position=positions, page=pages)
def test_without_a_trailing_page_a_slot_starts_at_its_position(position: int, page: int) -> None:
    slot = Slots().returning(None, position, page, trailing=False)
    assert slot.length == position
    assert slot.base == cdiv(position, page)


def key_view(prompt: int, shift: int, evidence: int) -> KeyView:
    """The lengths of a view, without the keys of its tokens."""
    view = KeyView.__new__(KeyView)
    view.prompt_length, view.length = prompt, max(0, prompt - shift)
    view.evidence, view.keeps_evidence = evidence, True
    return view


@given(prompt=st.integers(1, LONG), span=st.integers(0, 8), shifted=st.booleans(), matched=positions)
def test_a_claim_leaves_the_last_token_and_what_depends_on_tokens_behind_it(
    prompt: int, span: int, shifted: bool, matched: int
) -> None:
    """Whatever matches: at most the prompt less one, and no cell whose lookahead lies behind what agrees."""
    view = key_view(prompt, span, 0) if shifted else key_view(prompt, 0, span)
    agreed = min(matched, view.lookup(None))
    claim = view.trim(agreed)
    assert 0 <= claim <= prompt - 1
    tokens_compared = agreed + span if shifted and agreed else agreed
    assert claim == 0 or claim + span <= tokens_compared <= prompt


@given(prompt=st.integers(1, LONG), span=st.integers(0, 8), shifted=st.booleans(), limit=positions)
def test_a_clipped_claim_is_as_deep_as_its_limit_and_no_deeper(
    prompt: int, span: int, shifted: bool, limit: int
) -> None:
    """A full match: the partner's limit is met where this side could claim as much."""
    view = key_view(prompt, span, 0) if shifted else key_view(prompt, 0, span)
    whole = view.trim(view.lookup(None))
    assert view.trim(view.lookup(limit)) == min(limit, whole)


@given(start=st.integers(0, 40), length=st.integers(1, 24), span=st.integers(0, 8))
def test_a_chunk_is_fed_its_tokens_shifted_by_the_lookahead(start: int, length: int, span: int) -> None:
    end = start + length
    prompt = list(range(end + span))
    assert chunk_inputs(prompt[:end], start, end, span, prompt[end:]) == prompt[start + span : end + span]


@pytest.mark.parametrize("page", [1, 4, PAGE])
def test_rounding_meets_its_definition_at_the_edges_of_a_page(page: int) -> None:
    for length in range(3 * page + 2):
        assert cdiv(length, page) == len({position // page for position in range(length)})
        assert floor_to(length, page) == max(edge for edge in range(0, length + 1, page))
