"""Speed of the content tags; run by ``make bench``, not by the ordinary suite."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pytest_benchmark.fixture import BenchmarkFixture

from model.tokens import TokenStream, cell_tags, named_seed, stream_tokens

TOKENS = 1_000_000
LIMIT_S = 0.050


def nothing_more(start: int, count: int) -> NDArray[np.uint32]:
    return np.empty(0, dtype=np.uint32)


def test_a_prompt_of_a_million_tokens_is_tagged_in_under_50_ms(benchmark: BenchmarkFixture) -> None:
    prompt = stream_tokens(1, 0, TOKENS, 200_064)
    seed = named_seed("target")

    def tag() -> NDArray[np.uint64]:
        return cell_tags(TokenStream(prompt, nothing_more), 0, TOKENS, 0, seed)

    tags = benchmark.pedantic(tag, rounds=10, warmup_rounds=1)
    assert len(tags) == TOKENS
    assert benchmark.stats is not None, "the limit needs --benchmark-enable"
    assert benchmark.stats["min"] < LIMIT_S
