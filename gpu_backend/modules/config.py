"""What a target and a drafter are: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from gpu_backend.layout import PoolLayout


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers whose K/V lives in one lifecycle's pool: those that share a window (tokens, ``None`` for all)."""

    window: int | None
    layers: tuple[int, ...]

    @property
    def window_left(self) -> int:
        """Keys left of the query that it sees, -1 for all, as the kernels count."""
        return -1 if self.window is None else self.window - 1


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Shape of a stack of decoder layers. ``windows`` has an entry a layer; none at all: full attention throughout.

    ``positions`` bounds absolute positions, ``theta`` is the base of the rotary embedding, ``qk_norm`` normalises
    queries and keys by head before it.
    """

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    positions: int
    theta: float = 10_000.0
    eps: float = 1e-6
    qk_norm: bool = True
    windows: tuple[int | None, ...] = ()
    dtype: torch.dtype = torch.float32

    def window(self, layer: int) -> int | None:
        """Window of ``layer`` in tokens."""
        return self.windows[layer] if self.windows else None

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        """The layers by window, in the order of each group's first layer."""
        order = dict.fromkeys(self.window(layer) for layer in range(self.layers))
        return tuple(
            LayerGroup(window, tuple(layer for layer in range(self.layers) if self.window(layer) == window))
            for window in order
        )

    def layouts(self, page_size: int) -> tuple[PoolLayout, ...]:
        """Layout of each group's pool."""
        return tuple(
            PoolLayout(len(group.layers), self.kv_heads, self.head_dim, page_size, self.dtype) for group in self.groups
        )


@dataclass(frozen=True, slots=True)
class TargetConfig(DecoderConfig):
    """A Qwen3-style target; ``tied``: its head is the embedding. Without ``qk_norm`` it is a Llama."""

    tied: bool = True


CHAINED = ("eagle3", "mtp-eagle", "mtp")  # kinds whose cells take the token behind them, and attend earlier cells


@dataclass(frozen=True, slots=True)
class DrafterConfig(DecoderConfig):
    """A drafter for targets of the same ``hidden`` and ``vocabulary``; embedding and head are the target's.

    ``kind`` is a name of :data:`model.drafter.KINDS`, ``taps`` are the target's layers whose outputs it reads. A block
    has ``block`` tokens, the anchor and masks, and drafts are read from slot ``logits_start`` on: 1 where the anchor's
    own slot predicts nothing. ``dspark`` is DFlash whose logits are biased by the token before each slot, through a
    matrix of rank ``markov_rank`` and a head of form ``markov`` (see :mod:`gpu_backend.modules.markov`); ``confidence``
    names what its confidence head reads, ``hidden`` states or those and the ``markov`` embedding, none without one.
    Such a block may draft from ``drawn`` of the target's ids only, by a head of its own; 0: from all, by the target's.
    ``causal`` says of each layer whether a slot sees none behind it; none at all: every slot sees the whole block.
    A chain has ``depth`` modules of a layer each and drafts ``block`` tokens one by one.
    """

    kind: str = "dflash"
    taps: tuple[int, ...] = field(default=())
    target_layers: int = 0
    block: int = 8
    mask_token: int = 0
    logits_start: int = 1
    depth: int = 1
    markov_rank: int = 0
    markov: str = "vanilla"
    confidence: str = ""
    drawn: int = 0
    causal: tuple[bool, ...] = ()

    def is_causal(self, layer: int) -> bool:
        """Whether slots of a block see none behind them in ``layer``."""
        return bool(self.causal) and self.causal[layer]

    @property
    def chained(self) -> bool:
        """Whether it drafts token by token, behind cells that look ahead."""
        return self.kind in CHAINED

    @property
    def drafts(self) -> int:
        """K, the drafts of one pass."""
        return self.block if self.chained else self.block - self.logits_start
