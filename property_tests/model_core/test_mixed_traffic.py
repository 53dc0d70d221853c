"""Requests that run without the drafter, beside requests that draft: what they reuse of each other, and at what width.

Seed 004: with a lookahead the shifted stream makes the target's keys differ from those of a run without speculation.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from model.builds import BUILDS
from model.config import Drafter, EngineConfig, Limits, PoolSize, RequestSpec
from model.geometry import Lifecycle
from model.ops import Dispatch, Settle, Submit, World
from model.tokens import Segment
from property_tests.laws.healthy import finish
from property_tests.laws.pairs import random_pair
from property_tests.laws.worlds import CORRECT, Driver, Rates, fitted, random_config, random_specs
from scenarios import catalog
from sim.opcodec import decode_op, encode_op
from sim.run import run_scenario

COMMON, DEPTHS = 22, (0, 1, 2, 3)
RAW, SHIFTED = "joint-backoff", "joint-18093"


def world(build: str, chain: int) -> World:
    """A world whose drafter has that lookahead: none (PARD) or a chain of MTP modules."""
    kind = "mtp" if chain else "pard"
    config = EngineConfig(
        (Lifecycle("full", "target", "target"),),
        (Lifecycle("draft", "draft", "draft"),),
        Drafter(kind, 3, None, max(1, chain)),
        Limits(4, 4, 40, 160, 4, extra_tokens=2),
        {"target": PoolSize(120), "draft": PoolSize(120)},
        vocabulary=4096,
    )
    return World(config, BUILDS[build], check="exhaustive")


def claimed(world: World, *drafts: bool) -> list[int]:
    """What requests with and without the drafter claim one after the other; they share ``COMMON`` tokens."""
    for number, wanted in enumerate(drafts):
        prompt = (Segment(1, COMMON), Segment(100 + number, 9, first=number))
        assert world.apply(Submit(RequestSpec(number, prompt, 6, 900 + number, drafts=wanted))).applied
        finish(world)
    assert world.violations == []
    return [world.engine.records[number].cached_tokens for number in range(len(drafts))]


@pytest.mark.parametrize("chain", DEPTHS)
def test_raw_keys_share_pages_with_requests_that_do_not_draft(chain: int) -> None:
    assert claimed(world(RAW, chain), True, False, True) == [0, COMMON, COMMON - chain]


@pytest.mark.parametrize("chain", DEPTHS)
def test_shifted_keys_share_none_unless_the_lookahead_is_0(chain: int) -> None:
    plain = COMMON if chain == 0 else 0
    assert claimed(world(SHIFTED, chain), True, False, True) == [0, plain, COMMON - chain]
    assert claimed(world(SHIFTED, chain), False, False) == [0, COMMON]


@pytest.mark.parametrize("build", [RAW, SHIFTED])
@pytest.mark.parametrize("chain", DEPTHS)
def test_both_protocols_claim_alike_where_everybody_drafts(build: str, chain: int) -> None:
    assert claimed(world(build, chain), True, True) == [0, COMMON - chain]


@pytest.mark.parametrize("build", [RAW, SHIFTED, "paired-22", "unified"])
def test_a_drafter_that_reads_its_prefix_finds_none_behind_a_request_that_did_not_draft(build: str) -> None:
    assert claimed(world(build, 2), False, True) == [0, 0]


def test_two_managers_make_the_drafters_pages_good_and_one_manager_does_not_fill_holes() -> None:
    assert claimed(world("paired-22", 2), False, True, True) == [0, 0, COMMON - 2]
    assert claimed(world("unified", 2), False, True, True) == [0, 0, 0]


def test_a_request_that_does_not_draft_takes_one_token_a_step_and_gives_its_rows_back() -> None:
    mixed = world("paired-22", 1)
    for number, drafts in enumerate((True, False)):
        mixed.apply(Submit(RequestSpec(number, (Segment(number, 9),), 7, 900 + number, drafts=drafts)))
    widths = set()
    while mixed.engine.has_work():
        plan = mixed.apply(Dispatch()).plan
        if plan is not None:
            widths |= {(row.request_id, row.width, row.drafts) for row in plan.generation}
        if mixed.engine.in_flight > 1 or plan is None:
            mixed.apply(Settle((4,) * len(mixed.engine.plans[0].generation)))
    mixed.drain()
    assert mixed.violations == []
    assert widths == {(0, 4, True), (1, 1, False)}
    drafting, plain = (mixed.engine.records[number] for number in (0, 1))
    assert (plain.spec_steps, plain.drafted_tokens, plain.output_tokens) == (0, 0, 7)
    assert drafting.spec_steps > 0
    assert drafting.output_tokens == 7


def test_a_claim_without_the_drafter_is_neither_fresh_nor_joint() -> None:
    mixed = world(RAW, 1)
    claimed(mixed, True, False)
    assert mixed.engine.records[1].claim_kind == "plain"
    assert (mixed.engine.totals.fresh_claims, mixed.engine.totals.joint_claims) == (0, 0)


@pytest.mark.parametrize("build", CORRECT)
def test_mixed_traffic_breaks_no_law_at_random(build: str) -> None:
    for seed in range(60, 66):
        rng = Random(seed)
        config = random_config(rng)
        specs = [replace(spec, drafts=rng.random() < 0.5) for spec in random_specs(rng, 9)]
        config = fitted(config, BUILDS[build], specs, rng.choice((1, 6, 40)))
        mixed = World(config, BUILDS[build], check="exhaustive")
        assert Driver(mixed, specs, rng, Rates()).run()
        assert mixed.violations == []


@pytest.mark.parametrize("build", CORRECT)
def test_a_pair_of_workers_serves_mixed_traffic(build: str) -> None:
    for seed in (1, 2, 5):
        pair, driver = random_pair(seed, build)
        driver.todo = [replace(spec, drafts=place % 2 == 0) for place, spec in enumerate(driver.todo)]
        assert driver.run()
        assert pair.violations == []


def test_the_hit_rate_of_mixed_traffic_in_both_protocols() -> None:
    scenario = catalog.load("seeds/mixed_traffic")
    cached = {build: run_scenario(scenario, BUILDS[build]).totals.cached_tokens for build in (RAW, SHIFTED)}
    assert cached == {RAW: 220, SHIFTED: 188}  # of 360 prompt tokens: 61.1 % and 52.2 %


def test_a_trace_of_ops_keeps_who_drafts() -> None:
    for drafts in (True, False):
        op = Submit(RequestSpec(0, (Segment(1, 4),), 2, 9, drafts=drafts))
        assert decode_op(encode_op(op)) == op
    with pytest.raises(ValueError, match="drafts to be true or false"):
        decode_op({**encode_op(Submit(RequestSpec(0, (Segment(1, 4),), 2, 9))), "drafts": 1})
