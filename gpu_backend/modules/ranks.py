"""Tensor parallelism: a rank's share of a target or a drafter (Shoeybi et al. 2019).

Heads and the MLP's inner columns are shared out; embedding, head and norms are on every rank. Each layer sums twice
over the ranks, after the attention and after the MLP. A rank's pools hold its own KV heads only; where there are fewer
KV heads than ranks, a head is on several (as in :meth:`model.geometry.AttentionShape.bytes_per_token`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import torch

from gpu_backend.modules.config import DecoderConfig, DrafterConfig, TargetConfig
from gpu_backend.modules.drafter import Drafter
from gpu_backend.modules.layers import Layer, Reduce
from gpu_backend.modules.target import Target

Config = TypeVar("Config", TargetConfig, DrafterConfig)
COLUMNS = ("o_proj.weight", "down_proj.weight")  # shared out by columns, whose products are partial sums
ROWS = ("q_proj.weight", "gate_proj.weight", "up_proj.weight")
KV_ROWS = ("k_proj.weight", "v_proj.weight")


def rank_config(config: Config, ranks: int) -> Config:
    """Shape of one rank of ``ranks``; ``ValueError`` if heads or columns cannot be shared out evenly."""
    for what, count in (("query heads", config.heads), ("MLP columns", config.intermediate)):
        if count % ranks:
            raise ValueError(f"{count} {what} cannot be shared by {ranks} ranks evenly")
    if config.kv_heads % ranks and ranks % config.kv_heads:
        raise ValueError(f"{config.kv_heads} KV heads cannot be shared by {ranks} ranks evenly")
    return replace(
        config,
        heads=config.heads // ranks,
        kv_heads=max(1, config.kv_heads // ranks),
        intermediate=config.intermediate // ranks,
    )


def rank_weights(
    weights: Mapping[str, torch.Tensor], config: DecoderConfig, rank: int, ranks: int
) -> dict[str, torch.Tensor]:
    """The share of ``rank`` in the ``weights`` of a whole module of ``config``."""
    found: dict[str, torch.Tensor] = {}
    for name, tensor in weights.items():
        if name.endswith(COLUMNS):
            found[name] = tensor.chunk(ranks, 1)[rank].contiguous()
        elif name.endswith(ROWS):
            found[name] = tensor.chunk(ranks, 0)[rank]
        elif name.endswith(KV_ROWS):
            heads = tensor.unflatten(0, (config.kv_heads, config.head_dim))
            first = rank * config.kv_heads // ranks
            found[name] = heads[first : first + max(1, config.kv_heads // ranks)].flatten(0, 1)
        else:
            found[name] = tensor
    return found


def target_of_rank(whole: Target, rank: int, ranks: int, reduce: Reduce) -> Target:
    """The share of ``rank`` in a target that is not ready yet; ``reduce`` sums a tensor over the ranks."""
    share = Target(rank_config(whole.config, ranks), whole.taps)
    share.load_state_dict(rank_weights(whole.state_dict(), whole.config, rank, ranks))
    _sum_by(share.stack, reduce)
    return share


def drafter_of_rank(whole: Drafter, rank: int, ranks: int, reduce: Reduce) -> Drafter:
    """The share of ``rank`` in a drafter that is not ready yet."""
    share = Drafter(rank_config(whole.config, ranks))
    share.load_state_dict(rank_weights(whole.state_dict(), whole.config, rank, ranks))
    _sum_by(share.stack, reduce)
    return share


def _sum_by(layers: list[Layer], reduce: Reduce) -> None:
    for layer in layers:
        layer.reduce = reduce
