"""Contracts of the judge of writes and of the claims: who holds which page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gpu_backend.calls import ClaimCall, Verdict, WriteCall
from gpu_backend.contracts.base import Contract, Work, exact, same
from gpu_backend.kernels.claims_reference import claims_reference
from gpu_backend.kernels.writes_reference import writes_reference


@dataclass(frozen=True, slots=True)
class HolderCase:
    """``slots`` rows of ``columns`` random entries over ``pages`` pages; ``cells`` are written, one page in ``foreign``
    is another owner's."""

    slots: int = 6
    columns: int = 9
    pages: int = 40
    cells: int = 200
    foreign: int = 3
    page_size: int = 16


def _numbers(case: HolderCase, seed: int) -> tuple[torch.Generator, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Source, table (every fifth entry unbacked), owners of rows, tenants of pages (row by row, or somebody else)."""
    source = torch.Generator().manual_seed(seed)
    table = torch.randint(1, case.pages + 1, (case.slots, case.columns), generator=source, dtype=torch.int32)
    table[torch.rand(table.shape, generator=source) < 0.2] = -1
    owner = torch.arange(100, 100 + case.slots)
    tenant = torch.full((case.pages + 1,), 100 + case.slots - 1)
    for row in range(case.slots):
        tenant[table[row][table[row] > 0].long() - 1] = owner[row]
    tenant[:: case.foreign] = 7
    return source, table, owner, tenant


def build_writes(case: HolderCase, device: torch.device, seed: int) -> WriteCall:
    """Cells on both sides of what the tables back; one in four is padding."""
    source, table, owner, tenant = _numbers(case, seed)
    slot = torch.randint(0, case.slots, (case.cells,), generator=source)
    position = torch.randint(-5, (case.columns + 1) * case.page_size, (case.cells,), generator=source)
    given = torch.rand(case.cells, generator=source) < 0.75
    sealed = torch.randint(0, case.page_size + 1, (case.pages + 1,), generator=source, dtype=torch.int32)
    rows = slot.to(device), position.to(device), given.to(device), table.to(device)
    counts = torch.zeros(3, dtype=torch.int32, device=device)
    first = torch.full((1,), Verdict.NOTHING, device=device)
    held = owner.to(device), tenant.to(device), sealed.to(device)
    return WriteCall(*rows, *held, counts, first, case.page_size)


def build_claims(case: HolderCase, device: torch.device, seed: int) -> ClaimCall:
    """Every other row claims; half of its entries it has seen before."""
    source, table, owner, tenant = _numbers(case, seed)
    slot = torch.arange(0, case.slots, 2)
    generation = torch.randint(0, 50, (case.pages + 1,), generator=source, dtype=torch.int32)
    known = torch.rand(table.shape, generator=source) < 0.5
    seen = torch.where(known, table, -2).int()
    before = torch.randint(0, 50, table.shape, generator=source, dtype=torch.int32)
    tensors = (tensor.to(device) for tensor in (slot, table, owner, tenant, generation, seen, before))
    return ClaimCall(*tensors)


def launches_of_writes(case: HolderCase, call: WriteCall) -> list[Any]:
    """The one launch."""
    from gpu_backend.kernels.writes import writes_launch

    return [writes_launch(call)]


def launches_of_claims(case: HolderCase, call: ClaimCall) -> list[Any]:
    """The one launch."""
    from gpu_backend.kernels.claims import claims_launch

    return [claims_launch(call)]


def written(call: WriteCall) -> dict[str, torch.Tensor]:
    """What was found."""
    return {"counts": call.counts, "first": call.first}


def claimed(call: ClaimCall) -> dict[str, torch.Tensor]:
    """What rows have seen."""
    return {"page": call.seen_page, "generation": call.seen_generation}


_AXES = {"slots": "row slots", "columns": "blocks of a table", "cells": "cells written", "foreign": "strangers"}

WRITES = Contract(
    "writes",
    _AXES,
    {
        "every fault": HolderCase(),
        "many": HolderCase(cells=1000, columns=33, pages=300),
        "nothing": HolderCase(cells=0),
    },
    build_writes,
    launches_of_writes,
    writes_reference,
    lambda found, wanted: same(written(found), written(wanted)),
    exact,
    lambda case: Work(read_bytes=37 * case.cells),
)
CLAIMS = Contract(
    "claims",
    _AXES,
    {"some new": HolderCase(), "wide": HolderCase(columns=600, pages=900)},
    build_claims,
    launches_of_claims,
    claims_reference,
    lambda found, wanted: same(claimed(found), claimed(wanted)),
    exact,
    lambda case: Work(copy_bytes=28 * case.slots * case.columns // 2),
)
