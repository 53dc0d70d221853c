"""Torch reference of the table conversion."""

from __future__ import annotations

import torch

from gpu_backend.calls import ConvertCall
from model.rules.device import Extent, Unbacked


def convert_reference(call: ConvertCall) -> None:
    """Carry out ``call``: extents first, then the entries of every row."""
    backed = call.table >= 0
    column = torch.arange(1, call.table.shape[1] + 1, dtype=torch.int32, device=call.table.device)
    if call.extent_rule is Extent.COUNT:
        call.extent.copy_(backed.sum(1))
    else:
        call.extent.copy_(torch.where(backed, column, 0).amax(1))
    units = torch.where(backed, call.table * call.scale, -1 if call.unbacked is Unbacked.GUARD else 0)
    call.out.fill_(-1)
    for row, (base, extent) in enumerate(zip(call.base.tolist(), call.extent.tolist(), strict=True)):
        count = min(max(extent - base, 0), call.out.shape[1])
        call.out[row, :count] = units[row, base : base + count]
