"""Every way to spoil a correct log is noticed, by the law that it breaks."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from property_tests.logs.judging import broken, judged
from property_tests.logs.mutations import MUTATIONS, spoilt
from property_tests.logs.reference import Event, Key, TrtllmPool, named, trtllm_log
from property_tests.logs.test_correct_logs import BUSY, pools, requests
from sim.logs.trtllm import SILENT, TrtllmLog

SOUND = trtllm_log(BUSY * 2, 2, [(8, (4, 2)), (64, (5, 3))])


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_spoilt_log_of_trtllm_events_is_noticed(name: str) -> None:
    assert judged(SOUND).broken == 0
    for choice in range(0, 12, 3):
        log = spoilt(SOUND, name, choice)
        assert log is not None
        assert MUTATIONS[name][2] in broken(judged(log))


@settings(max_examples=60)
@given(requests, st.integers(1, 2), pools, st.sampled_from(sorted(MUTATIONS)), st.integers(0, 50))
def test_whatever_the_log_what_was_spoilt_is_noticed(
    requests: list[tuple[int, Key]],
    ranks: int,
    pools: list[tuple[int, tuple[int, int]]],
    name: str,
    choice: int,
) -> None:
    log = spoilt(trtllm_log(requests, ranks, pools), name, choice)
    assume(log is not None)
    assert MUTATIONS[name][2] in broken(judged(log or []))


def test_every_law_has_a_log_that_makes_it_fire(tmp_path_factory: pytest.TempPathFactory) -> None:
    judge = TrtllmLog(tmp_path_factory.getbasetemp() / "none", partial=False, windowed=False)
    assert {law.name for law in judge.end().laws} == {law for _, _, law in MUTATIONS.values()}


def taken_over(told: bool) -> list[Event]:
    """A second turn takes over the partial leaf of the first and fills it up; then the first prompt comes once more."""
    pool = TrtllmPool(64, (9, 0))
    created: Event = {"type": "created", "num_blocks_per_cache_level": [9, 0]}
    data = [created, *pool.store((1, 2, 3, 4, 5, 6))]
    del pool.entries[1, 2, 3, 4, 5, 6]
    if told:
        data.append({"type": "removed", "block_hashes": [named((1, 2, 3, 4, 5, 6))]})
    data += [*pool.store((1, 2, 3, 4, 5, 6, 7, 8)), *pool.store((1, 2, 3, 4, 5, 6))]
    return [{"event_id": number, "data": one, "window_size": 64} for number, one in enumerate(data)]


def test_a_leaf_that_a_later_turn_takes_over_is_stored_twice_unless_its_removal_is_told() -> None:
    assert judged(taken_over(True)).broken == 0
    report = judged(taken_over(False))
    assert broken(report) == {"stored-once"}
    assert report.notes == [SILENT]
    assert judged(SOUND).notes == []
