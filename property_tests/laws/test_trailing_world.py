"""X13 through a whole world: a slot seeded on a page boundary reads what its pool released, unless a page trails.

One request decodes on pages of 128 with a window of 4,096; a larger one keeps it out of a few batches, so that its
slot is seeded anew with a lag of its position modulo the page.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from model.builds import BUILDS, Build
from model.config import Drafter, EngineConfig, Limits, PoolSize, PublishPolicy, RequestSpec
from model.faults import FAULTS
from model.geometry import Lifecycle
from model.ops import Cancel, Dispatch, Settle, Submit, Suspend, World
from model.tokens import Segment

PAGE, WINDOW, STEPS, DRAFTS = 128, 4096, 600, 7
DECODES, LARGE = 0, 1
BARE = FAULTS["no-trail"].build
MIXED = (2, 3, 4, 5)


def resumed(build: Build, lag: int) -> World:
    """A world in which the first request was absent and is back, its slot ``lag`` tokens behind it."""
    config = EngineConfig(
        target=(Lifecycle("target", "target", "target"),),
        draft=(Lifecycle("draft", "draft", "draft", WINDOW),),
        drafter=Drafter("dspark", DRAFTS, WINDOW),
        limits=Limits(PAGE, 4, 16_384, 1 << 16, PAGE, extra_tokens=8, run_ahead=0, max_util_for_resume=0.4),
        pools={"target": PoolSize(200), "draft": PoolSize(200)},
        policy=PublishPolicy.NONE,
    )
    world = World(config, build)
    for request_id, pages in ((LARGE, 70), (DECODES, 40)):
        spec = RequestSpec(request_id, (Segment(request_id, pages * PAGE),), 12_000, 90 + request_id)
        assert world.apply(Submit(spec)).applied
        step(world, (1,) * len(world.engine.live))
    pool, decodes = world.engine.twin.pools["target"], world.engine.live[DECODES]
    while pool.used() < 130 or decodes.settled_position() % PAGE != lag:  # until the large one alone shuts the gate
        step(world, (1 + DRAFTS, 1))
    assert world.apply(Suspend(DECODES)).applied
    step(world, (1,))
    assert len(world.engine.slots.slot_of) == 1  # the large one alone
    assert world.apply(Cancel(LARGE)).applied
    return world


def step(world: World, counts: tuple[int, ...]) -> None:
    """One iteration; its generation rows commit ``counts`` tokens, as far as there are rows."""
    assert world.apply(Dispatch()).applied
    assert world.apply(Settle(counts[: len(world.engine.plans[0].generation)])).applied


def codes_after(build: Build, lag: int, counts: tuple[int, ...]) -> set[str]:
    """Laws that 600 steps break, each committing as many tokens as ``counts`` says in turn.

    Before them the request decodes for a window at 8 tokens a step: until then the base hides what was released.
    """
    world = resumed(build, lag)
    position = world.engine.live[DECODES].settled_position()
    for _ in range((WINDOW + 2 * PAGE) // (1 + DRAFTS)):  # until the window lies above the slot's base
        step(world, (1 + DRAFTS,))
    for count in itertools.islice(itertools.cycle(counts), STEPS):
        step(world, (count,))
    owner = world.engine.live[DECODES].owner
    assert world.engine.slots.base[owner] == position // PAGE  # seeded on the page boundary below its request
    return {violation.code for violation in world.violations}


@pytest.mark.parametrize("lag", [7, 31, 127])
def test_without_a_trailing_page_the_slot_reads_released_blocks(lag: int) -> None:
    assert "WINDOW" in codes_after(BARE, lag, MIXED)


def test_a_lag_of_two_is_made_up_for_by_two_tokens_a_step_and_not_by_one() -> None:
    assert codes_after(BARE, 2, MIXED) == set()
    assert "WINDOW" in codes_after(BARE, 2, (1,))


def test_eight_tokens_a_step_make_up_for_a_lag_of_seven() -> None:
    assert codes_after(BARE, 7, (8,)) == set()


@pytest.mark.parametrize("lag", [2, 7, 31, 127])
def test_with_a_trailing_page_no_slot_does(lag: int) -> None:
    rules = FAULTS["no-trail"].changes
    slots = dict(rules)["slots"]
    seeded = Build("seeded", replace(BUILDS["paired-22"].rules, slots=slots), "seeded on the boundary", "seed 002")
    assert codes_after(seeded, lag, MIXED) == set()
    assert codes_after(seeded, lag, (1,)) == set()
