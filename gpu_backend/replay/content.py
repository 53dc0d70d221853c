"""K/V rows that stand for a model's: every row spells the tag of its cell, so that bytes and tags can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from gpu_backend.layout import PoolLayout

NIBBLES = 16  # of 64 bits; small integers that every dtype of a pool holds exactly


@lru_cache(maxsize=256)
def _shifts(dim: int, layer: int, device: torch.device) -> torch.Tensor:
    """Bit of a tag where each element of a row begins, int64 ``[dim]``."""
    return 4 * ((torch.arange(dim, device=device) + layer) % NIBBLES)


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
        row = ((tag[:, None] >> _shifts(self.dim, layer, tag.device)) & 15).to(self.dtype)
        return row[:, None].expand(-1, self.heads, -1).contiguous()

    def values(self, keys: torch.Tensor) -> torch.Tensor:
        """Values that belong to ``keys``."""
        return 15 - keys
