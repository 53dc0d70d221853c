"""Torch reference of the paged attention, in float64 through explicit gathers."""

from __future__ import annotations

import torch

from gpu_backend.calls import AttentionCall, OwnershipError
from gpu_backend.kernels.store_reference import slots_of


def attention_reference(call: AttentionCall, readable: torch.Tensor | None = None) -> torch.Tensor:
    """Write ``call.out`` and return the result in float64, ``[tokens, heads, head_dim]``.

    ``readable`` is bool ``[pages]``; ``OwnershipError`` names the first key that no page backs or that lies in a page
    outside it. Every row is looked at on all keys that one of its queries sees.
    """
    result = torch.zeros(call.q.shape, dtype=torch.float64, device=call.q.device)
    bounds = call.cu_query.tolist()
    for row, length in enumerate(call.length.tolist()):
        begin, end = bounds[row], bounds[row + 1]
        if begin == end or length == 0:
            continue
        position = length - (end - begin) + torch.arange(end - begin, device=call.q.device)
        start = int(call.start[row])
        first = start if call.window_left < 0 else max(start, int(position[0]) - call.window_left)
        key = torch.arange(first, length, device=call.q.device)
        if len(key):
            result[begin:end] = _row(call, row, position, key, readable)
    call.out.copy_(result)
    return result


def _row(
    call: AttentionCall, row: int, position: torch.Tensor, key: torch.Tensor, readable: torch.Tensor | None
) -> torch.Tensor:
    """Attention of one row's queries at ``position`` ``[q]`` over ``key`` ``[n]``; float64 ``[q, heads, dim]``."""
    page, offset = slots_of(call.table, call.base, torch.full_like(key, row), key, call.k_cache.shape[1])
    foreign = page < 0
    if readable is not None:
        foreign |= ~readable[page.clamp(min=0)]
    refused = torch.nonzero(foreign).flatten()
    if len(refused):
        place = int(refused[0])
        raise OwnershipError(f"row {row} reads position {int(key[place])} in page {int(page[place])}, not its own")
    group = call.q.shape[1] // call.k_cache.shape[2]
    k = call.k_cache[page, offset].double().repeat_interleave(group, 1)
    v = call.v_cache[page, offset].double().repeat_interleave(group, 1)
    begin = int(call.cu_query[row])
    q = call.q[begin : begin + len(position)].double()
    score = torch.einsum("qhd,nhd->hqn", q, k) * q.shape[2] ** -0.5
    seen = torch.ones(len(position), len(key), dtype=torch.bool, device=q.device)
    if call.causal:
        seen &= key[None] <= position[:, None]
    if call.window_left >= 0:
        seen &= key[None] >= position[:, None] - call.window_left
    weight = score.masked_fill(~seen[None], float("-inf")).softmax(-1)
    weight = torch.where(seen.any(1)[None, :, None], weight, 0.0)  # a query that sees nothing gives zero
    return torch.einsum("hqn,nhd->qhd", weight, v)
