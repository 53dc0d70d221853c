"""Torch reference of the store."""

from __future__ import annotations

import torch

from gpu_backend.calls import OwnershipError, StoreCall


def slots_of(
    table: torch.Tensor, base: torch.Tensor, row: torch.Tensor, position: torch.Tensor, page_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Page (-1 where none backs it) and offset of ``position`` ``[n]`` of ``row`` ``[n]``, int64 ``[n]`` each."""
    block = base.long()[row.long().clamp(min=0)] + position.long().clamp(min=0) // page_size
    inside = (row >= 0) & (position >= 0) & (block < table.shape[1])
    page = table[row.long().clamp(min=0), block.clamp(max=table.shape[1] - 1)].long()
    return torch.where(inside, page, -1), position.long().clamp(min=0) % page_size


def store_reference(call: StoreCall, writable: torch.Tensor | None = None) -> None:
    """Carry out ``call``. ``writable`` is bool ``[pages]``; ``OwnershipError`` names the first write outside it."""
    page, offset = slots_of(call.table, call.base, call.row, call.position, call.k_cache.shape[1])
    backed = torch.nonzero(page >= 0).flatten()
    page, offset = page[backed], offset[backed]
    if writable is not None:
        foreign = torch.nonzero(~writable[page]).flatten()
        if len(foreign):
            token = int(backed[foreign[0]])
            where = f"row {int(call.row[token])} position {int(call.position[token])}"
            raise OwnershipError(f"{where} writes page {int(page[foreign[0]])}, which its row must not write")
    call.k_cache[page, offset] = call.k[backed]
    call.v_cache[page, offset] = call.v[backed]
    if call.cells is not None:
        assert call.tag is not None and call.state is not None
        call.cells.tags[page, offset] = call.tag[backed]
        call.cells.states[page, offset] = call.state[backed]
