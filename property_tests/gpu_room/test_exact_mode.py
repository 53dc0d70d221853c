"""Exact mode: the bits of a query do not depend on the batch, on the row's width or on how its prompt was cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpu_backend.calls import AttentionCall
from gpu_backend.contracts.attention import AttentionCase, build
from gpu_backend.contracts.base import int32
from gpu_backend.kernels.attention_plan import AttentionPlan

PAST, WIDTH = 150, 40
PROMPT = AttentionCase((WIDTH,), (PAST,), heads=2, kv_heads=1, exact=True)


def rows_of(call: AttentionCall, spans: list[tuple[int, int]], window_left: int = -1) -> AttentionCall:
    """The queries of ``spans`` (offsets in the chunk) as rows of a batch over the same sequence."""
    device = call.q.device
    q = torch.cat([call.q[begin:end] for begin, end in spans])
    bounds = [sum(end - begin for begin, end in spans[:row]) for row in range(len(spans) + 1)]
    return AttentionCall(
        q, torch.full_like(q, float("nan")), call.k_cache, call.v_cache, call.table.expand(len(spans), -1).contiguous(),
        int32(bounds, device), int32([PAST + end for _, end in spans], device), int32([0] * len(spans), device),
        int32([0] * len(spans), device), True, window_left, from_origin=True,
    )  # fmt: skip


def run(call: AttentionCall, case: AttentionCase, longest: int = PAST + WIDTH, **options: object) -> torch.Tensor:
    """Output of ``call`` under a plan of its own."""
    widths = torch.diff(call.cu_query).tolist()
    arguments: dict = {
        "longest": longest,
        "window_left": call.window_left,
        "exact": True,
        "chunk": case.chunk,
        **options,
    }
    plan = AttentionPlan(
        widths, case.heads, case.kv_heads, case.dim, case.page_size, case.dtype, call.q.device, **arguments
    )
    plan.run(call)
    return call.out


@pytest.fixture
def prompt(device: torch.device) -> AttentionCall:
    """One chunk of 40 tokens behind 150; none of its keys is poisoned."""
    return build(PROMPT, device, 11)


@pytest.mark.parametrize("window_left", [-1, 70])
def test_a_prompt_in_two_chunks_equals_the_prompt_in_one(prompt: AttentionCall, window_left: int) -> None:
    whole = run(rows_of(prompt, [(0, WIDTH)], window_left), PROMPT)
    first = run(rows_of(prompt, [(0, 17)], window_left), PROMPT)
    second = run(rows_of(prompt, [(17, WIDTH)], window_left), PROMPT)
    assert torch.equal(whole, torch.cat([first, second]))


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_a_row_alone_equals_the_row_in_a_batch(device: torch.device, kv_heads: int) -> None:
    case = replace(PROMPT, heads=2 * kv_heads, kv_heads=kv_heads)
    prompt = build(case, device, 11)
    alone = run(rows_of(prompt, [(30, 38)]), case)
    batch = run(rows_of(prompt, [(3, 9), (30, 38), (0, 1)]), case)
    assert torch.equal(alone, batch[6:14])


def test_verify_rows_equal_the_rows_of_a_prefill(prompt: AttentionCall) -> None:
    prefill = run(rows_of(prompt, [(0, WIDTH)]), PROMPT)
    verify = run(rows_of(prompt, [(32, WIDTH)]), PROMPT)
    assert torch.equal(prefill[32:], verify)


def test_fewer_rows_of_a_block_and_more_empty_splits_change_nothing(prompt: AttentionCall) -> None:
    eight = run(rows_of(prompt, [(32, 40)]), PROMPT)
    assert torch.equal(eight[3:], run(rows_of(prompt, [(35, 40)]), PROMPT))
    assert torch.equal(eight, run(rows_of(prompt, [(32, 40)]), PROMPT, longest=1000))


def test_a_base_moves_no_chunk_boundary(device: torch.device) -> None:
    """The same keys read from position 0 on, and through a base with the keys below it out of the window."""
    call = build(PROMPT, device, 11)
    whole = rows_of(call, [(0, 4)], window_left=60)
    based = rows_of(call, [(0, 4)], window_left=60)
    based.base += 5
    based.length -= 5 * PROMPT.page_size
    assert torch.equal(run(whole, PROMPT), run(based, PROMPT))


def test_a_repeat_is_identical_and_another_split_count_is_not(prompt: AttentionCall) -> None:
    """Without exact mode only a repeat keeps its bits: that is why the mode exists."""
    case = replace(PROMPT, exact=False)
    even = [run(rows_of(prompt, [(0, WIDTH)]), case, exact=False, splits=splits) for splits in (3, 3, 2)]
    assert torch.equal(even[0], even[1])
    assert not torch.equal(even[0], even[2])
