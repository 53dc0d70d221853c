"""Drafter kinds and the slots in which they keep their context: bind, park, resume, release, restore, rebase."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.config import Drafter
from model.drafter import KINDS, Pass, Seed, SlotMap, SlotState, View, rebased
from model.geometry import cdiv, floor_to
from model.rules.layout import Pairing
from model.rules.slots import Slots

# -- kinds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "lookahead", "pool", "slot", "hidden", "attends", "writes"),
    [
        ("dflash", 0, True, True, True, False, Pass.BLOCK),
        ("dspark", 0, True, True, True, False, Pass.BLOCK),
        ("pard", 0, True, False, False, True, Pass.BLOCK),
        ("eagle3", 1, True, False, True, True, Pass.CHAIN),
        ("mtp-eagle", 1, True, False, True, True, Pass.CHAIN),
        ("mtp", 3, True, False, True, True, Pass.CHAIN),
        ("draft-target-one-model", None, True, False, False, True, Pass.CHAIN),
        ("ngram", None, False, False, False, False, Pass.NONE),
    ],
)
def test_each_drafter_is_what_its_model_makes_it(
    kind: str, lookahead: int | None, pool: bool, slot: bool, hidden: bool, attends: bool, writes: Pass
) -> None:
    """Lookahead for a chain of three modules; an unknown one is never paired and is tagged as 1."""
    entry = KINDS[kind]
    assert entry.span(3) == lookahead
    assert entry.tag_span(3) == (1 if lookahead is None else lookahead)
    assert (entry.has_pool, entry.slot, entry.hidden, entry.attends) == (pool, slot, hidden, attends)
    assert (entry.name, entry.writes) == (kind, writes)


def test_there_are_no_other_drafters() -> None:
    assert len(KINDS) == 8


@pytest.mark.parametrize("kind", KINDS)
def test_a_drafter_pairs_where_its_span_is_known_and_its_kernels_take_the_page(kind: str) -> None:
    """Hidden-state drafters with slots want pages that are a power of two; seed 000."""
    entry = KINDS[kind]
    pairs = {page for page in (32, 48, 128) if entry.may_pair(2, page)}
    if entry.slot:
        assert pairs == {32, 128}
    else:
        assert pairs == (set() if kind in {"draft-target-one-model", "ngram"} else {32, 48, 128})
    assert Pairing().allows(entry, Drafter(kind, 3, chain=2), 48) == (48 in pairs)


def test_only_separate_draft_engines_keep_a_cursor_of_their_own() -> None:
    assert {kind for kind, entry in KINDS.items() if entry.view is View.DRAFT} == {"eagle3", "mtp-eagle", "mtp"}


# -- slots ------------------------------------------------------------------------------------------------------------


def test_slots_go_out_from_the_lowest_number_up() -> None:
    slots = SlotMap(3)
    assert [slots.bind(owner, 0) for owner in (10, 11, 12)] == [0, 1, 2]
    with pytest.raises(IndexError):
        slots.bind(13, 0)


def test_an_absent_request_gives_its_slot_up_and_keeps_its_base() -> None:
    slots = SlotMap(2)
    slots.bind(10, 5)
    assert slots.park(10) == 0
    assert (slots.slot_of, slots.base, slots.parked) == ({}, {}, {10: 5})
    assert slots.bind(11, 0) == 0  # somebody else may have it now
    assert slots.bind(10, slots.parked[10]) == 1
    assert (slots.base[10], slots.parked) == (5, {})


def test_an_ended_request_is_forgotten_wherever_it_was() -> None:
    slots = SlotMap(2)
    slots.bind(10, 5)
    slots.bind(11, 6)
    slots.park(11)
    assert slots.release(10) == 0
    assert slots.release(11) is None  # its slot was free already
    assert slots.release(12) is None
    assert (slots.slot_of, slots.base, slots.parked) == ({}, {}, {})
    assert sorted(slots.free) == [0, 1]


def test_a_failed_forward_restores_slots_bases_and_parked_ones() -> None:
    slots = SlotMap(3)
    slots.bind(10, 1)
    slots.bind(11, 2)
    slots.park(11)
    saved = slots.snapshot()
    slots.bind(11, 9)
    slots.bind(12, 7)
    slots.park(10)
    slots.rollback(saved)
    assert (slots.slot_of, slots.base, slots.parked, slots.free) == ({10: 0}, {10: 1}, {11: 2}, [2, 1])
    slots.bind(13, 0)  # the snapshot itself is a copy
    slots.rollback(saved)
    assert slots.free == [2, 1]


def test_a_row_that_is_kept_is_lent_to_two_requests_at_once() -> None:
    """The fault of O24: an absent request keeps the number of a slot that others may now get."""
    slots = SlotMap(2)
    slots.bind(10, 1)
    slots.park(10, keeps_row=True)
    assert slots.bind(11, 0) == slots.slot_of[10] == 0
    assert slots.release(10) == 0
    assert slots.free == [1]  # its slot was free before it was released


@given(moves=st.lists(st.tuples(st.sampled_from(["bind", "park", "release"]), st.integers(0, 5)), max_size=40))
def test_no_slot_has_two_owners_and_none_is_lost(moves: list[tuple[str, int]]) -> None:
    slots = SlotMap(4)
    for move, owner in moves:
        if move == "bind" and owner not in slots.slot_of and slots.free:
            slots.bind(owner, slots.parked.get(owner, owner))
        elif move == "park" and owner in slots.slot_of:
            slots.park(owner)
        elif move == "release":
            slots.release(owner)
        bound = list(slots.slot_of.values())
        assert sorted(bound + slots.free) == [0, 1, 2, 3]
        assert slots.base.keys() == slots.slot_of.keys()
        assert not slots.parked.keys() & slots.slot_of.keys()


# -- where a context starts -------------------------------------------------------------------------------------------


def test_a_reused_prefix_is_context_and_a_fresh_one_is_hidden() -> None:
    rule = Slots()
    assert rule.first(0, 0, 4) == SlotState(0, 0)
    assert rule.first(8, 8, 4) == SlotState(0, 8)
    assert rule.first(8, 0, 4) == SlotState(2, 8)  # nothing below 8 exists here
    assert rule.first(10, 0, 4) == SlotState(3, 10)  # nor do the first cells of the page it starts in


def test_a_prefix_that_is_not_hidden_is_read_although_nobody_wrote_it() -> None:
    assert Slots(hides_prefix=False).first(8, 0, 4) == SlotState(0, 8)


def test_a_slot_local_store_begins_at_its_own_zero() -> None:
    assert Slots(stores_in_place=False).first(8, 8, 4) == SlotState(0, 0)
    assert Slots(stores_in_place=False).first(0, 0, 4) == SlotState(0, 0)


def test_a_parked_request_goes_on_at_its_targets_position() -> None:
    assert Slots().returning(3, 22, 4) == SlotState(3, 22)


@pytest.mark.parametrize(
    ("seed", "state"),
    [(Seed.PAGE, SlotState(5, 20)), (Seed.POSITION, SlotState(6, 22)), (Seed.ZERO, SlotState(0, 0))],
)
@pytest.mark.parametrize("parked", [None, 3])
def test_a_slot_that_lost_its_context_is_seeded_by_rule(seed: Seed, state: SlotState, parked: int | None) -> None:
    """At position 22 in pages of 4: on the page boundary below, at the position, or at a new origin."""
    assert Slots(parks=False, seed=seed).returning(parked, 22, 4) == state


@given(position=st.integers(0, 200), page=st.sampled_from([1, 2, 4, 8, 128]))
def test_a_seed_hides_everything_below_it_and_trails_by_less_than_a_page(position: int, page: int) -> None:
    on_page = Slots(seed=Seed.PAGE).returning(None, position, page)
    assert on_page == SlotState(position // page, floor_to(position, page))
    assert 0 <= position - on_page.length < page
    at_position = Slots(seed=Seed.POSITION).returning(None, position, page)
    assert at_position == SlotState(cdiv(position, page), position)
    for state in (on_page, at_position):
        visible = state.length - state.base * page
        assert visible <= 0  # an empty context, wherever the request stands


# -- the rebased view -------------------------------------------------------------------------------------------------


def test_a_kernel_sees_the_row_from_its_base_on() -> None:
    assert rebased(10, 0, 37, 4) == (0, 37)
    assert rebased(10, 6, 37, 4) == (6, 13)
    assert rebased(10, 9, 37, 4) == (9, 1)


def test_a_base_past_the_context_leaves_nothing_to_read() -> None:
    assert rebased(10, 10, 37, 4) == (10, 0)
    assert rebased(10, 12, 37, 4) == (10, 0)  # and never a block that the row does not have


@given(base=st.integers(0, 12), length=st.integers(0, 60), page=st.sampled_from([1, 2, 4, 8]))
def test_rebased_entries_are_the_blocks_of_absolute_positions(base: int, length: int, page: int) -> None:
    row = list(range(100, 100 + cdiv(length, page)))  # page of each block
    first, visible = rebased(len(row), base, length, page)
    seen = row[first:]
    for position in range(base * page, length):
        assert seen[position // page - base] == row[position // page]
    assert visible == len(range(base * page, length))
