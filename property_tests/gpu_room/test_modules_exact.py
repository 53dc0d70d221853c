"""Exact mode of whole modules: the bits of a row's logits, features and K/V do not depend on the rest of its step."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from gpu_backend.modules.blocks import EXACT_ROWS, RowBlocks
from gpu_backend.modules.own_pages import greedy_cold
from gpu_backend.modules.tier0 import TINY, drafter_for
from property_tests.gpu_room.pairs import Pair, make_pair, prompt

DTYPES = [torch.float32, torch.bfloat16]
PROMPTS = [prompt(length, seed) for seed, length in enumerate((52, 7, 33, 20))]


@pytest.fixture(scope="module", params=DTYPES, ids=str)
def pair(request: pytest.FixtureRequest, device: torch.device) -> Pair:
    return make_pair(device, TINY, drafter_for(TINY, window=20), dtype=request.param, exact=True)


def cold(pair: Pair, tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """Logits, features and drafter context of ``tokens`` run alone in one chunk."""
    pages = pair.pages()
    output = pages.run([0], [tokens])
    pages.settle([0], [len(tokens)], [len(tokens)], output)
    assert pages.of_drafter is not None
    context = [plane for group in pages.of_drafter.rows_of(0, len(tokens)) for rows in group for plane in rows]
    return output.logits, output.features, context


@pytest.mark.parametrize("widths", [(52,), (16, 36), (17, 1, 4, 4, 26), (1,) * 52], ids=str)
def test_however_a_prompt_is_cut_its_bits_are_the_same(pair: Pair, widths: tuple[int, ...]) -> None:
    tokens = PROMPTS[0]
    logits, features, context = cold(pair, tokens)
    pages = pair.pages()
    at = 0
    for width in widths:
        output = pages.run([0], [tokens[at : at + width]])
        pages.settle([0], [width], [width], output)
        assert torch.equal(output.logits, logits[at : at + width])
        assert torch.equal(output.features, features[at : at + width])
        at += width
    assert pages.of_drafter is not None
    found = [plane for group in pages.of_drafter.rows_of(0, 52) for rows in group for plane in rows]
    assert all(torch.equal(plane, wanted) for plane, wanted in zip(found, context, strict=True))


def test_a_row_in_a_batch_equals_the_row_alone(pair: Pair) -> None:
    """Chunks of three requests beside a verify row, then drafts of all of them."""
    pages = pair.pages(4)
    pages.prefill(0, PROMPTS[0][:48])
    order = [2, 0, 3, 1]
    parts = [PROMPTS[2], PROMPTS[0][48:], PROMPTS[3], PROMPTS[1]]
    widths = [len(part) for part in parts]
    output = pages.run(order, parts)
    pages.settle(order, widths, widths, output)
    ends = [sum(widths[: place + 1]) for place in range(4)]
    drafts = pages.draft(order, [5, 6, 7, 8])
    for place, (row, end) in enumerate(zip(order, ends, strict=True)):
        logits, features, _ = cold(pair, PROMPTS[row])
        assert torch.equal(output.logits[end - widths[place] : end], logits[-widths[place] :])
        assert torch.equal(output.features[end - widths[place] : end], features[-widths[place] :])
        alone = pair.pages()
        alone.prefill(0, PROMPTS[row])
        assert torch.equal(drafts[place], alone.draft([0], [5 + place])[0])


def test_decoding_one_by_one_has_the_bits_of_one_pass(pair: Pair) -> None:
    """LOSSLESS in exact mode compares an output with a single cold pass over prompt and output, bit by bit."""
    tokens, logits = greedy_cold(pair.target, PROMPTS[2], 20, 16)
    whole, _, _ = cold(pair, [*PROMPTS[2], *tokens[:-1]])
    assert torch.equal(logits, whole[32:])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_place_of_a_row_in_its_block_means_nothing(device: torch.device, dtype: torch.dtype) -> None:
    source = torch.Generator().manual_seed(4)
    weight = torch.randn(96, 64, generator=source).to(device, dtype)
    rows = torch.randn(40, 64, generator=source).to(device, dtype)
    blocks = RowBlocks.of(device, exact=True)
    (whole,) = blocks(lambda x: (F.linear(x, weight),), rows)
    for place in (0, 1, 7, 15, 16, 39):
        (alone,) = blocks(lambda x: (F.linear(x, weight),), rows[place : place + 1])
        assert torch.equal(alone[0], whole[place])


def test_without_exact_mode_the_bits_depend_on_the_rows_beside(device: torch.device) -> None:
    """Why the mode exists: the same row alone and in a pass of many."""
    pair = make_pair(device, TINY, drafter_for(TINY, window=20))
    logits, _, _ = cold(pair, PROMPTS[0])
    pages = pair.pages()
    one_by_one = [pages.run([0], [PROMPTS[0][:1]]).logits]
    pages.settle([0], [1], [1], pages.run([0], [PROMPTS[0][:1]]))
    for token in PROMPTS[0][1:]:
        output = pages.run([0], [[token]])
        pages.settle([0], [1], [1], output)
        one_by_one.append(output.logits)
    assert not torch.equal(torch.cat(one_by_one), logits)


def test_blocks_have_one_size_and_keep_every_row(device: torch.device) -> None:
    seen = []

    def double(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append((len(x), len(y)))
        return x * 2, y + 1

    size = EXACT_ROWS[device.type]
    x, y = torch.arange(2 * size + 3, device=device), torch.arange(2 * size + 3, device=device).expand(5, -1).T
    doubled, added = RowBlocks.of(device, exact=True)(double, x, y)
    assert seen == [(size, size)] * 3
    assert torch.equal(doubled, x * 2) and torch.equal(added, y + 1)
    seen.clear()
    RowBlocks.of(device, exact=False)(double, x, y)
    assert seen == [(2 * size + 3, 2 * size + 3)]
    empty = RowBlocks.of(device, exact=True)(double, x[:0], y[:0])
    assert [len(part) for part in empty] == [0, 0]
