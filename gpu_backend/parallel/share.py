"""Target and drafter that fit an engine's lifecycles, whole or as one rank's share of them, with seeded weights."""

from __future__ import annotations

from dataclasses import replace

import torch

from gpu_backend.modules.config import DrafterConfig, TargetConfig
from gpu_backend.modules.drafters import in_blocks
from gpu_backend.modules.layers import Reduce
from gpu_backend.modules.ranks import drafter_of_rank, rank_config, target_of_rank
from gpu_backend.modules.tier0 import TINY, drafter_for, random_drafter, random_target
from gpu_backend.replay.modelled import KINDS, Modelled, Models
from model.config import EngineConfig
from scenarios.errors import InputError

LAYERS = 2  # of every window


def whole_configs(config: EngineConfig, ranks: int, dtype: torch.dtype) -> tuple[TargetConfig, DrafterConfig]:
    """A tiny pair of as many KV heads as there are ranks (2 at least), its target with layers for every window.

    InputError for lifecycles whose windows do not tell them apart.
    """
    windows = tuple(life.window for life in config.target)
    if len(set(windows)) < len(windows):
        raise InputError("geometry", 0, "", "expected target lifecycles of one window each, found two of one")
    heads, limits = max(2, ranks), config.limits
    target = replace(
        TINY,
        kv_heads=heads,
        heads=2 * heads,
        intermediate=48 * heads,
        layers=LAYERS * len(windows),
        windows=windows * LAYERS,
        positions=limits.max_seq_len + limits.page_size,
        dtype=dtype,
    )
    block = max(1, config.drafter.drafts)
    return target, drafter_for(target, block=block, window=config.drafter.window, logits_start=0)


def drafts(config: EngineConfig) -> bool:
    """Whether the drafter is one that there is a module for; others' pages are kept, and nothing drafts."""
    served = config.drafter.kind in KINDS and config.drafter.drafts > 0 and len(config.draft) == 1
    return served and not any(life.sinks for life in (*config.target, *config.draft))


def share_of(
    whole: tuple[TargetConfig, DrafterConfig], seed: int, rank: int, ranks: int, reduce: Reduce, device: torch.device
) -> Models:
    """The share of ``rank`` in both, ready on ``device``; of a single rank that is the whole."""
    target, drafter = random_target(whole[0], seed, whole[1].taps), in_blocks(random_drafter(whole[1], seed))
    if ranks > 1:
        target = target_of_rank(target, rank, ranks, reduce)
        drafter = drafter_of_rank(drafter, rank, ranks, reduce)
    own = rank_config(whole[0], ranks)
    content = Modelled(1, own.kv_heads, own.head_dim, own.dtype, own.layers + whole[1].layers)
    return Models(target.ready(device), drafter.ready(device), content, False)
