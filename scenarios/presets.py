"""Geometry presets: the KV layers of a target and of its drafter, with sensible limits and pools.

A figure that was fitted rather than derived is marked so in ``provenance``; it never counts as reproduced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from model.config import Drafter
from model.geometry import AttentionShape, cdiv

DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1}


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """KV layers that share one retention: a window and sinks in tokens, and the storage shape.

    ``page_bytes`` (bytes of a page on one rank, by tensor parallelism) replaces the shape where only the total is
    known. ``window`` of a drafter's group is ``None`` for full attention.
    """

    name: str
    layers: int
    kv_heads: int
    head_dim: int
    dtype: str = "bf16"
    window: int | None = None
    sinks: int = 0
    page_bytes: Mapping[int, int] = field(default_factory=dict)

    def bytes_per_page(self, page_size: int, tensor_parallel: int) -> int:
        """Bytes of a page on one rank; ``KeyError`` if they are fitted and this tensor parallelism was not."""
        if self.page_bytes:
            return self.page_bytes[tensor_parallel]
        shape = AttentionShape(self.layers, self.kv_heads, self.head_dim, DTYPE_BYTES[self.dtype])
        return shape.bytes_per_page(page_size, tensor_parallel)

    def bytes_per_token(self, page_size: int, tensor_parallel: int) -> int:
        """Bytes of a token on one rank, rounded up where a fitted page is no multiple of its tokens."""
        return cdiv(self.bytes_per_page(page_size, tensor_parallel), page_size)


@dataclass(frozen=True, slots=True)
class GeometryPreset:
    """A target with its drafter. Limits and pools are what a scenario gets when it says nothing else."""

    name: str
    summary: str
    provenance: str
    vocabulary: int
    page_size: int
    target: tuple[LayerGroup, ...]
    draft: tuple[LayerGroup, ...]
    drafter: Drafter
    max_batch: int
    max_num_tokens: int
    max_seq_len: int
    target_pages: int
    draft_pages: int
    tensor_parallel: int = 1
    extra_tokens: int = 0


def _tiny(kind: str, summary: str, drafts: int, window: int | None, chain: int = 1) -> GeometryPreset:
    """Toy sizes: small constants are the strongest fault injector."""
    return GeometryPreset(
        name="tiny" if kind == "dflash" else f"tiny-{kind}",
        summary=summary,
        provenance="made up for tests",
        vocabulary=4096,
        page_size=4,
        target=(LayerGroup("target", 2, 1, 8),),
        draft=(LayerGroup("draft", 1, 1, 8, window=window),),
        drafter=Drafter(kind, drafts, window, chain),
        max_batch=4,
        max_num_tokens=32,
        max_seq_len=256,
        target_pages=128,
        draft_pages=64,
    )


GEOMETRIES: dict[str, GeometryPreset] = {
    preset.name: preset
    for preset in (
        GeometryPreset(
            name="minimax-m3.1-flash-like",
            summary="MiniMax-M3.1-Flash-like target with a DSpark drafter, K = 7, window 4,096, pages of 128",
            provenance="drafter: seed 003 (5 layers, 4 KV heads of 128, bf16); target page bytes: FITTED so that the "
            "capacity gains of seed 003 come out (S6), its layers are not public; pages: seed 003, TP2, unified",
            vocabulary=200_064,
            page_size=128,
            target=(LayerGroup("target", 0, 0, 0, page_bytes={2: 3_189_548, 4: 2_375_356}),),
            draft=(LayerGroup("draft", 5, 4, 128, window=4096),),
            drafter=Drafter("dspark", 7, 4096),
            max_batch=88,
            max_num_tokens=8192,
            max_seq_len=1_048_576,
            target_pages=43_087,
            draft_pages=6_092,
            tensor_parallel=2,
        ),
        GeometryPreset(
            name="qwen3-8b-dflash",
            summary="Qwen3-8B with its DFlash drafter of block 16: K = 15, full attention in the drafter",
            provenance="public configuration of Qwen3-8B and of its DFlash b16 checkpoint; pools are made up",
            vocabulary=151_936,
            page_size=128,
            target=(LayerGroup("target", 36, 8, 128),),
            draft=(LayerGroup("draft", 5, 8, 128),),
            drafter=Drafter("dflash", 15, None),
            max_batch=64,
            max_num_tokens=8192,
            max_seq_len=40_960,
            target_pages=8_192,
            draft_pages=8_192,
        ),
        _tiny("dflash", "toy: pages of 4, DFlash drafter with K = 3 and a window of 8", 3, 8),
        _tiny("dspark", "toy: pages of 4, DSpark drafter with K = 3 and a window of 8", 3, 8),
        _tiny("eagle3", "toy: pages of 4, EAGLE3 drafter (lookahead 1) with K = 3, full attention", 3, None),
        _tiny("mtp-eagle", "toy: pages of 4, MTP-Eagle drafter (lookahead 1) with K = 3, full attention", 3, None),
        _tiny("mtp", "toy: pages of 4, MTP drafter of 2 chained modules (lookahead 2), full attention", 2, None, 2),
        _tiny("pard", "toy: pages of 4, PARD drafter (lookahead 0) with K = 3, full attention", 3, None),
    )
}
