"""Launch of the paged attention: tiles, splits and workspace, fixed once so that steps can be captured in a graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from gpu_backend.calls import AttentionCall
from gpu_backend.kernels.attention import paged_attention_kernel
from gpu_backend.kernels.combine import combine_ordered_kernel, combine_tree_kernel
from gpu_backend.kernels.launch import Launch, launches_early, upcast
from gpu_backend.kernels.tiles import WIDEST, Tile, power_of_two, splits_for, tile_for
from model.geometry import cdiv

EXACT_TILE = {2: Tile(32, 64, 4, 5), 4: Tile(32, 32, 4, 2)}  # by bytes of an element; one shape for every row width
EXACT_CHUNK = 2048  # tokens


class AttentionPlan:
    """How rows of ``widths`` query tokens each are cut into programs.

    ``longest`` bounds the keys of a row in tokens; longer rows stay correct. ``window_left`` only helps to choose the
    splits. ``exact`` makes the bits of a query independent of the batch, of the row's width and of how a prompt was
    cut into chunks: one tile shape, chunks of ``chunk`` keys anchored at absolute positions, combined in order.
    ``tile`` and ``splits`` override the choice.
    """

    def __init__(
        self,
        widths: Sequence[int],
        heads: int,
        kv_heads: int,
        dim: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device | str,
        *,
        longest: int,
        window_left: int = -1,
        exact: bool = False,
        chunk: int = EXACT_CHUNK,
        tile: Tile | None = None,
        splits: int | None = None,
    ) -> None:
        if heads % kv_heads:
            raise ValueError(f"{heads} query heads cannot share {kv_heads} KV heads evenly")
        self.group, self.heads, self.kv_heads, self.dim = heads // kv_heads, heads, kv_heads, dim
        self.page_size, self.dtype = page_size, dtype
        self.exact = exact
        chosen = EXACT_TILE[min(4, dtype.itemsize)] if exact else tile_for(max(widths), self.group, page_size, dtype)
        self.tile = tile or chosen
        if max(widths) * heads * dim >= 1 << 31:
            raise ValueError(
                f"a row of {max(widths)} tokens with {heads} heads of {dim} is more than the kernel indexes"
            )
        if self.tile.block_m < self.group:
            raise ValueError(f"a tile of {self.tile.block_m} rows cannot hold a group of {self.group} heads")
        if exact and chunk % self.tile.block_n:
            raise ValueError(f"a chunk of {chunk} keys is not a multiple of {self.tile.block_n}")
        tiles = _tiles(widths, self.tile.block_m // self.group)
        self.tiles = torch.tensor(tiles, dtype=torch.int32, device=device)  # [tiles, 2]: row, first token
        self.direct = tiles == [(row, 0) for row in range(len(widths))]
        self.tokens = sum(widths)
        span = longest if window_left < 0 else min(longest, window_left + max(widths))
        blocks = cdiv(span, self.tile.block_n) + (window_left >= 0)  # a window may begin inside a block
        self.chunk_blocks = chunk // self.tile.block_n if exact else 0
        if splits is not None:
            self.splits = splits
        elif exact:
            self.splits = cdiv(max(span - 1, 1), chunk) + 1
        else:
            self.splits = splits_for(len(tiles) * kv_heads, blocks, self.tile)
        split = self.splits > 1 or exact
        if tile is None and not split and self.tile.block_m < 64:
            self.tile = replace(self.tile, warps=2)  # long streams: two warps keep a whole row of the tile each
        shape = (self.tokens, heads, self.splits) if split else (0, heads, 1)
        self.partial = torch.empty((*shape, dim), dtype=torch.float32, device=device)
        self.weight = torch.empty(shape, dtype=torch.float32, device=device)
        self.split = split

    @property
    def workspace(self) -> int:
        """Bytes of partial results and their weights."""
        return self.partial.nbytes + self.weight.nbytes

    def _descriptors(self, call: AttentionCall) -> tuple[object, object]:
        """What the kernel reads whole blocks of keys through: the caches, or tensor maps of them."""
        if not self.tile.bulk:
            return call.k_cache, call.v_cache
        pages, page_size, heads, dim = call.k_cache.shape
        shape, strides = [pages * page_size, heads * dim], [call.k_cache.stride(1), 1]
        block = [self.tile.block_n, dim]
        return TensorDescriptor(call.k_cache, shape, strides, block), TensorDescriptor(
            call.v_cache, shape, strides, block
        )

    def launches(self, call: AttentionCall) -> list[Launch]:
        """The launches of ``call``: the attention and, where the keys are split, the combination."""
        tile = self.tile
        if call.k_cache.stride() != call.v_cache.stride() or not (call.q.is_contiguous() and call.out.is_contiguous()):
            raise ValueError("K and V need equal strides, queries and output must be contiguous")
        partial, weight = (self.partial, self.weight) if self.split else (call.out, call.out)
        arguments = (
            call.q, call.k_cache, call.v_cache, *self._descriptors(call), call.out, partial, weight, call.table,
            call.cu_query, call.length, call.base, call.start, self.tiles, self.tiles,
            self.dim**-0.5 * math.log2(math.e), call.table.stride(0), *call.k_cache.stride()[:3], call.q.stride(0),
            self.splits, call.window_left, self.chunk_blocks,
        )  # fmt: skip
        constants = {
            "GROUP": self.group,
            "D": self.dim,
            "PAGE": self.page_size,
            "BLOCK_M": tile.block_m,
            "BLOCK_N": tile.block_n,
            "CAUSAL": call.causal,
            "WINDOWED": call.window_left >= 0,
            "LEFT": call.window_left >= 0 or not call.from_origin or self.page_size % tile.block_n != 0,
            "SPLIT": self.split,
            "DIRECT": self.direct,
            "EARLY": self.split and launches_early(),
            "FRUGAL": tile.block_m >= WIDEST,
            "BULK": tile.bulk,
            "UPCAST": upcast(self.dtype is torch.bfloat16),
            "STAGES": tile.stages,
            "num_warps": tile.warps,
            "num_stages": tile.stages,
        }
        if tile.registers is not None:
            constants["maxnreg"] = tile.registers
        grid = (len(self.tiles), self.kv_heads, self.splits)
        launches = [Launch("attention", paged_attention_kernel, grid, arguments, constants)]
        return [*launches, self._combine(call)] if self.split else launches

    def _combine(self, call: AttentionCall) -> Launch:
        arguments = (self.partial, self.weight, call.out, self.splits)
        constants: dict[str, int | bool] = {"D": self.dim, "EARLY": launches_early(), "num_warps": 1}
        if launches_early():
            constants["launch_pdl"] = True
        grid = (self.tokens * self.heads,)
        if self.exact:
            return Launch("combine in order", combine_ordered_kernel, grid, arguments, constants)
        constants["WIDTH"] = power_of_two(self.splits)
        constants["num_warps"] = min(8, max(1, constants["WIDTH"] * self.dim // 1024))
        return Launch("combine", combine_tree_kernel, grid, arguments, constants)

    def run(self, call: AttentionCall) -> None:
        """Queue the attention of ``call`` on the current stream."""
        for launch in self.launches(call):
            launch()


def _tiles(widths: Sequence[int], tokens: int) -> list[tuple[int, int]]:
    """Row and first token of every tile; tiles with the most keys below them come first."""
    tiles = [(row, token) for row, width in enumerate(widths) for token in range(0, width, tokens)]
    return sorted(tiles, key=lambda tile: -tile[1])
