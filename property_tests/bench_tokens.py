"""Speed of the content tags; run by ``make bench``, not by the ordinary suite."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from pytest_benchmark.fixture import BenchmarkFixture

from model.tokens import TokenStream, cell_tags, named_seed, stream_tokens
from property_tests.benchmarking import CLOCK, MS, best_of

pytestmark = pytest.mark.benchmark(timer=CLOCK)

TOKENS = 1_000_000


def nothing_more(start: int, count: int) -> NDArray[np.uint32]:
    return np.empty(0, dtype=np.uint32)


def test_a_prompt_of_a_million_tokens_is_tagged_in_under_50_ms(benchmark: BenchmarkFixture) -> None:
    """Target: 50 ms for the sums and the tags of 1,000,000 tokens."""
    prompt = stream_tokens(1, 0, TOKENS, 200_064)
    seed = named_seed("target")

    def tag() -> NDArray[np.uint64]:
        return cell_tags(TokenStream(prompt, nothing_more), 0, TOKENS, 0, seed)

    tags = best_of(benchmark, tag, rounds=10, target_s=50 * MS)
    assert len(tags) == TOKENS
