"""Attention of cells that follow one another behind the cells of a whole sequence: training-time test of EAGLE3."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from gpu_backend.modules.layers import Layer

Cells = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def whole_cells(layer: Layer, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, rows: int) -> Cells:
    """One layer over ``rows`` whole sequences, ``x`` ``[rows * length, inputs]``: states, and K and V
    ``[rows, length, kv_heads, dim]``."""
    q, k, v = (part.unflatten(0, (rows, -1)) for part in layer.project(x, cos, sin))
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True
    )
    (x,) = layer.finish(x, out.transpose(1, 2).flatten(0, 1))
    return x, k, v


def further_cells(
    layer: Layer, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    own_k: torch.Tensor, own_v: torch.Tensor, reached: torch.Tensor, step: torch.Tensor,
) -> Cells:  # fmt: skip
    """The next cell of every chain, ``x`` ``[rows * chains, inputs]``: states, and the chains' own K and V with it.

    ``k``, ``v`` ``[rows, length, kv_heads, dim]`` are of the sequence, of which ``reached`` bool ``[chains, length]``
    tells what each chain sees; ``own_k``, ``own_v`` ``[rows, chains, steps, kv_heads, dim]`` are of the chains.
    ``step`` int64 ``[steps]`` is 0 at the next cell's place and negative at those before it: one graph for all steps.

    The two sets of scores share one softmax by their maximum and sum, so that neither is copied beside the other.
    """
    chains, kv_heads, dim = len(reached), k.shape[2], k.shape[3]
    q, new_k, new_v = (part.unflatten(0, (-1, chains)) for part in layer.project(x, cos, sin))
    here = (step == 0)[:, None, None]
    own_k = torch.where(here, new_k[:, :, None].to(own_k.dtype), own_k)
    own_v = torch.where(here, new_v[:, :, None].to(own_v.dtype), own_v)
    grouped = q.unflatten(2, (kv_heads, -1)).permute(0, 2, 3, 1, 4) * dim**-0.5  # [rows, kv_heads, group, chains, dim]
    far = grouped.flatten(2, 3) @ k.permute(0, 2, 3, 1)
    far = far.unflatten(2, (-1, chains)).float().masked_fill(~reached, float("-inf"))
    chain_k, chain_v = (part.permute(0, 3, 1, 2, 4)[:, :, None] for part in (own_k, own_v))
    near = (grouped[..., None, :].float() * chain_k.float()).sum(-1)  # [rows, kv_heads, group, chains, steps]
    near = near.masked_fill(step > 0, float("-inf"))
    top = torch.maximum(far.amax(-1), near.amax(-1)).detach()[..., None]
    far, near = (far - top).exp(), (near - top).exp()
    total = far.sum(-1) + near.sum(-1)
    out = (far.to(v.dtype).flatten(2, 3) @ v.transpose(1, 2)).unflatten(2, (-1, chains)).float()
    out = (out + (near[..., None] * chain_v.float()).sum(-2)) / total[..., None]
    attended = out.permute(0, 3, 1, 2, 4).flatten(2, 3).flatten(0, 1).to(x.dtype)  # [rows * chains, heads, dim]
    (x,) = layer.finish(x, attended)
    return x, own_k, own_v
