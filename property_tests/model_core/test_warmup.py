"""Graph warm-up and padding: what dummies at full length take, that nothing of them stays, whom padding rows touch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model.builds import BUILDS
from model.config import Drafter, EngineConfig, Limits, PoolSize, RequestSpec
from model.geometry import Lifecycle
from model.ops import Dispatch, Outcome, Settle, Submit, Warmup, World
from model.tokens import Segment

LIMITS = Limits(4, 4, 32, 64, 4, extra_tokens=2)


def world(build: str = "paired-22", target: int = 40, draft: int = 40, **limits: object) -> World:
    config = EngineConfig(
        target=(Lifecycle("target", "target", "target"),),
        draft=(Lifecycle("draft", "draft", "draft", 8, sinks=4),),
        drafter=Drafter("dflash", 3, 8),
        limits=replace(LIMITS, **limits),  # pyright: ignore[reportArgumentType]
        pools={"target": PoolSize(target), "draft": PoolSize(draft)},
        vocabulary=4096,
    )
    return World(config, BUILDS[build], check="exhaustive")


def warm(opened: World, batch: int, tokens: int) -> Outcome:
    outcome = opened.apply(Warmup(batch, tokens))
    assert all(use.locked == use.held == use.droppable == 0 for use in opened.occupancy())
    assert opened.violations == []
    return outcome


@pytest.mark.parametrize("build", [build.name for build in BUILDS.values() if build.correct])
@pytest.mark.parametrize("tokens", [1, 2, 4, 5, 8, 9, 31, 60, 64])
def test_a_warm_up_takes_what_was_estimated_and_gives_all_of_it_back(build: str, tokens: int) -> None:
    opened = world(build, target=80)
    outcome = warm(opened, 2, tokens)
    assert outcome.applied
    assert outcome.plan is not None
    assert len(outcome.plan.dummies) == 2
    assert opened.docket.evaluations["ADMIT"] == 1
    assert opened.docket.evaluations["ROLLBACK"] == 1


def test_a_windowed_pool_needs_a_window_of_pages_for_a_dummy_of_any_length() -> None:
    # 60 tokens: 17 pages of the target's pool, of the drafter's those behind the window and its trailing page.
    opened = world(target=17, draft=5, max_util_for_resume=1.0)
    assert warm(opened, 1, 60).applied
    assert "34 pages of pool 'target' are needed, 17 can be had" in warm(opened, 2, 60).why


def test_a_warm_up_that_the_resume_gate_stops_half_way_holds_nothing() -> None:
    opened = world(target=12, max_util_for_resume=0.5)
    assert warm(opened, 3, 8).why == "dummy 3 of 3 found no pages"
    assert warm(opened, 2, 8).applied


@pytest.mark.parametrize(("batch", "tokens"), [(0, 8), (5, 8), (1, 0), (1, 65)])
def test_a_warm_up_that_no_batch_has_is_refused(batch: int, tokens: int) -> None:
    assert warm(world(), batch, tokens).why == "a warm-up has up to 4 rows of up to 64 tokens"


def test_a_warm_up_comes_before_all_requests() -> None:
    opened = world()
    assert opened.apply(Submit(RequestSpec(0, (Segment(1, 9),), 4, 7))).applied
    assert opened.apply(Warmup(1, 8)).why == "a warm-up comes before all requests"


@pytest.mark.parametrize(("sizes", "rows", "padding"), [((4,), 3, 1), ((1, 2, 4), 3, 1), ((2,), 3, 0), ((3,), 3, 0)])
def test_verify_rows_are_padded_to_the_next_captured_size(sizes: tuple[int, ...], rows: int, padding: int) -> None:
    opened = world(graph_batches=sizes)
    for request_id in range(rows):
        opened.apply(Submit(RequestSpec(request_id, (Segment(request_id, 6),), 5, 70 + request_id)))
    chunks = opened.apply(Dispatch()).plan
    assert chunks is not None
    assert (len(chunks.context), chunks.padding) == (rows, 0), "a batch with chunks runs without a graph"
    opened.apply(Settle(()))
    steps = opened.apply(Dispatch()).plan
    assert steps is not None
    assert (len(steps.generation), steps.padding) == (rows, padding)
    opened.apply(Settle((1,) * rows))
    assert opened.violations == []
