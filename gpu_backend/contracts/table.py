"""Contract of the table conversion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gpu_backend.calls import ConvertCall
from gpu_backend.contracts.base import Contract, Work, exact, int32, same
from gpu_backend.kernels.table_reference import convert_reference
from model.rules.device import Extent, Unbacked


@dataclass(frozen=True, slots=True)
class TableCase:
    """Rows with ``released[r]`` entries dropped at the front and ``backed[r]`` entries behind them, of ``columns``."""

    released: tuple[int, ...]
    backed: tuple[int, ...]
    columns: int
    bases: tuple[int, ...]
    scale: int = 1
    extent: Extent = Extent.LAST_BACKED
    unbacked: Unbacked = Unbacked.GUARD


def build(case: TableCase, device: torch.device, seed: int) -> ConvertCall:
    """Random page ids, holes of -1, outputs poisoned with 77."""
    rows = len(case.backed)
    source = torch.Generator().manual_seed(seed)
    table = torch.randint(1, 1 << 20, (rows, case.columns), generator=source, dtype=torch.int32)
    column = torch.arange(case.columns)
    low, count = torch.tensor(case.released)[:, None], torch.tensor(case.backed)[:, None]
    table[(column < low) | (column >= low + count)] = -1
    out = torch.full((rows, case.columns), 77, dtype=torch.int32, device=device)
    extent = torch.full((rows,), 77, dtype=torch.int32, device=device)
    return ConvertCall(table.to(device), int32(case.bases, device), out, extent, case.scale, case.extent, case.unbacked)


def launches(case: TableCase, call: ConvertCall) -> list[Any]:
    """Extents, then entries."""
    from gpu_backend.kernels.table import convert_launches

    return list(convert_launches(call))


def outputs(call: ConvertCall) -> dict[str, torch.Tensor]:
    """The converted table and the extents."""
    return {"out": call.out, "extent": call.extent}


def work(case: TableCase) -> Work:
    """The table read for the extents, then copied."""
    size = 4 * len(case.backed) * case.columns
    return Work(read_bytes=size, copy_bytes=2 * size)


TABLE = Contract(
    "table",
    {"released": "leading entries without a page", "backed": "entries with one", "columns": "of the table"},
    {
        f"{extent.name.lower()}, {unbacked.name.lower()}": TableCase(
            (0, 3, 0, 9), (5, 4, 0, 2), 11, (0, 2, 0, 10), 3, extent, unbacked
        )
        for extent in Extent
        for unbacked in Unbacked
    },
    build,
    launches,
    convert_reference,
    lambda found, wanted: same(outputs(found), outputs(wanted)),
    exact,
    work,
)
