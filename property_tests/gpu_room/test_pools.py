"""Pools: layout, guard, poison, tenancy, host tier, and honest errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gpu_backend.calls import CopyCall
from gpu_backend.cells import SENTINEL, CellState, device_tags, signed
from gpu_backend.device import DeviceMemoryError, require_memory
from gpu_backend.host_tier import HostTier
from gpu_backend.layout import GUARD_PAGE, PoolLayout
from gpu_backend.pool import DevicePool
from gpu_backend.pools import build_pools
from model.budget import Pair, SplitAsk, pool_sizes
from model.config import Drafter, Limits, PoolSize
from model.geometry import AttentionShape
from model.reader import UNWRITTEN
from model.rules.budget import Budget
from model.tokens import mix64_array

LAYOUT = PoolLayout(layers=3, kv_heads=2, head_dim=8, page_size=4, dtype=torch.float32)


def pool(device: torch.device, *, debug: bool = True, pages: int = 5) -> DevicePool:
    return DevicePool("target", LAYOUT, pages, device, debug=debug)


def test_a_pool_is_laid_out_layer_kv_page_token_head_dim(device: torch.device) -> None:
    one = pool(device)
    assert one.kv.shape == (3, 2, 6, 4, 2, 8)
    assert one.kv.is_contiguous()
    assert one.k(1).data_ptr() == one.kv[1, 0].data_ptr()
    assert one.k(2).stride() == one.v(2).stride()
    run = one.k(0)[3, :3]  # a prefix of a page
    assert run.is_contiguous()


def test_bytes_are_those_of_the_model(device: torch.device) -> None:
    shape = AttentionShape(layers=3, kv_heads=2, head_dim=8)
    layout = PoolLayout.of(shape, 4)
    assert layout.kv_bytes_per_page == shape.bytes_per_page(4)
    one = DevicePool("target", layout, 5, device)
    planes = (one.kv, one.cells.tags, one.cells.states, one.generation)
    assert sum(plane.nbytes for plane in planes) == layout.bytes(5)
    with pytest.raises(ValueError, match="has 4 bytes"):
        PoolLayout.of(shape, 4, torch.float32)


@pytest.mark.parametrize("debug", [False, True])
def test_the_guard_page_is_poisoned_always_and_fresh_pages_in_debug_mode(device: torch.device, debug: bool) -> None:
    one = pool(device, debug=debug)
    assert one.kv[:, :, GUARD_PAGE].isnan().all()
    if debug:
        assert one.kv.isnan().all()
    assert (one.cells.states == CellState.UNWRITTEN).all()
    assert (one.cells.tags == signed(UNWRITTEN)).all()


@pytest.mark.parametrize("debug", [False, True])
def test_a_release_ends_the_tenancy_of_exactly_the_released_pages(device: torch.device, debug: bool) -> None:
    one = pool(device, debug=debug)
    one.kv.fill_(1.0)
    one.cells.tags.fill_(7)
    one.cells.states.fill_(CellState.FINAL)
    one.release(torch.tensor([2, 4], device=device))
    one.release(torch.tensor([4], device=device))
    assert one.generation.tolist() == [0, 0, 1, 0, 2, 0]
    kept = [0, 1, 3, 5]
    assert (one.cells.tags[kept] == 7).all() and (one.cells.states[kept] == CellState.FINAL).all()
    assert (one.cells.tags[[2, 4]] == SENTINEL[CellState.UNWRITTEN]).all()
    assert (one.cells.states[[2, 4]] == CellState.UNWRITTEN).all()
    assert (one.kv[:, :, kept] == 1).all()
    assert bool(one.kv[:, :, [2, 4]].isnan().all()) == debug


def test_content_tags_keep_their_64_bits_on_the_device(device: torch.device) -> None:
    tags = mix64_array(np.arange(100, dtype=np.uint64))
    assert (tags >> np.uint64(63)).any()
    assert np.array_equal(device_tags(tags, device).cpu().numpy().view(np.uint64), tags)


def test_a_page_survives_the_way_to_the_host_and_back(device: torch.device) -> None:
    one = pool(device)
    tier = HostTier(one, 2)
    assert tier.kv.is_pinned() == (device.type == "cuda")
    one.kv[:, :, 3] = torch.randn(3, 2, 4, 2, 8, device=device)
    one.cells.tags[3] = torch.arange(4, device=device)
    one.cells.states[3] = int(CellState.FINAL)
    before = one.kv[:, :, 3].clone()
    tier.offload(3, 1)
    one.release(torch.tensor([3], device=device))
    tier.onboard(1, 5)
    assert torch.equal(one.kv[:, :, 5], before)
    assert one.cells.tags[5].tolist() == [0, 1, 2, 3]
    assert one.kv[:, :, 3].isnan().all() and one.generation.tolist() == [0, 0, 0, 1, 0, 0]


def test_the_pools_of_a_rank_have_the_pages_of_the_budget(device: torch.device) -> None:
    target = PoolLayout(layers=2, kv_heads=2, head_dim=8, page_size=4)
    draft = PoolLayout(layers=1, kv_heads=1, head_dim=8, page_size=4)
    limits = Limits(page_size=4, max_batch=2, max_num_tokens=16, max_seq_len=64, chunk_unit=4)
    bytes_of = Pair(target.kv_bytes_per_page, draft.kv_bytes_per_page)
    ask = SplitAsk(bytes_of, 200_000, 50_000, limits, Drafter("dflash", 3, window=16))
    sizes = pool_sizes("paired", ask, Budget())
    built = build_pools({"target": target, "draft": draft}, sizes, device)
    for name, size in sizes.items():
        assert built.device[name].kv.shape[2] == size.device_pages + 1
        assert (built.host[name].slots if name in built.host else 0) == size.host_pages
    with pytest.raises(ValueError, match="layouts are for draft, target, sizes for target"):
        build_pools({"target": target, "draft": draft}, {"target": PoolSize(1)}, device)


def test_lifecycles_that_share_a_budget_share_one_pool(device: torch.device) -> None:
    target, draft = LAYOUT, replace(LAYOUT, layers=1)
    sizes = {"target": PoolSize(5, 2), "draft": PoolSize(5, 2)}
    built = build_pools({"target": target, "draft": draft}, sizes, device, shared={"draft": "target"})
    assert built.device["draft"] is built.device["target"]
    assert built.host["draft"] is built.host["target"]
    assert built.device["draft"].layout == target
    apart = build_pools({"target": target, "draft": draft}, sizes, device)
    assert apart.device["draft"] is not apart.device["target"]
    with pytest.raises(ValueError, match="differ in more than layers"):
        build_pools({"target": target, "draft": replace(draft, kv_heads=1)}, sizes, device, shared={"draft": "target"})


def test_too_little_memory_is_one_honest_sentence(device: torch.device) -> None:
    with pytest.raises(DeviceMemoryError, match=r"needs 1\.00 GiB for 1,024 pages .* enough for 512 pages"):
        require_memory("pool 'target'", 1024, 1 << 20, 1 << 29)
    require_memory("pool 'target'", 512, 1 << 20, 1 << 29)
    with pytest.raises(DeviceMemoryError, match="pool 'target'"):
        DevicePool("target", LAYOUT, 1 << 44, device)
    with pytest.raises(DeviceMemoryError, match="gets 0 pages"):
        DevicePool("target", LAYOUT, 0, device)


def test_a_kernel_is_never_told_a_list_whose_entries_lie_apart(device: torch.device) -> None:
    one = pool(device)
    source, target, tokens = torch.tensor([[1, 2, 3], [3, 4, 2]], dtype=torch.int32, device=device).T
    with pytest.raises(ValueError, match=r"expected source to lie dense in memory, found strides of \(3,\) entries"):
        CopyCall(one.kv, one.cells, source, target, tokens)
    dense = [part.contiguous() for part in (source, target, tokens)]
    assert CopyCall(one.kv, one.cells, *dense).tokens.tolist() == [3, 2]
