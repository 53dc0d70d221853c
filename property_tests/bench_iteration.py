"""The fixed cost of an iteration at a small batch, at real page and window sizes; run by ``make bench``."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from model.builds import BUILDS
from model.config import Drafter, EngineConfig, Limits, PoolSize, RequestSpec
from model.geometry import Lifecycle
from model.ops import Dispatch, Settle, Submit, World
from model.request import State
from model.tokens import Segment
from property_tests.benchmarking import CLOCK, US, best_of

pytestmark = pytest.mark.benchmark(timer=CLOCK)

BATCH, PROMPT, ITERATIONS = 8, 6_000, 500


def decoding(build: str, drafts: int) -> World:
    """Eight requests past their prefill: pages of 128, a drafter window of 4,096, incremental checks."""
    settings = EngineConfig(
        (Lifecycle("target", "target", "target"),),
        (Lifecycle("draft", "draft", "draft", window=4096),),
        Drafter("dspark", drafts, 4096),
        Limits(128, 64, 8192, 16_384, 128, extra_tokens=8),
        {"target": PoolSize(4096), "draft": PoolSize(4096)},
    )
    world = World(settings, BUILDS[build], check="incremental")
    for number in range(BATCH):
        prompt = (Segment(1, 2_000), Segment(100 + number, PROMPT - 2_000 + 17 * number))
        assert world.apply(Submit(RequestSpec(number, prompt, 4_000, 50 + number))).applied
    while any(request.state is not State.GENERATION for request in world.engine.live.values()):
        iterate(world, 1)
    return world


def iterate(world: World, count: int) -> None:
    """``count`` iterations, the host one ahead of the device, 3 tokens a verify row."""
    engine = world.engine
    for _ in range(count):
        world.apply(Dispatch())
        if engine.in_flight > 1:
            world.apply(Settle((3,) * len(engine.plans[0].generation)))


@pytest.mark.parametrize("drafts", [7, 0])
@pytest.mark.parametrize("build", ["unified", "paired-22"])
def test_an_iteration_at_batch_8(benchmark: BenchmarkFixture, build: str, drafts: int) -> None:
    """Target: 250 us for dispatch and settle of eight rows, page growth and window release included, with checks."""
    worlds: list[World] = []

    def setup() -> None:
        worlds[:] = [decoding(build, drafts)]

    def run() -> None:
        iterate(worlds[0], ITERATIONS)

    best_of(benchmark, run, rounds=5, target_s=250 * US, parts=ITERATIONS, setup=setup)
    totals = worlds[0].engine.totals
    assert totals.decode_rows >= BATCH * ITERATIONS
    assert worlds[0].violations == []
