"""Step cost: the measured points, monotony, what the curve predicts where nothing was measured, fits from files."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.errors import InputError
from sim.cost import PREFILL_NS_PER_TOKEN, PROFILES, CostProfile, affine_error, batch_ns, leave_one_out
from sim.cost_fit import MeasuredStep, fit, load_profile, non_decreasing

MEASURED_MS = {
    "tp4-000": {1: 8.1, 8: 14.4, 64: 28.1},
    "tp4-003": {4: 14.44, 16: 20.22, 64: 31.03},
    "tp2-003": {1: 10.1, 4: 19.5, 8: 23.5, 44: 40.1},
}


@pytest.mark.parametrize("name", sorted(MEASURED_MS))
def test_a_profile_passes_through_its_measured_points(name: str) -> None:
    profile = PROFILES[name]
    assert {rows: profile.step_ns(rows, 0) / 1e6 for rows in MEASURED_MS[name]} == MEASURED_MS[name]


@given(
    st.sampled_from(sorted(PROFILES)),
    st.integers(0, 300),
    st.integers(0, 300),
    st.integers(0, 20_000),
    st.integers(0, 20_000),
)
def test_a_step_with_more_work_never_costs_less(name: str, rows: int, more: int, prefill: int, extra: int) -> None:
    profile = PROFILES[name]
    cost = profile.step_ns(rows, prefill)
    assert isinstance(cost, int)
    assert cost <= profile.step_ns(rows + more, prefill + extra)


def test_prefill_tokens_cost_the_stated_slope_on_top_of_the_batch() -> None:
    profile = PROFILES["tp4-000"].with_inputs(prefill_us_per_token=7.0, host_ms=2.0)
    assert profile.step_ns(8, 1_000) == 14_400_000 + 7_000_000
    assert profile.step_ns(0, 1_000) == 8_100_000 + 7_000_000  # context rows only: the weights are read all the same
    assert profile.host_ns == 2_000_000


def test_past_the_last_point_the_curve_keeps_its_last_slope() -> None:
    slope = (28_100_000 - 14_400_000) / (64 - 8)
    assert PROFILES["tp4-000"].step_ns(120, 0) == pytest.approx(28_100_000 + 56 * slope, abs=1)


def test_no_affine_function_of_the_batch_fits_the_seeds_within_16_per_cent() -> None:
    assert affine_error(PROFILES["tp4-000"].points) == pytest.approx(0.165, abs=0.001)
    assert affine_error(PROFILES["tp2-003"].points) == pytest.approx(0.231, abs=0.001)
    assert affine_error(PROFILES["tp4-003"].points) == pytest.approx(0.065, abs=0.001)
    assert affine_error(((1, 100), (5, 500), (9, 900))) == 0.0


def test_the_best_affine_fit_has_no_smaller_error_than_reported() -> None:
    points = PROFILES["tp2-003"].points
    bound = affine_error(points)
    for slope_us in range(300, 1_200, 10):
        for base_us in range(8_000, 20_000, 200):
            worst = max(abs((base_us + slope_us * rows) * 1_000 / time - 1.0) for rows, time in points)
            assert worst >= bound - 1e-12


def test_leaving_a_point_out_reports_the_error_of_the_curve_through_the_others() -> None:
    left = {point.rows: point for point in leave_one_out(PROFILES["tp2-003"].points)}
    assert left[8].interpolated
    assert left[8].predicted_ns == batch_ns(((1, 10_100_000), (4, 19_500_000), (44, 40_100_000)), 8)
    assert left[8].error == pytest.approx(-0.083, abs=0.001)
    assert left[4].error == pytest.approx(-0.188, abs=0.001)
    assert [point.interpolated for point in left.values()] == [False, True, True, False]
    assert left[44].error > 0.4  # past the measured points a concave curve is overrated: use it there with care


def test_leaving_out_needs_three_points() -> None:
    with pytest.raises(ValueError, match="three points"):
        leave_one_out(((1, 10), (2, 20)))


@pytest.mark.parametrize("points", [(), ((0, 5),), ((1, 0),), ((4, 10), (4, 12)), ((1, 10), (2, 9))])
def test_a_curve_that_falls_or_repeats_a_batch_is_no_profile(points: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="cost profile bad"):
        CostProfile("bad", points, "test")


@given(st.lists(st.tuples(st.floats(0.1, 50), st.integers(1, 9)), min_size=1, max_size=12))
def test_pooling_keeps_the_weighted_sum_and_never_falls(pairs: list[tuple[float, int]]) -> None:
    values, weights = [value for value, _ in pairs], [weight for _, weight in pairs]
    pooled = non_decreasing(values, weights)
    assert all(low <= high for low, high in pairwise(pooled))
    before = sum(value * weight for value, weight in pairs)
    assert sum(value * weight for value, weight in zip(pooled, weights, strict=True)) == pytest.approx(before)


def test_a_fit_recovers_the_profile_that_made_the_steps() -> None:
    truth = PROFILES["tp2-003"].with_inputs(prefill_us_per_token=9.0)
    steps = [
        MeasuredStep(batch, prefill, truth.step_ns(batch, prefill) / 1e6)
        for batch in (1, 4, 8, 44)
        for prefill in (0, 0, 512, 8_192)
    ]
    found = fit("again", steps, "test")
    assert found.points == truth.points
    assert found.prefill_ns_per_token == 9_000


def test_a_fit_without_prefill_steps_keeps_the_default_price() -> None:
    assert fit("plain", [MeasuredStep(1, 0, 8.0)], "test").prefill_ns_per_token == PREFILL_NS_PER_TOKEN


def test_csv_and_json_files_of_the_same_steps_give_the_same_profile(tmp_path: Path) -> None:
    rows = [(1, 0, 8.0), (1, 0, 8.4), (8, 0, 14.0), (8, 1_000, 24.0)]
    table = tmp_path / "steps.csv"
    table.write_text("batch,prefill_tokens,ms\n" + "".join(f"{b},{p},{ms}\n" for b, p, ms in rows))
    listed = tmp_path / "steps.json"
    listed.write_text(json.dumps([{"batch": b, "prefill_tokens": p, "ms": ms} for b, p, ms in rows]))
    from_csv, from_json = load_profile(table), load_profile(listed)
    assert from_csv.points == from_json.points == ((1, 8_200_000), (8, 14_000_000))
    assert from_csv.prefill_ns_per_token == from_json.prefill_ns_per_token == 10_000


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "batch,ms\n1,2\n", r"a\.csv:1: expected the header batch,prefill_tokens,ms"),
        ("a.csv", "batch,prefill_tokens,ms\n1,0,8\nfour,0,9\n", r"a\.csv:3: expected whole numbers"),
        ("a.csv", "batch,prefill_tokens,ms\n1,0,-8\n", r"a\.csv:2: .*above 0"),
        ("a.csv", "batch,prefill_tokens,ms\n1,0,nan\n", r"a\.csv:2: .*above 0"),
        ("a.csv", "batch,prefill_tokens,ms\n0,10,8\n", r"a\.csv: expected a step with batch >= 1"),
        ("a.csv", "batch,prefill_tokens,ms\n1,0,8\n1,100,2\n", r"a\.csv: .*no price of a prefill token"),
        ("a.json", "[{", r"a\.json:1: expected JSON"),
        ("a.json", "{}", r"a\.json:1: expected a list"),
        ("a.json", '[{"batch": 1}]', r"a\.json: \[0\]: expected exactly batch, prefill_tokens, ms"),
        ("a.json", '[{"batch": 1.5, "prefill_tokens": 0, "ms": 1}]', r"a\.json: \[0\]: expected whole numbers"),
    ],
)
def test_a_broken_file_of_steps_is_refused_in_one_line(tmp_path: Path, name: str, text: str, says: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=says) as error:
        load_profile(path)
    assert "\n" not in str(error.value)


def test_a_missing_file_of_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a readable file"):
        load_profile(tmp_path / "absent.csv")
