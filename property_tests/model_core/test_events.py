"""The event log: how records lie in memory, what their fields are called, and when two logs are the same."""

from __future__ import annotations

import hashlib
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.config import Drafter
from model.events import FIELDS, Channel, EventLog, Kind, named_fields, rows_of
from model.ops import Cancel, Fail, Shrink, Suspend, World
from property_tests.model_core.helpers import config, dispatch, serve, settle, spec, step, submit, world

PROMPT = list(range(10, 42))
words = st.integers(-(1 << 63), (1 << 63) - 1)
records = st.lists(st.tuples(st.sampled_from([Kind.FINISH, Kind.CHUNK, Kind.GRANT]), st.lists(words, max_size=6)))


def busy(keep: bool = True) -> World:
    """A run in which everything that can be recorded happens."""
    serving = world(config(pages=18, draft_pages=18, host=4, max_num_tokens=60, max_batch=6), keep_events=keep)
    submit(serving, *(spec(number, [*PROMPT[: 4 * number + 2], number], 12) for number in range(4)))
    for _ in range(4):
        step(serving)
    submit(serving, spec(4, 40), spec(5, 3))
    serving.apply(Suspend(0))
    serving.apply(Fail())
    serving.apply(Shrink("target", 1))
    step(serving)
    serving.apply(Cancel(5))
    return serve(serving)


# -- layout -----------------------------------------------------------------------------------------------------------


def test_a_record_is_its_kind_the_number_of_its_fields_and_the_fields() -> None:
    log = EventLog(keep=True)
    log.note(Kind.CHUNK, 3, 0, 16, 32, True)
    log.note(Kind.CANCEL, 7)
    log.decisions.flush()
    values = array("q")
    values.frombytes(b"".join(log.decisions.kept))
    assert values.tolist() == [3, 5, 3, 0, 16, 32, 1, 7, 1, 7]
    assert log.decisions.kept[0][:8] == (3).to_bytes(8, "little")
    assert log.decisions.count == 2


def test_the_digest_is_sha_256_over_those_bytes() -> None:
    channel = Channel(keep=False)
    assert channel.digest() == hashlib.sha256(b"").hexdigest()
    channel.add((Kind.FINISH, 2, 7, -1))
    words = b"".join(value.to_bytes(8, "little", signed=True) for value in (6, 2, 7, -1))
    assert channel.digest() == hashlib.sha256(words).hexdigest()


@given(first=records, cut=st.integers(0, 20))
def test_a_digest_does_not_depend_on_when_it_is_asked_for_or_on_what_is_kept(
    first: list[tuple[Kind, list[int]]], cut: int
) -> None:
    kept, dropped = Channel(keep=True), Channel(keep=False)
    for place, (kind, values) in enumerate(first):
        kept.add((kind, len(values), *values))
        dropped.add((kind, len(values), *values))
        if place == cut:
            kept.digest()
    assert kept.digest() == dropped.digest()
    assert list(kept.records()) == [(kind, tuple(values)) for kind, values in first]
    assert list(dropped.records()) == []
    assert kept.count == len(first)


def test_long_logs_are_hashed_in_blocks_and_read_in_one_piece() -> None:
    kept, dropped = Channel(keep=True), Channel(keep=False)
    for number in range(20_000):
        kept.add((Kind.FINISH, 2, number, -number))
        dropped.add((Kind.FINISH, 2, number, -number))
    assert len(kept.kept) > 1
    assert len(dropped.buffer) < 80_000
    assert kept.digest() == dropped.digest()
    assert [values for _, values in kept.records()] == [(number, -number) for number in range(20_000)]


# -- fields -----------------------------------------------------------------------------------------------------------


def test_every_kind_of_record_has_named_fields() -> None:
    assert FIELDS.keys() == set(Kind)
    for names in FIELDS.values():
        assert not any(name.endswith("..") for name in names[:-1])  # only the last one may take the rest


def test_fields_are_called_by_their_names_and_the_last_may_take_the_rest() -> None:
    assert named_fields(Kind.CLAIM, (3, 9, 16, 1, -1)) == {
        "request": 3,
        "owner": 9,
        "tokens": 16,
        "fresh": 1,
        "branch": -1,
    }
    assert named_fields(Kind.GRANT, (0, 9, 4, 5, 6)) == {"pool": 0, "owner": 9, "slots": [4, 5, 6]}
    assert named_fields(Kind.GRANT, (0, 9)) == {"pool": 0, "owner": 9, "slots": []}


def test_settles_and_publications_are_recorded_together_and_read_row_by_row() -> None:
    assert list(rows_of(Kind.SETTLE, (3, 1, 20, 4, 2, 30))) == [(3, 1, 20), (4, 2, 30)]
    assert list(rows_of(Kind.PUBLISH, (0, 4, 9, 1, 5, 70, 71))) == [(0, 70, 4, 9, 1, 5), (0, 71, 4, 9, 1, 6)]
    assert list(rows_of(Kind.MEM_STEP, (8, *range(18)))) == [(8, *range(9)), (8, *range(9, 18))]
    assert list(rows_of(Kind.FINISH, (3, 1))) == [(3, 1)]


def test_what_happens_is_recorded_with_as_many_fields_as_its_kind_names() -> None:
    serving = busy()
    seen = set()
    for channel in (serving.log.decisions, serving.log.memory):
        for kind, values in channel.records():
            seen.add(kind)
            names = FIELDS[kind]
            rest = names[-1].endswith("..")
            assert len(values) >= len(names) - 1 if rest else len(values) == len(names), (kind, values)
    link = {Kind.SEND, Kind.ARRIVE, Kind.ABORT, Kind.MEM_RECEIVE}  # see test_pair.py
    copies = {Kind.START, Kind.LAND, Kind.LOSE}  # see test_copies.py
    fleets = {Kind.DUMMY, Kind.PADDING, Kind.MEM_DUMMY}  # see test_fleet.py
    assert seen == set(Kind) - link - copies - fleets


def test_decisions_are_ordered_by_iteration() -> None:
    iterations = [values[0] for kind, values in busy().log.decisions.records() if kind is Kind.ITERATION]
    assert iterations == list(range(len(iterations)))


# -- digests ----------------------------------------------------------------------------------------------------------


def test_a_log_that_is_kept_has_the_digests_of_one_that_is_not() -> None:
    kept, dropped = busy(keep=True), busy(keep=False)
    assert kept.decision_digest() == dropped.decision_digest()
    assert kept.memory_digest() == dropped.memory_digest()
    assert dropped.log.decisions.kept == []


@pytest.mark.parametrize("change", ["prompt", "acceptance", "drafts"])
def test_what_differs_in_a_run_shows_in_its_digests(change: str) -> None:
    def run(changed: bool) -> tuple[str, str]:
        drafts = 2 if changed and change == "drafts" else 3
        serving = world(config(drafter=Drafter("dflash", drafts, 8)))
        prompt = [*PROMPT[:20], 5 if changed and change == "prompt" else 6]
        serve(serving, spec(0, prompt, 12), accepted=3 if changed and change == "acceptance" else 2)
        return serving.decision_digest(), serving.memory_digest()

    (decided, remembered), (decided_now, remembered_now) = run(False), run(True)
    assert remembered != remembered_now
    assert (decided != decided_now) == (change != "prompt")  # decisions know lengths, the memory knows content


def test_the_memory_is_recorded_when_a_step_settles_and_the_decision_when_it_is_dispatched() -> None:
    serving = world(config(), keep_events=True)
    submit(serving, spec(0, 8, 4))
    dispatch(serving)
    assert [kind for kind, _ in serving.log.decisions.records()][-1] is Kind.CHUNK
    assert list(serving.log.memory.records()) == []
    settle(serving)
    assert [kind for kind, _ in serving.log.memory.records()][-1] is Kind.MEM_CHUNK
