"""Contract of the partial page copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gpu_backend.calls import Cells, CopyCall
from gpu_backend.contracts.base import Contract, Work, exact, generator, int32, same
from gpu_backend.kernels.page_copy_reference import page_copy_reference


@dataclass(frozen=True, slots=True)
class CopyCase:
    """``tokens[i]`` tokens are copied from one page to another, over ``layers`` layers."""

    tokens: tuple[int, ...]
    layers: int = 2
    page_size: int = 16
    kv_heads: int = 2
    dim: int = 32
    dtype: torch.dtype = torch.float32


def build(case: CopyCase, device: torch.device, seed: int) -> CopyCall:
    """Random sources, NaN targets; pages in random order."""
    copies = len(case.tokens)
    source = generator(device, seed)
    total = 2 * copies + 2
    order = (torch.randperm(total - 1, generator=torch.Generator().manual_seed(seed)) + 1).tolist()
    shape = (case.layers, 2, total, case.page_size, case.kv_heads, case.dim)
    kv = torch.empty(shape, dtype=case.dtype, device=device).normal_(generator=source)
    sources, targets = order[:copies], order[copies : 2 * copies]
    kv[:, :, targets] = float("nan")
    cells = (total, case.page_size)
    tags = torch.randint(-(1 << 62), 1 << 62, cells, generator=source, device=device)
    states = torch.randint(0, 5, cells, generator=source, device=device).to(torch.int8)
    return CopyCall(kv, Cells(tags, states), int32(sources, device), int32(targets, device), int32(case.tokens, device))


def launches(case: CopyCase, call: CopyCall) -> list[Any]:
    """The one launch."""
    from gpu_backend.kernels.page_copy import page_copy_launch

    return [page_copy_launch(call)]


def outputs(call: CopyCall) -> dict[str, torch.Tensor]:
    """The whole pool: the copied prefixes and everything else."""
    return {"kv": call.kv, "tags": call.cells.tags, "states": call.cells.states}


def work(case: CopyCase) -> Work:
    """The copied prefixes, read once and written once."""
    token = case.layers * 2 * case.kv_heads * case.dim * case.dtype.itemsize
    return Work(copy_bytes=2 * sum(case.tokens) * token)


PAGE_COPY = Contract(
    "page copy",
    {"tokens": "tokens of each copied prefix", "layers": "layers of the pool"},
    {
        "prefix and whole page": CopyCase((6, 16)),
        "idle entry": CopyCase((0, 1, 15)),
        "odd width": CopyCase((9,), kv_heads=3, dim=32, page_size=32, dtype=torch.bfloat16),
    },
    build,
    launches,
    page_copy_reference,
    lambda found, wanted: same(outputs(found), outputs(wanted)),
    exact,
    work,
)
