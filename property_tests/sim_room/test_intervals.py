"""Bootstrap intervals: closed forms, known coverage, and the units that they are taken over."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.intervals import (
    Resampling,
    difference,
    mean_interval,
    paired_difference,
    paired_ratio,
    quantile_interval,
    ratio,
    student,
)

FIGURES = st.lists(st.floats(0.5, 1e6, allow_nan=False), min_size=2, max_size=40)


@given(st.floats(-1e6, 1e6), st.integers(2, 30))
def test_what_never_varies_has_an_interval_without_width(value: float, count: int) -> None:
    interval = mean_interval([value] * count, range(count))
    assert interval.low == pytest.approx(value) == interval.high


@given(FIGURES)
def test_one_unit_has_a_figure_and_no_interval(values: list[float]) -> None:
    interval = mean_interval(values, [7] * len(values))
    assert interval.value == pytest.approx(np.mean(values))
    assert math.isnan(interval.low) and math.isnan(interval.high)


@given(FIGURES, st.floats(0.01, 100))
@settings(max_examples=40)
def test_an_arm_that_is_a_multiple_of_the_other_has_that_ratio_to_the_last_digit(
    values: list[float], factor: float
) -> None:
    """What both arms share cancels: the paired interval has no width, however much the requests differ."""
    after = np.array(values) * factor
    for at in (None, 0.5, 0.9):
        interval = paired_ratio(values, after, range(len(values)), at=at)
        assert interval.low == pytest.approx(factor) and interval.high == pytest.approx(factor)
    shifted = paired_difference(values, np.array(values) + factor, range(len(values)))
    assert shifted.low == pytest.approx(factor, abs=1e-6) and shifted.high == pytest.approx(factor, abs=1e-6)


@given(FIGURES, st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_the_order_of_the_observations_does_not_matter(values: list[float], random: object) -> None:
    places = list(range(len(values)))
    random.shuffle(places)  # type: ignore[attr-defined]
    moved = mean_interval([values[place] for place in places], places, seed=3)
    assert moved == pytest.approx(mean_interval(values, range(len(values)), seed=3))


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(-100, 100)), min_size=2, max_size=25), st.floats(0, 1))
@settings(max_examples=60)
def test_a_quantile_of_a_resample_is_that_of_the_observations_written_out(
    observations: list[tuple[int, float]], at: float
) -> None:
    units, values = zip(*observations, strict=True)
    resampling = Resampling(units, seed=1)
    labels = sorted(set(units))
    draws = resampling.quantile(values, at).draws
    for counts, found in list(zip(resampling._counts, draws, strict=True))[:20]:
        written = [v for u, v in observations for _ in range(int(counts[labels.index(u)]))]
        assert found == pytest.approx(np.quantile(written, at), abs=1e-9)


@given(FIGURES)
@settings(max_examples=40)
def test_an_interval_holds_its_figure(values: list[float]) -> None:
    for interval in (
        mean_interval(values, range(len(values))),
        quantile_interval(values, range(len(values)), 0.9),
        paired_ratio(values, values[::-1], range(len(values))),
    ):
        assert interval.low <= interval.value <= interval.high


def test_many_units_give_the_width_of_the_normal_curve() -> None:
    values = np.random.default_rng(5).normal(10.0, 2.0, 1000)
    low, value, high = mean_interval(values, range(1000))
    error = values.std(ddof=1) / math.sqrt(1000)
    assert value == pytest.approx(values.mean())
    assert (high - low) / 2 == pytest.approx(1.96 * error, rel=0.06)


@pytest.mark.parametrize("units", [4, 12, 60])
def test_the_intervals_hold_the_truth_in_about_95_of_100(units: int) -> None:
    generator = np.random.default_rng(units)
    held = 0
    for trial in range(400):
        low, _, high = mean_interval(generator.normal(3.0, 1.0, units), range(units), seed=trial)
        held += low <= 3.0 <= high
    # 400 trials at 95 % lie within 3.3 points of it; the bootstrap of 4 units cannot reach it.
    assert (0.84 if units == 4 else 0.915) <= held / 400 <= 0.985


def test_requests_of_one_conversation_are_not_independent() -> None:
    """Resampling requests where conversations differ claims far too much; resampling conversations does not."""
    generator = np.random.default_rng(2)
    by_request = by_conversation = 0
    conversations = np.repeat(np.arange(30), 10)
    for trial in range(60):
        values = 3.0 + np.repeat(generator.normal(0, 0.5, 30), 10) + generator.normal(0, 0.1, 300)
        low, _, high = mean_interval(values, range(300), seed=trial)
        by_request += low <= 3.0 <= high
        low, _, high = mean_interval(values, conversations, seed=trial)
        by_conversation += low <= 3.0 <= high
    assert by_request < 36
    assert by_conversation >= 52


def test_pairing_takes_out_what_the_arms_share() -> None:
    generator = np.random.default_rng(4)
    before = generator.lognormal(3, 1.0, 200)
    after = before * generator.normal(1.02, 0.01, 200)
    paired = paired_ratio(before, after, range(200))
    apart = paired_ratio(before, generator.permutation(after), range(200))
    assert paired.low > 1.0
    assert (paired.high - paired.low) * 10 < apart.high - apart.low


def test_a_weighted_mean_is_one_sum_over_another() -> None:
    """Step-weighted acceptance: committed tokens over verify steps, with the request as the unit."""
    committed, steps = [12.0, 40.0, 9.0], [4.0, 10.0, 3.0]
    assert mean_interval(committed, [0, 1, 2], weights=steps).value == pytest.approx(61 / 17)
    found = paired_ratio(committed, [16.0, 41.0, 9.0], [0, 1, 2], weights=(steps, [4.0, 10.0, 3.0]))
    assert found.value == pytest.approx(66 / 61)


def test_an_observation_that_an_arm_lacks_counts_in_the_other() -> None:
    resampling = Resampling(range(4))
    before = resampling.mean([1.0, 2.0, math.nan, 4.0])
    after = resampling.mean([1.0, 2.0, 3.0, 4.0])
    assert (before.value, before.units) == (pytest.approx(7 / 3), 3)
    assert ratio(before, after).value == pytest.approx(2.5 / (7 / 3))
    assert difference(before, after).value == pytest.approx(2.5 - 7 / 3)


def test_nothing_known_is_no_figure() -> None:
    nothing = Resampling([0, 1]).mean([math.nan, math.nan])
    assert math.isnan(nothing.value) and math.isnan(nothing.interval().low)
    assert math.isnan(quantile_interval([math.nan, math.nan], [0, 1], 0.5).value)
    assert math.isnan(paired_ratio([0.0, 0.0], [1.0, 1.0], [0, 1]).value)


def test_one_seed_gives_one_interval_and_another_gives_another() -> None:
    values = np.arange(50.0)
    assert mean_interval(values, range(50), seed=1) == mean_interval(values, range(50), seed=1)
    assert mean_interval(values, range(50), seed=1) != mean_interval(values, range(50), seed=2)


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062), (9, 2.2622), (10, 2.2281), (30, 2.0423), (120, 1.9799)]
)
def test_students_t(freedom: int, quantile: float) -> None:
    assert student(freedom) == pytest.approx(quantile, abs=3e-4)


def test_very_many_units_are_resampled_less_often() -> None:
    assert Resampling(range(531)).resamples == 2000
    assert Resampling(range(12_000)).resamples == 400
