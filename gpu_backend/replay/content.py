"""K/V rows that stand for a model's: every row spells the tag of its cell, so that bytes and tags can be compared."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gpu_backend.layout import PoolLayout

NIBBLES = 16  # of 64 bits; small integers that every dtype of a pool holds exactly


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Shape of the rows: ``layers`` for every lifecycle, ``heads`` of ``dim`` (a multiple of 16) in ``dtype``."""

    layers: int = 1
    heads: int = 1
    dim: int = NIBBLES
    dtype: torch.dtype = torch.float32

    def layout(self, page_size: int) -> PoolLayout:
        """Layout of a pool of such rows."""
        return PoolLayout(self.layers, self.heads, self.dim, page_size, self.dtype)

    def keys(self, tag: torch.Tensor, layer: int) -> torch.Tensor:
        """Keys of the cells with ``tag`` int64 ``[n]``: nibbles of it, turned by the layer; ``[n, heads, dim]``."""
        lane = (torch.arange(self.dim, device=tag.device) + layer) % NIBBLES
        row = ((tag[:, None] >> (4 * lane)) & 15).to(self.dtype)
        return row[:, None].expand(-1, self.heads, -1).contiguous()

    def values(self, keys: torch.Tensor) -> torch.Tensor:
        """Values that belong to ``keys``."""
        return 15 - keys
