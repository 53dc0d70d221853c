"""What counts as a regression: exact figures that differ, noisy ones that are worse beyond noise, and nothing else."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from sim.intervals import Interval
from sim.nightly.metrics import METRICS
from sim.nightly.rules import Compared, Side, compare, student, widened

SUBJECT: tuple[str, str] = ("comparisons", "agentic on unified")
MADE: dict[tuple[str, str], str] = {SUBJECT: "the same inputs"}
CONVERSATIONS, TURNS = 24, 4


def side(exact: dict[str, list[float | str]], made: dict[tuple[str, str], str] = MADE) -> Side:
    figures = {metric: dict(enumerate(values)) for metric, values in exact.items()}
    return Side({SUBJECT: figures}, {}, made)


def samples(values: np.ndarray, metric: str, subject: tuple[str, str] = SUBJECT) -> Side:
    """``values``: shape ``[conversations, turns]``."""
    keyed = {
        (0, f"conversation {row}", row * values.shape[1] + column): float(values[row, column])
        for row in range(values.shape[0])
        for column in range(values.shape[1])
    }
    return Side({}, {(*subject, metric): keyed}, {subject: "the same inputs"})


def lengths(rng: np.random.Generator, shift: float = 1.0, noise: float = 0.15) -> tuple[np.ndarray, np.ndarray]:
    """Acceptance lengths of two nights: prompts differ much and are the same on both, what a night adds is noise."""
    prompts = rng.lognormal(math.log(3.0), 0.3, (CONVERSATIONS, 1)) * rng.lognormal(0.0, 0.1, (CONVERSATIONS, TURNS))
    nights = [prompts * rng.lognormal(0.0, noise, prompts.shape) for _ in range(2)]
    return nights[0], nights[1] * shift


def held(before: np.ndarray, after: np.ndarray, metric: str = "acceptance_length", least: float = 0.02) -> Compared:
    return compare(samples(before, metric), samples(after, metric), {metric: least}, frozenset())


# -- exact -------------------------------------------------------------------------------------------------------------


def test_equal_figures_are_no_change() -> None:
    figures: dict[str, list[float | str]] = {"prefilled_tokens": [100.0, 90.0], "memory": ["ab", "cd"]}
    assert compare(side(figures), side(figures), {}, frozenset()) == Compared((), 2, 0)


@pytest.mark.parametrize(
    ("metric", "after", "kind"),
    [
        ("prefilled_tokens", 101.0, "worse"),
        ("prefilled_tokens", 99.0, "better"),
        ("cached_tokens", 99.0, "worse"),
        ("claims", 101.0, "better"),
        ("peak_pages:draft", 101.0, "worse"),
        ("output_tokens", 99.0, "changed"),
        ("laws_broken", "INIT", "changed"),
        ("memory", "another digest", "changed"),
    ],
)
def test_an_exact_figure_must_be_equal_also_where_it_is_better(metric: str, after: float | str, kind: str) -> None:
    before = 100.0 if isinstance(after, float) else ""
    (change,) = compare(side({metric: [before]}), side({metric: [after]}), {}, frozenset()).changes
    assert (change.kind, change.before, change.after, change.fails) == (kind, before, after, True)


def test_figures_of_several_seeds_are_summed_but_none_may_make_up_for_another() -> None:
    old, new = side({"prefilled_tokens": [100.0, 50.0]}), side({"prefilled_tokens": [90.0, 60.0]})
    (change,) = compare(old, new, {}, frozenset()).changes
    assert (change.kind, change.before, change.after) == ("changed", 150.0, 150.0)


def test_a_digest_is_told_only_where_no_figure_says_more() -> None:
    old = side({"memory": ["a"], "decisions": ["a"], "prefilled_tokens": [1.0]})
    both = compare(old, side({"memory": ["b"], "decisions": ["b"], "prefilled_tokens": [2.0]}), {}, frozenset())
    assert [change.metric for change in both.changes] == ["prefilled_tokens"]
    alone = compare(old, side({"memory": ["b"], "decisions": ["a"], "prefilled_tokens": [1.0]}), {}, frozenset())
    assert [(change.metric, change.fails) for change in alone.changes] == [("memory", True)]


def test_a_figure_that_one_side_lacks_is_a_change_over_the_repeats_that_both_have() -> None:
    old, new = side({"preemptions": [1.0, 2.0], "claims": [1.0, 1.0]}), side({"preemptions": [1.0]})
    (change,) = compare(old, new, {}, frozenset()).changes
    assert (change.metric, change.before, change.after, change.kind) == ("claims", 1.0, None, "changed")


def test_what_one_side_lacks_or_was_made_otherwise_is_told_and_fails_nothing() -> None:
    old, new = side({"claims": [1.0]}), side({"claims": [9.0]}, {SUBJECT: "other inputs"})
    (remade,) = compare(old, new, {}, frozenset()).changes
    assert (remade.kind, remade.fails) == ("remade", False)
    nothing = Side({}, {}, {})
    assert [change.kind for change in compare(old, nothing, {}, frozenset()).changes] == ["gone"]
    assert [change.kind for change in compare(nothing, old, {}, frozenset()).changes] == ["new"]
    for left_out in (frozenset({SUBJECT}), frozenset({("comparisons", "")})):
        assert compare(old, nothing, {}, left_out).changes == ()


# -- noisy -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_shorter_acceptance_length_is_reported_with_its_interval(seed: int) -> None:
    before, after = lengths(np.random.default_rng(seed), shift=0.9)
    (change,) = held(before, after).changes
    assert (change.kind, change.fails, change.units) == ("worse", True, CONVERSATIONS)
    assert change.ratio is not None and change.ratio.low < change.ratio.value < change.ratio.high < 1
    assert change.ratio.value == pytest.approx(after.mean() / before.mean())


def test_a_longer_one_is_told_and_fails_nothing() -> None:
    before, after = lengths(np.random.default_rng(0), shift=1.15)
    (change,) = held(before, after).changes
    assert (change.kind, change.fails) == ("better", False)


def test_what_is_worse_by_less_than_the_minimum_is_not_told() -> None:
    before, _ = lengths(np.random.default_rng(1))
    assert held(before, before * 0.985).changes == ()
    (change,) = held(before, before * 0.985, least=0.01).changes
    assert change.kind == "worse"


def test_for_times_less_is_better() -> None:
    before, _ = lengths(np.random.default_rng(2))
    for metric in ("ttft_ms", "tpot_ms", "step_ms"):
        (slower,) = held(before, before * 1.5, metric).changes
        (faster,) = held(before, before / 1.5, metric).changes
        assert (slower.kind, faster.kind) == ("worse", "better")


def test_pure_noise_fails_a_night_in_fewer_than_one_of_twenty() -> None:
    """50 nights of 12 noisy figures each, no minimum. Each figure held to its own 95 % alone, a quarter would fail."""
    rng, failed, failed_alone = np.random.default_rng(1), 0, 0
    for _ in range(50):
        pairs = [lengths(rng) for _ in range(12)]
        failed_alone += any(held(*pair, least=0.0).fails for pair in pairs)
        before, after = Side({}, {}, {}), Side({}, {}, {})
        for number, pair in enumerate(pairs):
            for whole, values in zip((before, after), pair, strict=True):
                part = samples(values, "acceptance_length", ("comparisons", f"scenario {number}"))
                whole.samples.update(part.samples)
                whole.made.update(part.made)
        compared = compare(before, after, {"acceptance_length": 0.0}, frozenset())
        assert compared.noisy == 12
        failed += compared.fails
    assert failed <= 2 and failed_alone >= 8


def test_the_more_figures_a_night_has_the_wider_each_interval() -> None:
    one = Interval(0.9, 0.95, 1.0)
    widths = [widened(one, 30, family).high - widened(one, 30, family).low for family in (1, 10, 100)]
    assert widths[0] == pytest.approx(0.1) and widths[0] < widths[1] < widths[2] < 0.3
    assert widened(one, 3, 100).high - widened(one, 3, 100).low > 0.5  # three repeats prove little


@pytest.mark.parametrize(
    ("quantile", "freedom", "value"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.3027), (0.975, 100, 1.98397), (0.99875, 2, 19.9625), (0.9999, 5, 9.6776)],
)
def test_quantiles_of_students_t_are_those_of_the_tables(quantile: float, freedom: int, value: float) -> None:
    assert student(quantile, freedom) == pytest.approx(value, rel=1e-4)


def test_a_single_unit_or_nothing_positive_shows_nothing() -> None:
    alone = np.full((1, 4), 3.0)
    assert held(alone, alone * 0.5) == Compared((), 0, 1)
    none = np.zeros((CONVERSATIONS, TURNS))
    assert held(none, none + 1).changes == ()


def test_a_noisy_figure_that_nothing_is_left_of_is_no_silence() -> None:
    before, _ = lengths(np.random.default_rng(3))
    old = samples(before, "acceptance_length")
    (change,) = compare(old, Side({}, {}, dict(MADE)), {}, frozenset()).changes
    assert (change.metric, change.after, change.fails) == ("acceptance_length", None, True)
    assert change.before == pytest.approx(before.mean())
    assert not compare(old, Side({}, {}, {SUBJECT: "other inputs"}), {}, frozenset()).fails


def test_step_times_of_a_few_repeats_have_to_lie_apart() -> None:
    before = np.array([[10.0], [10.4], [9.8], [10.2], [10.1]])
    (slower,) = held(before, before * np.array([[1.3], [1.28], [1.33], [1.31], [1.3]]), "step_ms", 0.1).changes
    assert slower.fails and slower.units == 5
    assert held(before, before * np.array([[1.6], [0.9], [1.4], [1.0], [1.3]]), "step_ms", 0.1).changes == ()


def test_the_worst_comes_first() -> None:
    old = side({"prefilled_tokens": [100.0], "claims": [5.0], "output_tokens": [1.0]})
    new = side({"prefilled_tokens": [120.0], "claims": [6.0], "output_tokens": [2.0]}, {**MADE, ("drill", "x"): ""})
    found = compare(replace(old, made={**MADE, ("drill", "y"): ""}), new, {}, frozenset()).changes
    assert [change.kind for change in found] == ["worse", "changed", "better", "gone", "new"]


def test_every_noisy_figure_has_a_minimum_and_a_direction() -> None:
    noisy = [metric for metric in METRICS.values() if not metric.exact]
    assert len(noisy) == 4
    assert all(metric.minimum and 0 < metric.minimum < 1 and metric.better in ("less", "more") for metric in noisy)
