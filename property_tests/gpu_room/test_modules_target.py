"""The paged target equals plain decoding of the same weights, however a sequence reaches it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpu_backend.modules.blocks import RowBlocks
from gpu_backend.modules.config import TargetConfig
from gpu_backend.modules.own_pages import OwnPages, PagedRows, greedy_cold
from gpu_backend.modules.plain import DenseCache
from gpu_backend.modules.speculate import greedy_plain
from gpu_backend.modules.stack import Runner
from gpu_backend.modules.tier0 import TINY
from gpu_backend.modules.views import StepShape
from gpu_backend.triton_backend import TritonKernels
from property_tests.gpu_room.pairs import NEAR, distance, make_pair, prompt

TARGETS = {
    "qwen": TINY,
    "tied head": replace(TINY, tied=True),
    "llama": replace(TINY, qk_norm=False),
    "every second layer slides": replace(TINY, layers=4, windows=(None, 24, None, 24)),
    "all layers slide": replace(TINY, windows=(9, 9, 9)),
    "one KV head, another base": replace(TINY, kv_heads=1, theta=1e6, eps=1e-5),
}


@pytest.mark.parametrize("dtype", NEAR, ids=str)
@pytest.mark.parametrize("config", TARGETS.values(), ids=TARGETS)
def test_chunks_decode_rows_and_verify_rows_equal_plain(
    device: torch.device, config: TargetConfig, dtype: torch.dtype
) -> None:
    pair = make_pair(device, config, dtype=dtype)
    tokens = prompt(60)
    wanted, features = pair.plain(tokens)
    pages = pair.pages()
    at = 0
    for width in (17, 16, 1, 1, 4, 3, 18):  # chunks on no page's edge, decode rows, verify rows, a chunk
        output = pages.run([0], [tokens[at : at + width]])
        pages.settle([0], [width], [width], output)
        assert distance(output.logits, wanted[at : at + width]) < NEAR[dtype]
        assert distance(output.features, features[at : at + width]) < NEAR[dtype]
        at += width
    assert at == len(tokens)


def test_rows_of_a_batch_equal_the_sequences_alone(device: torch.device) -> None:
    pair = make_pair(device)
    prompts = [prompt(length, seed) for seed, length in enumerate((5, 41, 16, 30))]
    pages = pair.pages(4)
    first = pages.run([1, 3], [prompts[1][:33], prompts[3][:30]])
    pages.settle([1, 3], [33, 30], [33, 30], first)
    second = pages.run([0, 1, 2], [prompts[0], prompts[1][33:], prompts[2]])
    wanted = torch.cat([pair.plain(prompts[0])[0], pair.plain(prompts[1])[0][33:], pair.plain(prompts[2])[0]])
    assert distance(second.logits, wanted) < NEAR[torch.float32]
    assert distance(first.logits[33:], pair.plain(prompts[3])[0]) < NEAR[torch.float32]


def test_rejected_drafts_leave_nothing_behind(device: torch.device) -> None:
    pair = make_pair(device)
    tokens = prompt(45)
    wanted, _ = pair.plain(tokens)
    pages = pair.pages()
    pages.prefill(0, tokens[:30])
    wrong = pages.run([0], [[tokens[30], 1, 2, 3]])
    pages.settle([0], [1], [4], wrong)
    right = pages.run([0], [tokens[31:]])
    assert distance(wrong.logits[0], wanted[30]) < NEAR[torch.float32]
    assert distance(right.logits, wanted[31:]) < NEAR[torch.float32]


def test_a_context_call_and_a_generation_call_share_one_pass(device: torch.device) -> None:
    """A mixed step: a chunk and two verify rows, in two attention calls over one set of tokens; then a parked row."""
    pair = make_pair(device)
    prompts = [prompt(40, 3), prompt(33, 4), prompt(21, 5)]
    pages = pair.pages(4)
    pages.prefill(1, prompts[1][:29])
    pages.prefill(2, prompts[2][:17])
    shape = StepShape([40, 4, 4, 4], device, chunks=1)
    assert [(call.first_row, call.first, call.widths) for call in shape.calls] == [(0, 0, (40,)), (1, 40, (4, 4, 4))]
    lanes = pages.of_target.lanes([0, 1, 2, 3])
    for lane in lanes:
        lane.active = torch.tensor([True, True, True, False], device=device)
    flat = torch.tensor([*prompts[0], *prompts[1][29:], *prompts[2][17:], 0, 0, 0, 0], device=device)
    step = shape.step(flat, torch.tensor([0, 29, 17, 0], device=device), lanes)
    assert shape.last().tolist() == [39, 43, 47, 51]
    before = [pool.kv.clone() for pool in pages.of_target.pools]
    wanted = torch.tensor([39, 40, 41, 42, 43, 44, 45, 46, 47, 48], device=device)
    output = pair.target(step, wanted)
    plain = [pair.plain(tokens)[0] for tokens in prompts]
    expected = torch.cat([plain[0][39:], plain[1][29:], plain[2][17:]])
    assert distance(output.logits[:9], expected) < NEAR[torch.float32]
    assert output.logits[9].isfinite().all(), "a parked row attends nothing"
    parked = pages.of_target.tables[0][3].long()
    for pool, kept in zip(pages.of_target.pools, before, strict=True):
        assert torch.equal(pool.kv[:, :, parked].isnan(), kept[:, :, parked].isnan()), "a token of row -1 is dropped"


def test_logits_are_computed_where_they_are_wanted(device: torch.device) -> None:
    pair = make_pair(device)
    tokens = prompt(20)
    pages = pair.pages(2)
    every = pages.run([0], [tokens]).logits
    zero = torch.zeros(1, dtype=torch.int64, device=device)
    step = StepShape([20], device).step(torch.tensor(tokens, device=device), zero, pages.of_target.lanes([1]))
    some = pair.target(step, torch.tensor([19, 3], device=device)).logits
    assert some.shape == (2, TINY.vocabulary)
    assert distance(some, every[[19, 3]]) < NEAR[torch.float32]


def test_windowed_layers_read_nothing_below_their_window(device: torch.device) -> None:
    """Pages below the window are released, poisoned and no longer in the table; full layers keep theirs."""
    config = replace(TINY, windows=(9, 9, 9))
    pair = make_pair(device, config)
    tokens = prompt(70)
    pages = pair.pages()
    pages.prefill(0, tokens[:50])
    pages.of_target.drop_below(0, 50 - 8)
    output = pages.run([0], [tokens[50:]])
    assert distance(output.logits, pair.plain(tokens)[0][50:]) < NEAR[torch.float32]


def test_a_page_of_another_request_shows_in_the_logits(device: torch.device) -> None:
    """What the comparisons above rest on: foreign K/V is far outside their tolerance."""
    pair = make_pair(device)
    tokens = prompt(40)
    pages = pair.pages(2)
    pages.prefill(0, tokens[:32])
    pages.prefill(1, prompt(32, 9))
    pages.of_target.tables[0][0, 0] = pages.of_target.tables[0][1, 0]
    logits = pages.run([0], [tokens[32:]]).logits
    assert distance(logits, pair.plain(tokens)[0][32:]) > 100 * NEAR[torch.float32]


def test_greedy_tokens_through_pages_equal_plain_greedy(device: torch.device) -> None:
    pair = make_pair(device)
    tokens = prompt(37)
    plain = greedy_plain(pair.plain_target, tokens, 24)
    found, logits = greedy_cold(pair.target, tokens, 24, 16)
    assert found == plain
    assert logits.shape == (24, TINY.vocabulary)
    assert len(set(plain)) > 12, "an output that repeats itself would prove little"


def test_triton_and_the_reference_agree_on_the_whole_target(device: torch.device) -> None:
    """On a CPU by Triton's interpreter, so two layers and few tokens."""
    config = replace(TINY, layers=2, windows=(None, 9))
    pair = make_pair(device, config)
    tokens = prompt(24)
    pair.target.run = pair.drafter.run = Runner(TritonKernels(), RowBlocks(None))
    pages = pair.pages(page_size=16, longest=48)
    pages.prefill(0, tokens[:19])
    output = pages.run([0], [tokens[19:23]])
    pages.settle([0], [4], [4], output)
    wanted, features = pair.plain(tokens[:23])
    assert distance(output.logits, wanted[19:]) < NEAR[torch.float32]
    context = DenseCache(pair.drafter.config.layers)
    for layer, rows in enumerate(pair.plain_drafter.context_rows(features, 0)):
        context.put(layer, *rows)
    drafted = pages.draft([0], [tokens[23]])
    plain = pair.plain_drafter.block(tokens[23], context, pair.plain_target)
    assert distance(drafted[0], plain) < NEAR[torch.float32]


def test_pages_are_handed_out_in_random_order_and_poisoned(device: torch.device) -> None:
    rows = PagedRows(TINY, 3, 64, 16, device, seed=5)
    (table,) = rows.tables
    assert sorted(table.flatten().tolist()) == list(range(1, 13))
    assert table.flatten().tolist() != list(range(1, 13))
    assert rows.pools[0].kv.isnan().all()


def test_features_are_those_of_the_tapped_layers_in_their_order(device: torch.device) -> None:
    pair = make_pair(device, replace(TINY, layers=5))
    tokens = prompt(9)
    both, reverse = (OwnPages(pair.target, None, 1, 16, 16) for _ in range(2))
    pair.target.taps = (1, 3)
    features = both.run([0], [tokens]).features
    pair.target.taps = (3, 1)
    assert torch.equal(reverse.run([0], [tokens]).features, torch.cat(features.chunk(2, -1)[::-1], -1))
    assert not torch.equal(*features.chunk(2, -1))


def test_a_row_neither_stores_nor_reads_behind_its_limit(device: torch.device) -> None:
    """A drafter's block at the end of its pages: what does not fit is dropped, the rest is as it would be."""
    pair = make_pair(device)
    pages = pair.pages(longest=32)
    tokens = prompt(30)
    pages.prefill(0, tokens)
    assert pages.of_drafter is not None
    (lane,) = pages.of_drafter.lanes([0])
    lane.limit = torch.tensor([32], device=device)
    shape = StepShape([4], device)
    block = pair.drafter.block_tokens(torch.tensor([7], device=device))
    step = shape.step(block, torch.tensor([30], device=device), [lane])
    assert step.paging[0].row.tolist() == [0, 0, -1, -1]
    assert step.paging[0].length.tolist() == [32]
    assert pair.drafter(step, pair.target).logits.isfinite().all()
