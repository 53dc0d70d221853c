"""ADMIT at the start of a run: silent on every split that today's rules make, whatever the memory; not on others."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.builds import BUILDS, Build
from model.config import Memory, PoolSize
from model.invariants import Violation
from model.ops import World
from scenarios.errors import InputError
from scenarios.loader import parse_scenario
from scenarios.schema import Scenario

CORRECT = [build for build in BUILDS.values() if build.correct]


def scenario(text: str) -> Scenario:
    return parse_scenario(text + "workload: {sessions: [{prompt: 1, output: 1}]}\n", "split", Path())


def judged(scenario: Scenario, build: Build) -> tuple[list[Violation], int]:
    """What the law found in a world that nothing ran in, and how often it was evaluated."""
    world = World(scenario.engine_config(build), build)
    return world.violations, world.docket.evaluations["ADMIT"]


@given(
    build=st.sampled_from(CORRECT),
    preset=st.sampled_from(["tiny", "tiny-eagle3", "tiny-mtp"]),
    window=st.none() | st.integers(1, 20),
    batch=st.integers(1, 6),
    budget=st.integers(8, 64),
    longest=st.integers(8, 90),
    overlap=st.booleans(),
    extra=st.integers(0, 5),
    gate=st.sampled_from([0.5, 0.9, 0.97, 1.0]),
    device=st.integers(4_000, 60_000),
    host=st.integers(0, 20_000),
)
def test_a_split_by_the_rules_of_today_breaks_no_law(
    build: Build,
    preset: str,
    window: int | None,
    batch: int,
    budget: int,
    longest: int,
    overlap: bool,
    extra: int,
    gate: float,
    device: int,
    host: int,
) -> None:
    text = f"geometry: {preset}\ndrafter: {{window: {window or 'null'}}}\nmemory: {{device: {device}, host: {host}}}\n"
    text += f"limits: {{max_batch: {batch}, max_num_tokens: {budget}, max_seq_len: {longest}, extra_tokens: {extra}, "
    text += f"overlap: {str(overlap).lower()}, max_util_for_resume: {gate}}}\n"
    try:
        found = judged(scenario(text), build)
    except InputError as error:
        assert re.search("memory|for the window|can serve|expected room", str(error)), error  # nothing useful fits in
        return
    assert found == ([], 1)


def test_pools_in_pages_have_no_split_to_judge() -> None:
    assert judged(scenario("geometry: tiny\npools: {draft: 2}\n"), BUILDS["unified"]) == ([], 0)


def test_a_share_set_by_hand_is_not_held_against_the_build() -> None:
    by_hand = "geometry: tiny\nmemory: {device: 32 KiB, draft_pages_per_slot: 1}\n"
    assert judged(scenario(by_hand), BUILDS["paired-22"]) == ([], 1)


@pytest.mark.parametrize(
    ("pools", "message", "pool"),
    [
        ({"target": PoolSize(101), "draft": PoolSize(40)}, "more than the memory of the device", "draft"),
        ({"target": PoolSize(60, 40), "draft": PoolSize(40, 1)}, "more than the memory of the host", "draft"),
        ({"target": PoolSize(60), "draft": PoolSize(27)}, "does not fit its share", "draft"),
        ({"target": PoolSize(40), "draft": PoolSize(90)}, "a share no sequence can use up", "draft"),
    ],
)
def test_a_split_that_cannot_hold_is_named_with_its_pool(pools: dict[str, PoolSize], message: str, pool: str) -> None:
    limits = "limits: {max_batch: 2, max_num_tokens: 32, max_seq_len: 80}\n"
    config = scenario("geometry: tiny\n" + limits).engine_config()
    memory = Memory(30_000, 10_240, (("target", 256), ("draft", 128)))
    world = World(replace(config, pools=pools, memory=memory), BUILDS["unified"])
    (violation,) = world.violations
    assert (violation.code, violation.pool, violation.step) == ("ADMIT", pool, 0)
    assert message in violation.message


def test_pools_that_keep_everything_hold_equally_many_tokens() -> None:
    config = scenario("geometry: tiny-pard\n").engine_config()
    memory = Memory(1 << 20, 0, (("target", 256), ("draft", 128)))
    world = World(replace(config, memory=memory), BUILDS["paired-22"])
    assert [violation.expected for violation in world.violations] == ["equally many pages"]


@pytest.mark.parametrize(
    "build", [build for build in CORRECT if not build.rules.layout.shares_pool], ids=lambda b: b.name
)
def test_a_share_has_room_for_the_sinks_of_every_admissible_sequence(build: Build) -> None:
    # Found by fuzzing: 12 tokens of window and a page of sinks were charged as the window alone.
    layers = "layers: 1, kv_heads: 1, head_dim: 8"
    geometry = f"geometry:\n  target: [{{name: full, {layers}}}]\n  draft: [{{name: draft, {layers}, sinks: 8}}]\n"
    drafter = "drafter: {kind: mtp, drafts: 5, window: 12, chain: 3}\n"
    limits = "limits: {page_size: 8, max_batch: 4, max_num_tokens: 22, max_seq_len: 160, extra_tokens: 6}\n"
    with_sinks = scenario(geometry + drafter + limits + "memory: {device: 80000}\n")
    without = scenario(geometry.replace(", sinks: 8", "") + drafter + limits + "memory: {device: 80000}\n")
    assert judged(with_sinks, build) == ([], 1)
    more, fewer = (each.engine_config(build).pools["draft"].device_pages for each in (with_sinks, without))
    assert more > fewer or build.rules.layout.fused
