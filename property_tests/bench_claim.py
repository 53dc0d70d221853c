"""Speed of a claim on a prefix of a million tokens in both pools; run by ``make bench``."""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from model.builds import BUILDS
from model.config import Drafter, EngineConfig, Limits, PoolSize, RequestSpec
from model.geometry import Lifecycle, cdiv
from model.joint import Twin
from model.plan import Recorder
from model.request import Request, RequestRecord, Totals
from model.rules.claim import Claim
from model.tokens import TokenStream, stream_tokens
from property_tests.benchmarking import CLOCK, MS, best_of

pytestmark = pytest.mark.benchmark(timer=CLOCK)

TOKENS, PAGE, WINDOW = 1_000_000, 128, 4096
PREFIX = stream_tokens(1, 0, TOKENS, 200_064)


def engine_config(window: int | None) -> EngineConfig:
    kind = "dspark" if window else "pard"
    return EngineConfig(
        (Lifecycle("target", "target", "target"),),
        (Lifecycle("draft", "draft", "draft", window=window),),
        Drafter(kind, 7, window),
        Limits(PAGE, 8, TOKENS + 4096, TOKENS + 8192, PAGE),
        {"target": PoolSize(10_000), "draft": PoolSize(10_000)},
    )


def arrived(twin: Twin, owner: int, tail: int) -> Request:
    """A request of the prefix and ``tail`` tokens of its own, whose keys are known."""
    tokens = np.concatenate([PREFIX, stream_tokens(owner, 0, tail, 200_064)]) if tail else PREFIX
    request = Request(RequestSpec(owner, (), 8, owner), owner, RequestRecord(owner, -1, len(tokens)))
    request.owner = owner
    request.stream = TokenStream(tokens, lambda start, count: stream_tokens(owner, tail + start, count, 200_064))
    request.context_length = len(tokens)
    twin.make_keys(request)
    return request


@pytest.mark.parametrize(
    ("build", "window"), [("unified", WINDOW), ("paired-22", WINDOW), ("unified", None), ("paired-22", None)]
)
def test_a_prefix_of_a_million_tokens_is_claimed_in_under_20_ms(
    benchmark: BenchmarkFixture, build: str, window: int | None
) -> None:
    """Target: 20 ms to probe both pools, claim 7,813 pages in each that keeps them, and lock them at first resume."""
    twin = Twin(engine_config(window), BUILDS[build].rules, Recorder())
    publisher = arrived(twin, 1, 0)
    publisher.claim = twin.claim(publisher, Totals())
    assert twin.grow_context(publisher, TOKENS, last=True)
    twin.advance(publisher, TOKENS, last=True)
    twin.free(publisher)
    request = arrived(twin, 2, 100)

    def start_over() -> None:
        twin.free(request)

    def claim() -> Claim:
        found = twin.claim(request, Totals())
        assert twin.resume(request)
        return found

    found = best_of(benchmark, claim, rounds=10, target_s=20 * MS, setup=start_over)
    assert found == Claim(TOKENS, fresh=False)
    pages = [sequence.tables[0].count() for sequence in twin.sequences(request)]
    assert pages[0] == cdiv(TOKENS, PAGE) == 7_813
    assert [pool.used() for pool in twin.pools.values()] == [7_813, 33 if window else 7_813]
