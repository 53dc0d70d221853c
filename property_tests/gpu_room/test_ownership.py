"""The references assert who owns a page; the device's check finds what they would refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpu_backend.backend import ReferenceKernels, kernels_for
from gpu_backend.calls import OwnershipError, Verdict
from gpu_backend.contracts import CONTRACTS, attention, check, page_copy, store
from gpu_backend.contracts.base import int32, same

CPU = torch.device("cpu")


def all_but(pages: int, page: int) -> torch.Tensor:
    mask = torch.ones(pages, dtype=torch.bool)
    mask[page] = False
    return mask


def test_a_store_into_a_foreign_page_is_refused_by_name() -> None:
    call = store.build(store.STORE.cases["two chunks"], CPU, 1)
    page = int(call.table[1, 1])
    with pytest.raises(OwnershipError, match=f"row 1 position 16 writes page {page}"):
        ReferenceKernels().store(call, all_but(len(call.k_cache), page))
    assert call.k_cache.isnan().all(), "nothing is written when a write is refused"


def test_an_attention_row_that_leaves_its_pages_is_refused_by_name() -> None:
    call = attention.build(attention.CASES["verify rows"], CPU, 1)
    page = int(call.table[0, 2])
    with pytest.raises(OwnershipError, match=f"row 0 reads position 32 in page {page}"):
        ReferenceKernels().attend(call, all_but(len(call.k_cache), page))
    call.table[0, 1] = -1
    with pytest.raises(OwnershipError, match="row 0 reads position 16 in page -1"):
        ReferenceKernels().attend(call)


def test_a_copy_into_a_foreign_page_is_refused_by_name() -> None:
    call = page_copy.build(page_copy.PAGE_COPY.cases["prefix and whole page"], CPU, 1)
    target = int(call.target[0])
    with pytest.raises(OwnershipError, match=f"writes page {target}, not its own"):
        ReferenceKernels().copy(call, all_but(call.kv.shape[2], target))


@pytest.mark.parametrize("name", [name for name, case in check.CHECK.cases.items() if case.faults])
def test_a_check_names_the_first_damaged_position(name: str, device: torch.device) -> None:
    case = check.CHECK.cases[name]
    call = check.build(case, device, 4)
    for launch in check.launches(case, call):
        launch()
    found = call.verdict.found()
    assert found is not None
    row, position = found
    reasons = {(fault[1], fault[2]) for fault in case.faults}
    in_same_page = {(r, p // case.page_size) for r, p in reasons}
    assert (row, position // case.page_size) in in_same_page
    assert all(int(call.verdict.counts[reason]) > 0 for reason, _, _ in case.faults)
    call.verdict.clear()
    assert call.verdict.found() is None and not call.verdict.counts.any()


def test_a_check_adds_to_an_earlier_verdict(device: torch.device) -> None:
    case = check.CHECK.cases["one flipped bit"]
    call = check.build(case, device, 4)
    for _ in range(2):
        for launch in check.launches(case, call):
            launch()
    assert call.verdict.counts.tolist() == [0, 0, 0, 2]
    assert call.verdict.found() == (1, 19)


def test_a_reader_may_be_allowed_more_states(device: torch.device) -> None:
    case = check.CHECK.cases["provisional cell"]
    call = check.build(replace(case, legal=0b110), device, 4)
    for launch in check.launches(case, call):
        launch()
    assert call.verdict.found() is None


def test_the_cpu_mode_is_the_references() -> None:
    kernels = kernels_for("cpu")
    assert isinstance(kernels, ReferenceKernels)
    for name, contract in CONTRACTS.items():
        case = next(iter(contract.cases.values()))
        found, wanted = contract.build(case, CPU, 2), contract.build(case, CPU, 2)
        contract.reference(wanted)
        run = {
            "store": kernels.store,
            "attention": kernels.attend,
            "page copy": kernels.copy,
            "table": kernels.convert,
            "check": lambda call: kernels.check(call, 100),
            "slots": kernels.update_slots,
            "writes": kernels.judge_writes,
            "claims": kernels.claim,
        }[name]
        run(found)
        assert contract.error(found, wanted) == 0


def test_two_memories_are_the_same_only_bit_by_bit() -> None:
    nan, zero = torch.full((2,), float("nan")), torch.zeros(2)
    assert same({"x": nan}, {"x": nan.clone()}) == 0
    assert same({"x": zero}, {"x": -zero}) == float("inf")
    assert Verdict.clean("cpu").found() is None and int32([1, 2], CPU).tolist() == [1, 2]
