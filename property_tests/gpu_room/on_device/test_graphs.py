"""CUDA graphs: every kernel is captured, and a replay sees what was updated in place since."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from gpu_backend.backend import kernels_for
from gpu_backend.calls import Reason
from gpu_backend.contracts import CONTRACTS, check
from gpu_backend.contracts.attention import ATTENTION, AttentionCase, build
from gpu_backend.contracts.base import relative_error
from gpu_backend.kernels.attention_reference import attention_reference
from gpu_backend.layout import PoolLayout
from gpu_backend.pool import DevicePool
from gpu_backend.timing import capture
from gpu_backend.triton_backend import TritonKernels

DEVICE = torch.device("cuda")


@pytest.mark.parametrize("contract", CONTRACTS.values(), ids=CONTRACTS)
def test_a_replay_does_what_a_launch_does(contract: Any) -> None:
    case = next(iter(contract.cases.values()))
    warm, found, wanted, untouched = (contract.build(case, DEVICE, 7) for _ in range(4))
    for launch in contract.launches(case, warm):
        launch()
    launches = contract.launches(case, found)
    graph = capture(lambda: [launch() for launch in launches])
    contract.reference(wanted)
    if contract.name == "attention":
        assert found.out.isnan().all(), "a capture runs nothing"
    else:
        assert contract.error(found, untouched) == 0, "a capture runs nothing"
    graph.replay()
    assert contract.error(found, wanted) <= contract.tolerance(case)


def test_an_older_graph_that_nobody_holds_does_not_end_a_capture() -> None:
    values = torch.zeros(4, device=DEVICE)
    held: list[object] = [capture(lambda: values.add_(1))]
    held.append(held)  # a cycle, which only a collection frees
    del held
    before = gc.get_threshold()
    gc.set_threshold(1)  # whatever is allocated from now on collects
    try:
        graph = capture(lambda: [values.mul_(2), *([] for _ in range(1000))])
    finally:
        gc.set_threshold(*before)
    assert gc.isenabled()
    values.fill_(3)
    graph.replay()
    assert values.tolist() == [6, 6, 6, 6]


def test_lengths_tables_and_bases_are_read_at_replay() -> None:
    case = AttentionCase((8, 8), (500, 90), page_size=32, heads=8, kv_heads=2, dim=64, dtype=torch.bfloat16)
    call, other = build(case, DEVICE, 1), build(case, DEVICE, 2)
    for cache in (call.k_cache, call.v_cache):
        cache.nan_to_num_(nan=0.5)
    kernels = TritonKernels()
    kernels.attend(call, widths=case.widths)
    graph = capture(lambda: kernels.attend(call, widths=case.widths))
    call.length.copy_(torch.tensor([77, 0], dtype=torch.int32))
    call.base.copy_(torch.tensor([3, 1], dtype=torch.int32))
    call.table[0] = call.table[0].flip(0)
    call.table.clamp_(min=1)
    call.q.copy_(other.q)
    graph.replay()
    found = call.out.clone()
    wanted = attention_reference(call)
    assert relative_error(found, wanted) <= ATTENTION.tolerance(case)
    assert not found[8:].any(), "a parked row gives zeros"


def test_a_check_in_a_graph_finds_what_was_damaged_after_the_capture() -> None:
    case = check.CHECK.cases["clean"]
    call = check.build(case, DEVICE, 3)
    launches = check.launches(case, call)
    for launch in launches:
        launch()
    graph = capture(lambda: [launch() for launch in launches])
    graph.replay()
    assert call.verdict.found() is None
    page = int(call.table[1, 1])
    call.cells.tags[page, 3] ^= 1 << 40
    graph.replay()
    assert call.verdict.found() == (1, 19)
    assert int(call.verdict.counts[Reason.TAG]) == 1


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("contract", CONTRACTS.values(), ids=CONTRACTS)
def test_a_step_waits_for_nothing_on_the_device(contract: Any) -> None:
    """Launches, and the release of pages, in the mode in which torch refuses to wait for the device."""
    case = next(iter(contract.cases.values()))
    call = contract.build(case, DEVICE, 7)
    launches = contract.launches(case, call)
    pool, pages = DevicePool("target", PoolLayout(2, 2, 32, 16), 8, DEVICE, debug=True), torch.tensor([3, 5]).to(DEVICE)
    for run in (*launches, lambda: pool.release(pages)):
        run()
    mode = torch.cuda.get_sync_debug_mode()
    try:
        torch.cuda.set_sync_debug_mode("error")
        for run in (*launches, lambda: pool.release(pages)):
            run()
    finally:
        torch.cuda.set_sync_debug_mode(mode)
    assert pool.generation.tolist() == [0, 0, 0, 2, 0, 2, 0, 0, 0]


def test_the_backend_of_a_gpu_is_triton() -> None:
    assert isinstance(kernels_for(DEVICE), TritonKernels)
