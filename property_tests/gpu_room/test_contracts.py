"""Every case of the contract table: the kernel does what its reference does, and touches nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from gpu_backend.contracts import CONTRACTS
from gpu_backend.contracts.attention import ATTENTION
from gpu_backend.kernels.launch import INTERPRETED

ROWS = [(contract, name) for contract in CONTRACTS.values() for name in contract.cases]


def disagreement(contract: Any, case: Any, device: torch.device, seed: int = 3) -> float:
    """Error of the kernel against the reference on equal inputs."""
    found, wanted = contract.build(case, device, seed), contract.build(case, device, seed)
    contract.reference(wanted)
    for launch in contract.launches(case, found):
        launch()
    return contract.error(found, wanted)


@pytest.mark.parametrize(("contract", "name"), ROWS, ids=[f"{contract.name}-{name}" for contract, name in ROWS])
def test_the_kernel_agrees_with_its_reference(contract: Any, name: str, device: torch.device) -> None:
    case = contract.cases[name]
    tolerance = contract.tolerance(case)
    if INTERPRETED and getattr(case, "dtype", None) is torch.bfloat16:
        tolerance *= 2  # the interpreter rounds weights to nothing, dots are in float32
    assert disagreement(contract, case, device) <= tolerance


@pytest.mark.parametrize("contract", CONTRACTS.values(), ids=CONTRACTS)
def test_a_contract_names_axes_that_its_cases_have(contract: Any) -> None:
    assert contract.cases
    for case in contract.cases.values():
        assert all(hasattr(case, axis) for axis in contract.axes)


@pytest.mark.parametrize("contract", CONTRACTS.values(), ids=CONTRACTS)
def test_equal_seeds_build_equal_inputs_and_the_reference_changes_them(contract: Any, device: torch.device) -> None:
    case = next(iter(contract.cases.values()))
    left, right = contract.build(case, device, 5), contract.build(case, device, 5)
    contract.reference(left)
    if contract.name != "check":  # a clean check leaves a clean verdict
        assert contract.error(right, left) > contract.tolerance(case)
    contract.reference(right)
    assert contract.error(left, right) == 0


@pytest.mark.parametrize("name", ["verify rows, split", "drafter block behind a base", "wide chunk with a window"])
@pytest.mark.parametrize("bulk", [False, True], ids=["pointers", "bulk"])
def test_bulk_loads_read_what_pointer_loads_read(name: str, bulk: bool, device: torch.device) -> None:
    from gpu_backend.kernels.tiles import Tile

    case = replace(ATTENTION.cases[name], page_size=32, dim=64, tile=Tile(16, 32, 4, 2, bulk=bulk))
    assert disagreement(ATTENTION, case, device) <= ATTENTION.tolerance(case)
