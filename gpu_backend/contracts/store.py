"""Contract of the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gpu_backend.calls import Cells, StoreCall
from gpu_backend.cells import CellState
from gpu_backend.contracts.base import Contract, Work, exact, generator, int32, same, shuffled_tables
from gpu_backend.kernels.store_reference import store_reference
from model.geometry import cdiv


@dataclass(frozen=True, slots=True)
class StoreCase:
    """Rows that store positions ``[begins[r], begins[r] + counts[r])``; ``holes`` are (row, block) without a page.

    ``padding`` tokens of no row follow. ``tagged``: tags and states are written by the same launch.
    """

    begins: tuple[int, ...]
    counts: tuple[int, ...]
    page_size: int = 16
    kv_heads: int = 2
    dim: int = 32
    bases: tuple[int, ...] = ()
    holes: tuple[tuple[int, int], ...] = ()
    padding: int = 0
    tagged: bool = True
    dtype: torch.dtype = torch.float32


def build(case: StoreCase, device: torch.device, seed: int) -> StoreCall:
    """Rows of random values for a NaN pool."""
    rows = len(case.counts)
    bases = list(case.bases or (0,) * rows)
    ends = [begin + count for begin, count in zip(case.begins, case.counts, strict=True)]
    pages = [cdiv(end, case.page_size) for end in ends]
    columns = max(base + count for base, count in zip(bases, pages, strict=True))
    table, total = shuffled_tables(pages, columns, bases, 1, device, seed)
    for row, block in case.holes:
        table[row, bases[row] + block] = -1
    tokens = sum(case.counts) + case.padding
    source = generator(device, seed)
    shape = (tokens, case.kv_heads, case.dim)
    k, v = (torch.empty(shape, dtype=case.dtype, device=device).normal_(generator=source) for _ in range(2))
    counts = torch.tensor(case.counts)
    row_of = torch.cat([torch.arange(rows).repeat_interleave(counts), torch.full((case.padding,), -1)])
    position = torch.cat([torch.arange(b, e) for b, e in zip(case.begins, ends, strict=True)])
    position = torch.cat([position, torch.zeros(case.padding, dtype=torch.int64)])
    kv = torch.full((2, total, case.page_size, case.kv_heads, case.dim), float("nan"), dtype=case.dtype, device=device)
    call = StoreCall(
        k, v, kv[0], kv[1], row_of.int().to(device), position.int().to(device), table, int32(bases, device)
    )
    if case.tagged:
        cells = (total, case.page_size)
        call.cells = Cells(
            torch.full(cells, -1, device=device),
            torch.full(cells, CellState.UNWRITTEN, dtype=torch.int8, device=device),
        )
        call.tag = torch.randint(-(1 << 62), 1 << 62, (tokens,), generator=source, device=device)
        call.state = torch.randint(1, 5, (tokens,), generator=source, device=device).to(torch.int8)
    return call


def launches(case: StoreCase, call: StoreCall) -> list[Any]:
    """The one launch."""
    from gpu_backend.kernels.store import store_launch

    return [store_launch(call)]


def outputs(call: StoreCall) -> dict[str, torch.Tensor]:
    """The whole pool: what must change and what must not."""
    found = {"k": call.k_cache, "v": call.v_cache}
    if call.cells is not None:
        found |= {"tags": call.cells.tags, "states": call.cells.states}
    return found


def work(case: StoreCase) -> Work:
    """K and V read once and written once; tags are not counted."""
    return Work(copy_bytes=4 * sum(case.counts) * case.kv_heads * case.dim * case.dtype.itemsize)


STORE = Contract(
    "store",
    {"begins": "first position of each row", "counts": "tokens of each row", "holes": "blocks that no page backs"},
    {
        "two chunks": StoreCase((0, 5), (20, 37)),
        "padding and holes": StoreCase((0, 3), (40, 20), holes=((0, 1), (1, 0)), padding=3),
        "behind a base": StoreCase((0, 17), (9, 30), bases=(2, 1)),
        "untagged": StoreCase((0,), (33,), tagged=False),
        "bfloat16, wide heads": StoreCase((1, 2), (5, 6), page_size=32, kv_heads=3, dim=64, dtype=torch.bfloat16),
        "one token": StoreCase((130,), (1,), page_size=128),
    },
    build,
    launches,
    store_reference,
    lambda found, wanted: same(outputs(found), outputs(wanted)),
    exact,
    work,
)
