"""Torch reference of the judge of writes."""

from __future__ import annotations

import torch

from gpu_backend.calls import Verdict, WriteCall


def writes_reference(call: WriteCall) -> None:
    """Carry out ``call``: add what is wrong to its counts."""
    columns, slot, position = call.table.shape[1], call.slot, call.position
    block = torch.div(position, call.page_size, rounding_mode="floor")
    inside = (block >= 0) & (block < columns)
    page = torch.where(inside, call.table[slot, block.clamp(0, columns - 1)].long(), -1)
    backed = page > 0
    place = (page - 1).clamp(min=0)
    foreign = backed & (call.tenant[place] != call.owner[slot])
    sealed = backed & ~foreign & (position.remainder(call.page_size) < call.sealed[place])
    wrong = torch.stack([~backed, foreign, sealed]) & call.given
    call.counts += wrong.sum(1)
    if len(slot):
        places = torch.where(wrong.any(0), slot << 32 | position.clamp(min=0), Verdict.NOTHING)
        call.first.copy_(torch.minimum(call.first, places.amin()))
