"""The paged drafter equals the plain one: context rows, blocks, windows, bases, traces of acceptance."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpu_backend.modules.plain import DenseCache
from gpu_backend.modules.speculate import cold_context, greedy_plain, speculate_plain
from gpu_backend.modules.tier0 import TINY, drafter_for
from gpu_backend.modules.views import StepShape
from property_tests.gpu_room.pairs import NEAR, Pair, distance, make_pair, prompt


def context_of(pair: Pair, tokens: list[int]) -> DenseCache:
    """The plain drafter's context of ``tokens``."""
    context = DenseCache(pair.drafter.config.layers)
    for layer, rows in enumerate(cold_context(pair.plain_target, pair.plain_drafter, tokens)):
        context.put(layer, *rows)
    return context


@pytest.mark.parametrize("dtype", NEAR, ids=str)
def test_context_rows_equal_a_cold_recompute(device: torch.device, dtype: torch.dtype) -> None:
    """SHADOW: whatever chunks, verify rows and rejections a pool has seen, each row is that of its token."""
    pair = make_pair(device, dtype=dtype)
    tokens = prompt(50)
    pages = pair.pages()
    pages.prefill(0, tokens[:34], chunk=15)
    wrong = pages.run([0], [[*tokens[34:36], 5, 6]])
    pages.settle([0], [2], [4], wrong)
    pages.prefill(0, tokens[36:], chunk=9)
    assert pages.of_drafter is not None
    found = [rows for group in pages.of_drafter.rows_of(0, 50) for rows in group]
    for (k, v), (cold_k, cold_v) in zip(
        found, cold_context(pair.plain_target, pair.plain_drafter, tokens), strict=True
    ):
        assert distance(k, cold_k) < NEAR[dtype]
        assert distance(v, cold_v) < NEAR[dtype]


def test_a_context_row_depends_on_its_own_state_and_position_alone(device: torch.device) -> None:
    pair = make_pair(device)
    features = torch.randn(6, len(pair.drafter.config.taps) * 64, generator=torch.Generator().manual_seed(3)).to(device)
    position = torch.tensor([4, 9, 2, 70, 70, 0], device=device)
    every = pair.drafter.context_rows(features, position)
    for place in range(6):
        alone = pair.drafter.context_rows(features[place : place + 1], position[place : place + 1])
        for (k, v), (own_k, own_v) in zip(every, alone, strict=True):
            assert distance(k[place], own_k[0]) < NEAR[torch.float32]
            assert distance(v[place], own_v[0]) < NEAR[torch.float32]


@pytest.mark.parametrize("window", [None, 4, 20])
@pytest.mark.parametrize("length", [1, 3, 4, 15, 16, 19, 20, 21, 33, 48])
def test_a_block_equals_plain_around_edges_of_pages_and_window(
    device: torch.device, window: int | None, length: int
) -> None:
    pair = make_pair(device, TINY, drafter_for(TINY, window=window))
    tokens = prompt(length)
    pages = pair.pages()
    pages.prefill(0, tokens)
    found = pages.draft([0], [7])
    assert (
        distance(found[0], pair.plain_drafter.block(7, context_of(pair, tokens), pair.plain_target))
        < NEAR[torch.float32]
    )


@pytest.mark.parametrize("causal", [(True, False), (True, True)])
def test_causal_layers_see_no_slot_behind_their_own(device: torch.device, causal: tuple[bool, ...]) -> None:
    """With all layers causal, a wider block drafts in its first slots what a narrower one does."""
    tokens, logits = prompt(33), []
    for block in (4, 6):
        pair = make_pair(device, TINY, replace(drafter_for(TINY, window=20, block=block), causal=causal))
        pages = pair.pages()
        pages.prefill(0, tokens)
        logits.append(pages.draft([0], [7])[0])
        plain = pair.plain_drafter.block(7, context_of(pair, tokens), pair.plain_target)
        assert distance(logits[-1], plain) < NEAR[torch.float32]
    near = distance(logits[1][:3], logits[0].double()) < NEAR[torch.float32]
    assert near == all(causal)


def test_the_window_is_per_query(device: torch.device) -> None:
    """A query reads keys nearer than the window: one row too many or too few would show."""
    tokens = prompt(40)
    logits = {}
    for window in (15, 16, 17):
        pair = make_pair(device, TINY, drafter_for(TINY, window=window))
        pages = pair.pages()
        pages.prefill(0, tokens)
        logits[window] = pages.draft([0], [7])
        assert (
            distance(logits[window][0], pair.plain_drafter.block(7, context_of(pair, tokens), pair.plain_target))
            < (NEAR[torch.float32])
        )
    assert distance(logits[15], logits[16]) > 100 * NEAR[torch.float32]
    assert distance(logits[17], logits[16]) > 100 * NEAR[torch.float32]


def test_blocks_of_a_batch_equal_blocks_alone(device: torch.device) -> None:
    pair = make_pair(device)
    prompts = [prompt(length, length) for length in (5, 40, 31)]
    pages = pair.pages(3)
    for row, tokens in enumerate(prompts):
        pages.prefill(row, tokens)
    found = pages.draft([2, 0, 1], [9, 8, 7])
    for place, (row, anchor) in enumerate(((2, 9), (0, 8), (1, 7))):
        plain = pair.plain_drafter.block(anchor, context_of(pair, prompts[row]), pair.plain_target)
        assert distance(found[place], plain) < NEAR[torch.float32]


@pytest.mark.parametrize("base", [1, 2])
def test_what_lies_below_the_base_is_hidden_and_positions_stay_absolute(device: torch.device, base: int) -> None:
    pair = make_pair(device, TINY, drafter_for(TINY, window=None))
    tokens = prompt(45)
    pages = pair.pages()
    pages.base[0] = base
    pages.length[0] = 0
    target_only = pages.run([0], [tokens])
    assert pages.of_drafter is not None
    kept = target_only.features[base * 16 :]
    start = torch.tensor([base * 16], device=device)
    stored = StepShape([45 - base * 16], device).step(start, start, pages.of_drafter.lanes([0], [base]))
    pair.drafter.fold(kept, stored)
    pages.length[0] = 45
    found = pages.draft([0], [7])
    context = context_of(pair, tokens)
    hidden = pair.plain_drafter.block(7, context, pair.plain_target, hidden=base * 16)
    assert distance(found[0], hidden) < NEAR[torch.float32]
    assert distance(found[0], pair.plain_drafter.block(7, context, pair.plain_target)) > 100 * NEAR[torch.float32]


def test_columns_that_carry_no_token_are_stored_as_zeros(device: torch.device) -> None:
    pair = make_pair(device)
    pages = pair.pages()
    assert pages.of_drafter is not None
    output = pages.run([0], [prompt(4)])
    lanes = pages.of_drafter.lanes([0])
    for lane in lanes:
        lane.live = torch.tensor([True, True, False, False], device=device)
    zero = torch.zeros(1, dtype=torch.int64, device=device)
    pair.drafter.fold(output.features, StepShape([4], device).step(zero, zero, lanes))
    for group in pages.of_drafter.rows_of(0, 4):
        for k, v in group:
            assert k[:2].any(-1).all() and v[:2].any(-1).all()
            assert not k[2:].any() and not v[2:].any()


def test_an_anchor_that_predicts_by_its_own_slot(device: torch.device) -> None:
    config = drafter_for(TINY, block=3, window=20, logits_start=0)
    pair = make_pair(device, TINY, config)
    assert config.drafts == 3
    tokens = prompt(20)
    pages = pair.pages()
    pages.prefill(0, tokens)
    found = pages.draft([0], [7])
    assert found.shape == (1, 3, TINY.vocabulary)
    assert (
        distance(found[0], pair.plain_drafter.block(7, context_of(pair, tokens), pair.plain_target))
        < NEAR[torch.float32]
    )


@pytest.mark.parametrize("windows", [(), (None, 12, 12)], ids=["full attention", "layers of two kinds"])
def test_tokens_and_accept_traces_equal_plain_speculation(
    device: torch.device, windows: tuple[int | None, ...]
) -> None:
    """With five words in the vocabulary random drafts are right now and then."""
    config = replace(TINY, vocabulary=5, windows=windows)
    drafter = replace(drafter_for(config, window=20), windows=(20, None))
    pair = make_pair(device, config, drafter)
    prompts = [prompt(length, length, 5) for length in (7, 30)]
    pages = pair.pages(2)
    output = [[int(pages.prefill(row, tokens).argmax())] for row, tokens in enumerate(prompts)]
    steps: list[list[int]] = [[], []]
    while min(map(len, output)) < 40:
        rows = [row for row in (0, 1) if len(output[row]) < 40]
        verdict, _ = pages.speculate(rows, [output[row][-1] for row in rows])
        for place, row in enumerate(rows):
            accepted = int(verdict.accepted[place])
            output[row] += verdict.choice[place, :accepted].tolist()
            steps[row].append(accepted)
    for row, tokens in enumerate(prompts):
        wanted, trace = speculate_plain(pair.plain_target, pair.plain_drafter, tokens, 40)
        assert (output[row], steps[row]) == (wanted, trace)
        assert output[row][:40] == greedy_plain(pair.plain_target, tokens, 40)
    assert {1, 2, 3} <= {count for row in steps for count in row}
