"""Every way to spoil a correct log is noticed, by the law that it breaks."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from property_tests.logs.judging import broken, judged
from property_tests.logs.mutations import MUTATIONS, spoilt
from property_tests.logs.reference import Key, trtllm_log
from property_tests.logs.test_correct_logs import BUSY, pools, requests
from sim.logs.trtllm import TrtllmLog

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
