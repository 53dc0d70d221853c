"""Figures of acceptance: small cases worked out by hand, and a recorded trace that says the same as its replay."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_backend.acceptance.metrics import (
    Measured,
    Steps,
    accept_trace,
    acceptance_length,
    first_steps,
    histogram,
    looping_share,
    loops,
    slot_acceptance,
    sums,
)

# Two requests with K = 3, timeline `seed`. The first commits 1 (placeholders), 4, 2, 1; the second 1 (placeholders), 3.
# Their prefill gave one token each, so anchors lie at 0, 1, 5, 7 and at 0, 1.
SEED = Steps.of(
    [(0, 0, 1, False), (1, 0, 1, False), (0, 1, 4, True), (1, 1, 3, True), (0, 5, 2, True), (0, 7, 1, True)]
)


def test_acceptance_length_is_pooled_and_leaves_placeholders_out() -> None:
    assert acceptance_length(SEED) == (4 + 3 + 2 + 1) / 4
    assert sums(SEED, 2).committed.tolist() == [7, 3] and sums(SEED, 2).steps.tolist() == [3, 1]
    assert sums(SEED, 2).pooled == 2.5
    assert sums(SEED, 2).request_mean == pytest.approx((7 / 3 + 3) / 2)
    assert np.isnan(sums(SEED, 3).by_request[2]) and sums(SEED, 3).request_mean == pytest.approx(8 / 3)


@pytest.mark.parametrize(("within", "wanted"), [(1, None), (2, 3.5), (5, 3.5), (6, 3.0), (7, 3.0), (8, 2.5)])
def test_a_step_belongs_to_the_tokens_among_which_its_anchor_lies(within: int, wanted: float | None) -> None:
    assert acceptance_length(SEED, within) == wanted
    assert sums(SEED, 2, within).pooled == wanted


def test_first_steps_and_slots() -> None:
    assert first_steps(SEED, 3).tolist() == [4, 3, 0]
    assert slot_acceptance(SEED, 3) == [0.75, 0.5, 0.25]
    assert histogram(SEED) == {0: 1, 1: 1, 2: 1, 3: 1}
    assert accept_trace(SEED, 0) == [(1, 4), (5, 2), (7, 1)]


def test_dense_arrays_of_either_timeline_are_the_same_steps() -> None:
    """Timeline `immediate` drafts right behind the prefill; a request that rests commits 0."""
    anchor, committed = np.array([[0, 1, 5, 7], [0, 1, 4, 4]]), np.array([[1, 4, 2, 1], [1, 3, 0, 0]])
    seed, immediate = Steps.dense(anchor, committed, placeholders=1), Steps.dense(anchor, committed)
    for place in (0, 1):
        assert accept_trace(seed, place) == accept_trace(SEED, place)
    assert acceptance_length(immediate) == 12 / 6 and first_steps(immediate, 2).tolist() == [1, 1]


def test_without_a_step_there_is_no_figure() -> None:
    nothing = Steps.of([(0, 0, 1, False)])
    assert acceptance_length(nothing) is None and sums(nothing, 1).pooled is None
    assert sums(nothing, 1).request_mean is None and slot_acceptance(nothing, 3) == []


def test_an_output_loops_if_its_last_tokens_repeat_within_the_longest_period() -> None:
    start = list(range(1000, 1040))
    assert loops(start + [1, 2, 3] * 22) and loops([7] * 64)
    assert loops(start + list(range(24)) * 3) and not loops(start + list(range(25)) * 3)
    assert not loops([7] * 63), "too short to tell"
    assert not loops([7] * 63 + [8])
    assert looping_share([[7] * 64, list(range(64)), [7] * 10]) == 0.5
    assert looping_share([[7] * 10]) is None


def test_the_table_has_both_means_prefilled_tokens_by_pool_and_a_record_for_each_request() -> None:
    outputs = (tuple(range(9)), tuple(range(5)))
    prefilled = {"target": np.array([20, 4]), "draft": np.array([20, 6])}
    measured = Measured(SEED, outputs, prefilled, (11, 12), 3)
    table = measured.table()
    assert (table["AL"], table["AL_request_mean"], table["AL16"]) == (2.5, 2.6667, 2.5)
    assert (table["verify_steps"], table["committed_tokens"], table["placeholder_steps"]) == (4, 10, 2)
    assert table["prefilled_tokens"] == {"target": 24, "draft": 26}
    assert table["first_step"] == 3.5 and table["looping_share"] is None
    first, second = measured.records()
    assert first["request_id"] == 11 and first["per_step_accepted"] == [3, 1, 0] and first["completion_tokens"] == 9
    assert first["mean_acceptance_length"] == pytest.approx(7 / 3) and second["draft_acceptance_rate"] == 2 / 3
    second_alone = measured.only([1])
    assert second_alone.table()["AL"] == 3.0 and second_alone.ids == (12,)
    assert second_alone.prefilled["draft"].tolist() == [6] and accept_trace(second_alone.steps, 0) == [(1, 3)]
