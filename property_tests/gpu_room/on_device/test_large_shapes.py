"""Shapes of real models on the GPU: float64 agreement in bf16, poisoned surroundings, bitwise claims of exact mode."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpu_backend.contracts.attention import ATTENTION, AttentionCase, build, launches
from gpu_backend.kernels.attention_reference import attention_reference
from gpu_backend.kernels.tiles import Tile

DEVICE = torch.device("cuda")
BF16 = torch.bfloat16
VERIFY = AttentionCase((8,) * 3, (1000, 5, 3000), page_size=128, heads=32, kv_heads=8, dim=128, dtype=BF16)
CASES = {
    "verify rows": VERIFY,
    "verify rows, page 32": replace(VERIFY, page_size=32),
    "verify rows, page 16": replace(VERIFY, page_size=16),
    "verify rows, head 64": replace(VERIFY, dim=64),
    "drafter block": replace(VERIFY, kv_heads=4, causal=False, window_left=511, bases=(3, 0, 20)),
    "drafter block, one start": replace(VERIFY, kv_heads=4, causal=False, starts=(900, 0, 1500)),
    "context chunk": replace(VERIFY, widths=(300, 8, 700), past=(500, 0, 2000)),
    "context chunk, page 32": replace(VERIFY, widths=(300, 8, 700), past=(500, 0, 2000), page_size=32),
    "context chunk with a window": replace(VERIFY, widths=(300, 40), past=(2000, 900), window_left=700),
    "exact": replace(VERIFY, exact=True, chunk=512),
    "half precision": replace(VERIFY, dtype=torch.float16),
    "wide group": replace(VERIFY, heads=64, kv_heads=2, widths=(8, 8), past=(300, 2000)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_real_shape_agrees_with_float64_and_reads_no_poison(name: str) -> None:
    case = CASES[name]
    found, wanted = build(case, DEVICE, 5), build(case, DEVICE, 5)
    attention_reference(wanted)
    for launch in launches(case, found):
        launch()
    assert not found.out.isnan().any()
    assert ATTENTION.error(found, wanted) <= ATTENTION.tolerance(case)


@pytest.mark.parametrize("tile", [Tile(128, 64, 8, 3, bulk=True), Tile(128, 128, 8, 3, bulk=True)], ids=str)
def test_bulk_loads_change_no_bit(tile: Tile) -> None:
    case = CASES["context chunk"]
    outputs = []
    for variant in (tile, replace(tile, bulk=False, stages=5 if tile.block_n == 64 else 3)):
        call = build(case, DEVICE, 5)
        for launch in launches(replace(case, tile=variant), call):
            launch()
        outputs.append(call.out)
    assert torch.equal(*outputs)


def test_verify_rows_in_exact_mode_equal_the_same_rows_of_a_prefill() -> None:
    prefill = AttentionCase(
        (200,), (3000,), page_size=128, heads=32, kv_heads=8, dim=128, dtype=BF16, exact=True, chunk=512
    )
    whole = build(prefill, DEVICE, 9)
    for launch in launches(prefill, whole):
        launch()
    rows = replace(prefill, widths=(8,), past=(3192,))
    verify = build(rows, DEVICE, 9)
    verify.q.copy_(whole.q[192:])
    verify.k_cache, verify.v_cache, verify.table = whole.k_cache, whole.v_cache, whole.table
    for launch in launches(rows, verify):
        launch()
    assert torch.equal(verify.out, whole.out[192:])


def test_a_plane_beyond_two_billion_elements_is_addressed() -> None:
    """Page ids times the page stride pass 2^31 elements: 17,000 pages of 131,072 elements."""
    call = build(VERIFY, DEVICE, 5)
    wanted = build(VERIFY, DEVICE, 5)
    attention_reference(wanted)
    pages = 17_000
    far = torch.empty((2, pages, *call.k_cache.shape[1:]), dtype=BF16, device=DEVICE)
    used = call.k_cache.shape[0]
    far[0, pages - used :], far[1, pages - used :] = call.k_cache, call.v_cache
    call.k_cache, call.v_cache = far[0], far[1]
    call.table[call.table >= 0] += pages - used
    for launch in launches(VERIFY, call):
        launch()
    assert ATTENTION.error(call, wanted) <= ATTENTION.tolerance(VERIFY)
