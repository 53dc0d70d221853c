"""The configuration of a block drafter from what its file tells, and whether it fits its target."""

from __future__ import annotations

import torch

from gpu_backend.modules.config import DrafterConfig, TargetConfig
from gpu_backend.modules.packagings.told import ALL, SLIDING, Told
from scenarios.errors import InputError


def causal_layers(told: Told, windows: tuple[int | None, ...]) -> tuple[bool, ...]:
    """Which layers are causal, by their windows; nothing if none is."""
    causal = tuple(told.causal == ALL or (told.causal == SLIDING and window is not None) for window in windows)
    return causal if any(causal) else ()


def require_fit(config: DrafterConfig, told: Told, target: TargetConfig, file: str) -> None:
    """``InputError`` for taps or a mask that the target does not have, or a block wider than its window."""
    last = target.layers - 1
    for place, tap in enumerate(config.taps):
        field = f"{told.taps_at}[{place}]"
        if tap == last:
            raise InputError(file, 0, field, f"the target's last layer ({last + told.shift}) cannot be tapped")
        if tap > last:
            problem = f"expected a layer below {last + told.shift}, found {tap + told.shift}"
            raise InputError(file, 0, field, problem)
    if config.mask_token >= target.vocabulary:
        problem = f"expected a token below {target.vocabulary}, found {config.mask_token}"
        raise InputError(file, 0, told.mask_at, problem)
    if config.drafts < 1:
        problem = f"expected at least {1 + config.logits_start}, so that a block drafts, found {config.block}"
        raise InputError(file, 0, "block_size", problem)
    narrowest = min((window for window in config.windows if window is not None), default=config.block)
    if narrowest < config.block:
        problem = f"expected at least the block's {config.block}, found {narrowest}"
        raise InputError(file, 0, f"{told.place}sliding_window", problem)


def require_ids(d2t: torch.Tensor, vocabulary: int, file: str) -> None:
    """``InputError`` unless ``d2t`` int64 ``[drawn]``, the distance of each draft id to the target's, names different
    ids of the target."""
    ids = torch.arange(len(d2t)) + d2t
    if int(ids.min()) < 0 or int(ids.max()) >= vocabulary or len(ids.unique()) < len(ids):
        problem = f"expected distances to {len(ids)} different tokens below {vocabulary}, found others"
        raise InputError(file, 0, "d2t", problem)
