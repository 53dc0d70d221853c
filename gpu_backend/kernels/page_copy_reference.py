"""Torch reference of the partial page copy."""

from __future__ import annotations

import torch

from gpu_backend.calls import CopyCall, OwnershipError


def page_copy_reference(call: CopyCall, writable: torch.Tensor | None = None) -> None:
    """Carry out ``call``. ``writable`` is bool ``[pages]``; ``OwnershipError`` names the first target outside it."""
    copies = zip(call.source.tolist(), call.target.tolist(), call.tokens.tolist(), strict=True)
    for source, target, tokens in copies:
        if tokens == 0:
            continue
        if writable is not None and not bool(writable[target]):
            raise OwnershipError(f"a copy of {tokens} tokens from page {source} writes page {target}, not its own")
        call.kv[:, :, target, :tokens] = call.kv[:, :, source, :tokens]
        call.cells.tags[target, :tokens] = call.cells.tags[source, :tokens]
        call.cells.states[target, :tokens] = call.cells.states[source, :tokens]
