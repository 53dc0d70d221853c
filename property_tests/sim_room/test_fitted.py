"""Acceptance fitted from verify steps: a known truth comes back, its file drives the sim, bad files are one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from model.builds import BUILDS
from scenarios.errors import InputError
from scenarios.loader import parse_scenario
from sim.acceptance_fit import Observed, fit, monotone
from sim.fitted import Fitted, FittedChain, load_fitted
from sim.run import run_scenario

EARLY, LATE = (0.6, 0.5, 0.4), (0.8, 0.7, 0.6)
TRUTH = Fitted(3, 16, (0, 8), (EARLY, LATE), (0.0, 0.25, 0.5, 1.0), (0.05, 0.5, 0.8, 1.0))


def drawn(truth: Fitted, steps: int, seed: int) -> Observed:
    """Steps of a known model: a third with the whole window, the others with any share."""
    rng = np.random.default_rng(seed)
    step = rng.integers(0, 24, steps)
    share = np.where(rng.random(steps) < 0.33, 1.0, rng.choice([0.0, 0.25, 0.5], steps))
    rates = np.array([truth.rates_of(int(one)) for one in step]) * [[truth.scale(float(one))] for one in share]
    accepted = (rng.random((steps, truth.drafts)) < rates).cumprod(1).sum(1)
    return Observed(step, share, accepted)


def test_a_known_truth_comes_back() -> None:
    found = fit(drawn(TRUTH, 60_000, 1), 3, 16)
    assert found.first_steps == (0, 1, 2, 4, 8, 16)
    for first, rates in zip(found.first_steps, found.rates, strict=True):
        assert np.allclose(rates, EARLY if first < 8 else LATE, atol=0.04), first
    assert found.shares == (0.0, 0.25, 0.5, 1.0)
    assert np.allclose(found.kept, TRUTH.kept, atol=0.02)
    assert found.expected_length(20, 0.25) == pytest.approx(TRUTH.expected_length(20, 0.25), abs=0.03)


def test_few_steps_of_a_bucket_lean_on_all_of_them() -> None:
    many = drawn(TRUTH, 4000, 2)
    late = many.step >= 8
    few = Observed(many.step[late], many.share[late], many.accepted[late])
    early = Observed(np.zeros(2, dtype=np.int64), np.ones(2), np.zeros(2, dtype=np.int64))
    found = fit(few.joined([early]), 3, 16)
    assert found.first_steps[0] == 0 and 0.6 < found.rates[0][0] < 0.8 and len(few.joined([early])) == len(few) + 2


def test_more_of_the_window_never_accepts_less() -> None:
    assert monotone([0.1, 0.5, 0.3, 0.9], [1, 1, 3, 1]) == pytest.approx([0.1, 0.35, 0.35, 0.9])
    share = np.array([0.2] * 40 + [0.6] * 40 + [1.0] * 200)
    accepted = np.array([1] * 40 + [0, 1] * 20 + [1, 1, 1, 0] * 50)
    kept = fit(Observed(np.zeros(280, dtype=np.int64), share, accepted), 1, 16).kept
    assert kept[0] == kept[1] < kept[2] == 1


def test_a_share_of_the_window_accepts_what_was_measured_there_however_drafts_hang_together() -> None:
    whole, part = np.tile([0, 1, 2, 3, 3, 3], 100), np.repeat([0, 3], [600, 300])  # a lost context: all drafts or none
    share = np.array([1.0] * len(whole) + [0.25] * len(part))
    observed = Observed(np.zeros(len(share), dtype=np.int64), share, np.concatenate([whole, part]))
    found = fit(observed, 3, 16)
    assert found.expected_length(0) == pytest.approx(1 + whole.mean(), abs=0.02)
    assert found.expected_length(0, 0.25) == pytest.approx(1 + part.mean(), abs=1e-3)
    none = replace(observed, accepted=np.where(share < 1, 0, observed.accepted))
    assert fit(none, 3, 16).expected_length(0, 0.25) == pytest.approx(1)


def test_without_a_step_that_saw_its_window_there_is_nothing_to_fit() -> None:
    some = drawn(TRUTH, 50, 3)
    with pytest.raises(ValueError, match="whole window"):
        fit(Observed(some.step, np.minimum(some.share, 0.5), some.accepted), 3, 16)


def test_draws_have_the_fitted_means_step_by_step() -> None:
    chain = FittedChain(TRUTH, 7, "truth")
    blocks = np.array([np.frombuffer(chain.block(0, key, 0), dtype=np.uint8) for key in range(4000)])
    assert blocks[:, 0].mean() == pytest.approx(TRUTH.expected_length(0), abs=0.04)
    assert blocks[:, 8].mean() == pytest.approx(TRUTH.expected_length(8), abs=0.05)
    single = [chain.count(0, key, 8, 1.0) for key in range(50)]
    assert single == blocks[:50, 8].tolist(), "one step as a block has it"
    quarter = [chain.count(0, key, 8, 0.25) for key in range(4000)]
    assert np.mean(quarter) == pytest.approx(TRUTH.expected_length(8, 0.25), abs=0.05)
    assert all(less <= more for less, more in zip(quarter, blocks[:, 8].tolist(), strict=True))


SCENARIO = """
geometry: tiny
drafter: {window: 16}
workload:
  concurrency: 1
  prefixes: {document: 41}
  sessions:
    - {name: work, copies: 30, prompt: [document, 2], output: 6}
acceptance: {fitted: truth.json}
"""


def test_a_scenario_names_the_model_and_a_build_that_hides_context_accepts_less(tmp_path: Path) -> None:
    (tmp_path / "truth.json").write_text(TRUTH.to_json())
    assert load_fitted(tmp_path / "truth.json") == TRUTH
    scenario = parse_scenario(SCENARIO, "fitted.yaml", tmp_path)
    lengths = {}
    for name in ("paired-22", "target-21"):
        result = run_scenario(scenario, BUILDS[name])
        assert result.acceptance_mode == "modelled" and "truth.json" in result.acceptance
        lengths[name] = 1 + result.totals.accepted_drafts / result.totals.spec_steps
    assert lengths["target-21"] < 0.9 * lengths["paired-22"]
    with pytest.raises(InputError, match="fitted: expected a model that does not read the drafter's window"):
        run_scenario(scenario, BUILDS["unified"], check="off")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "another"}, "kind: expected 'kvtwin fitted acceptance'"),
        ({"drafts": 0}, "drafts: expected a whole number above 0, found 0"),
        ({"rates": [[0.5, 0.5, 0.5]]}, "rates: expected a list of rates for each of 2 first_steps"),
        ({"rates": [[0.5], [0.5]]}, "rates: expected 3 rates a row"),
        ({"rates": [[0.5, 0.5, 2], [0.5, 0.5, 0.5]]}, "rates: expected numbers from 0 to 1"),
        ({"first_steps": [1, 8]}, "first_steps: expected ascending numbers from 0"),
        ({"shares": [0.0, 0.5, 0.25, 1.0]}, "shares: expected ascending shares up to 1"),
        (
            {"drafts": 2, "rates": [[0.5, 0.5], [0.5, 0.5]]},
            "expected a model of K = 3, as the drafter has it, found K = 2",
        ),
    ],
)
def test_a_file_that_holds_no_such_model_is_one_line(tmp_path: Path, change: dict[str, object], said: str) -> None:
    (tmp_path / "truth.json").write_text(json.dumps(json.loads(TRUTH.to_json()) | change))
    with pytest.raises(InputError) as error:
        run_scenario(parse_scenario(SCENARIO, "fitted.yaml", tmp_path), BUILDS["unified"])
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"), [("{", "1: is not JSON"), ("[]", "expected a mapping"), (None, "cannot be read")]
)
def test_what_is_no_file_of_a_model_is_one_line(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "truth.json").write_text(text)
    with pytest.raises(InputError, match=said):
        load_fitted(tmp_path / "truth.json")
