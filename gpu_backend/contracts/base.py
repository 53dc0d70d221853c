"""What a kernel promises: named axes, an input builder, a reference, its launches, the work that bounds its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch

Case = TypeVar("Case")
Call = TypeVar("Call")


class Runnable(Protocol):
    """A kernel launch: called, it runs; compiled, it does not."""

    name: str

    def __call__(self) -> None: ...

    def compile(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Work:
    """Least work of one call: bytes of device memory read, bytes read and written by a copy, matrix operations."""

    read_bytes: int = 0
    copy_bytes: int = 0
    flops: int = 0


@dataclass(frozen=True, slots=True)
class Contract(Generic[Case, Call]):
    """One row of the contract table; it drives reference tests, GPU tests and the bench alike.

    ``build(case, device, seed)`` makes inputs whose outputs and unowned slots are poisoned; equal seeds make equal
    inputs on one device. ``launches`` gives the Triton launches and ``reference`` carries the call out in torch; both
    work in place. ``error`` compares the outputs of two calls: 0 for equality where the contract is exact, else the
    relative error, infinity for what no tolerance covers.
    """

    name: str
    axes: Mapping[str, str]
    cases: Mapping[str, Case]
    build: Callable[[Case, torch.device, int], Call]
    launches: Callable[[Case, Call], list[Any]]
    reference: Callable[[Call], object]
    error: Callable[[Call, Call], float]
    tolerance: Callable[[Case], float]
    work: Callable[[Case], Work]


def exact(case: object) -> float:
    """The tolerance of contracts that move or compare bits."""
    return 0.0


def same(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> float:
    """0 if all tensors are equal bit by bit (NaN included), else infinity."""
    equal = all(torch.equal(_bits(left[name]), _bits(right[name])) for name in left)
    return 0.0 if equal and left.keys() == right.keys() else float("inf")


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.dtype.is_floating_point:
        return tensor
    return tensor.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.dtype.itemsize])


def relative_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Norm of the difference over the norm of ``wanted``, in float64; infinity if anything is not finite."""
    difference, norm = found.double() - wanted.double(), wanted.double().norm()
    error = float(difference.norm() / norm) if float(norm) else float(difference.norm())
    return error if error == error else float("inf")


def generator(device: torch.device, seed: int) -> torch.Generator:
    """A seeded source of random numbers on ``device``."""
    return torch.Generator(device).manual_seed(seed)


def shuffled_tables(
    pages_of_rows: list[int], columns: int, bases: list[int], spare: int, device: torch.device, seed: int
) -> tuple[torch.Tensor, int]:
    """Block tables whose rows own disjoint pages in random order, int32 ``[rows, columns]``, and the physical pages.

    Row ``r`` has ``pages_of_rows[r]`` pages from column ``bases[r]`` on, and -1 elsewhere. Page 0 is the guard and
    ``spare`` more pages belong to nobody.
    """
    total = sum(pages_of_rows) + spare + 1
    order = torch.randperm(total - 1, generator=torch.Generator().manual_seed(seed)) + 1
    table = torch.full((len(pages_of_rows), columns), -1, dtype=torch.int32)
    taken = 0
    for row, (count, base) in enumerate(zip(pages_of_rows, bases, strict=True)):
        table[row, base : base + count] = order[taken : taken + count].int()
        taken += count
    return table.to(device), total


def int32(values: list[int] | tuple[int, ...], device: torch.device) -> torch.Tensor:
    """``values`` as int32 ``[n]`` on ``device``."""
    return torch.tensor(values, dtype=torch.int32, device=device)
