"""A target that fits an engine's lifecycles, whole or as one rank's share of it, with seeded weights (tier T0)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from gpu_backend.modules.config import TargetConfig
from gpu_backend.modules.layers import Reduce
from gpu_backend.modules.ranks import target_of_rank
from gpu_backend.modules.target import Target
from gpu_backend.modules.tier0 import TINY, random_target
from gpu_backend.replay.content import Synthetic
from model.config import EngineConfig
from model.geometry import Lifecycle

LAYERS = 2  # of every window


def whole_config(config: EngineConfig, ranks: int, dtype: torch.dtype) -> TargetConfig:
    """A tiny target of as many KV heads as there are ranks (2 at least), with layers for every window of ``config``."""
    heads = max(2, ranks)
    windows = windows_of(config.target) * LAYERS
    limits = config.limits
    return replace(
        TINY,
        kv_heads=heads,
        heads=2 * heads,
        intermediate=48 * heads,
        layers=len(windows),
        windows=windows,
        positions=limits.max_seq_len + limits.extra_tokens,
        dtype=dtype,
    )


def windows_of(lifecycles: Sequence[Lifecycle]) -> tuple[int | None, ...]:
    """The windows of target lifecycles, each once, in order; the groups of :func:`whole_config` are theirs."""
    return tuple(dict.fromkeys(life.window for life in lifecycles))


def share_of(config: TargetConfig, seed: int, rank: int, ranks: int, reduce: Reduce, device: torch.device) -> Target:
    """The share of ``rank``, ready on ``device``; of a single rank that is the whole."""
    whole = random_target(config, seed)
    return (whole if ranks == 1 else target_of_rank(whole, rank, ranks, reduce)).ready(device)


def content_of(config: TargetConfig) -> Synthetic:
    """Pools for the K/V of a target or a share; rows are synthetic until the target has run over them."""
    return Synthetic(LAYERS, config.kv_heads, config.head_dim, config.dtype)
