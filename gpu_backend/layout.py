"""Layout of a pool in device memory: one for every pool, ``[layer][K/V][page][token][head][dim]``."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from model.geometry import AttentionShape

GUARD_PAGE = 0  # a physical page that belongs to nobody: its K/V is NaN, and no table entry names it
UNBACKED = -1  # a table entry that no page backs
TAG_BYTES, STATE_BYTES, GENERATION_BYTES = 8, 1, 4


@dataclass(frozen=True, slots=True)
class PoolLayout:
    """Shape of the layers that share one lifecycle's pages, on one rank; ``page_size`` in tokens.

    The token comes before the head so that a prefix of a page is one contiguous run per layer and K/V.
    """

    layers: int
    kv_heads: int
    head_dim: int
    page_size: int
    dtype: torch.dtype = torch.bfloat16

    @classmethod
    def of(cls, shape: AttentionShape, page_size: int, dtype: torch.dtype = torch.bfloat16) -> PoolLayout:
        """The layout of ``shape``; ``ValueError`` if ``dtype`` has not the bytes that the shape counts with."""
        if dtype.itemsize != shape.dtype_bytes:
            raise ValueError(f"{dtype} has {dtype.itemsize} bytes, the shape counts with {shape.dtype_bytes}")
        return cls(shape.layers, shape.kv_heads, shape.head_dim, page_size, dtype)

    def shape(self, pages: int) -> tuple[int, int, int, int, int, int]:
        """Dimensions of a pool of ``pages`` physical pages."""
        return (self.layers, 2, pages, self.page_size, self.kv_heads, self.head_dim)

    @property
    def kv_bytes_per_page(self) -> int:
        """Bytes of K and V of one page over all layers (:meth:`model.geometry.AttentionShape.bytes_per_page`)."""
        return self.layers * 2 * self.page_size * self.kv_heads * self.head_dim * self.dtype.itemsize

    @property
    def bytes_per_page(self) -> int:
        """Bytes of one page with its tags, states and generation."""
        return self.kv_bytes_per_page + self.page_size * (TAG_BYTES + STATE_BYTES) + GENERATION_BYTES

    def bytes(self, pages: int) -> int:
        """Bytes of a pool of ``pages`` usable pages and its guard page."""
        return (pages + 1) * self.bytes_per_page
