"""Torch reference of the check."""

from __future__ import annotations

import torch

from gpu_backend.calls import CheckCall, Reason
from gpu_backend.kernels.store_reference import slots_of


def check_reference(call: CheckCall) -> None:
    """Carry out ``call``: add the findings of every row to its verdict."""
    page_size = call.cells.tags.shape[1]
    for row, (start, end) in enumerate(zip(call.start.tolist(), call.end.tolist(), strict=True)):
        if end <= start:
            continue
        position = torch.arange(start, end, dtype=torch.int32, device=call.table.device)
        page, offset = slots_of(call.table, call.base, torch.full_like(position, row), position, page_size)
        absolute = position.long() + int(call.base[row]) * page_size
        backed = page >= 0
        slot = page.clamp(min=0)
        same = call.generation[slot] == call.expected_generation[row, absolute // page_size]
        lawful = ((call.legal >> call.cells.states[slot, offset].int()) & 1) == 1
        token = absolute + (0 if call.lag is None else int(call.lag[row]))
        told = (token >= 0) & (token < call.expected_tag.shape[1])
        expected = call.expected_tag[row, token.clamp(0, call.expected_tag.shape[1] - 1)]
        equal = call.cells.tags[slot, offset] == torch.where(told, expected, 0)
        findings = {
            Reason.UNBACKED: ~backed,
            Reason.TENANCY: backed & ~same,
            Reason.STATE: backed & same & ~lawful,
            Reason.TAG: backed & same & lawful & ~equal,
        }
        for reason, refused in findings.items():
            call.verdict.counts[reason] += int(refused.sum())
        refused = torch.nonzero(torch.stack(list(findings.values())).any(0)).flatten()
        if len(refused):
            place = row << 32 | int(position[refused[0]])
            call.verdict.first.clamp_(max=place)
