"""Torch reference of the claims."""

from __future__ import annotations

import torch

from gpu_backend.calls import ClaimCall


def claims_reference(call: ClaimCall) -> None:
    """Carry out ``call``."""
    table = call.table[call.slot]
    page = table.clamp(min=0).long()
    own = call.tenant[(page - 1).clamp(min=0)] == call.owner[call.slot][:, None]
    new = own | (table != call.seen_page[call.slot])
    generation = torch.where(table >= 0, call.generation[page], 0)
    call.seen_generation[call.slot] = torch.where(new, generation, call.seen_generation[call.slot])
    call.seen_page[call.slot] = table
