"""Tier T0: seeded random weights. They draft nothing worth accepting, but their K/V is as exact as any.

A weight is a 16-bit integer of a PCG64 stream, named by seed and parameter, times a scale: the same bits on every
device and every machine, whatever its vector units make of logarithms.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from gpu_backend.modules.config import DrafterConfig, TargetConfig
from gpu_backend.modules.drafters import AnyDrafter, drafter_module
from gpu_backend.modules.target import Target
from model.tokens import named_seed

Filled = TypeVar("Filled", bound=nn.Module)
TINY = TargetConfig(
    vocabulary=512,
    hidden=64,
    layers=3,
    heads=4,
    kv_heads=2,
    head_dim=16,
    intermediate=96,
    positions=4096,
    tied=False,
)
SMALL = TargetConfig(
    vocabulary=4096,
    hidden=256,
    layers=6,
    heads=8,
    kv_heads=2,
    head_dim=32,
    intermediate=512,
    positions=32_768,
    tied=False,
)
# The K/V of an 8B model behind narrow layers: what its checks cost weighs more than beside the real ones.
TIMING = TargetConfig(
    vocabulary=4096, hidden=1024, layers=32, heads=32, kv_heads=8, head_dim=128, intermediate=2048, positions=262_144,
    dtype=torch.bfloat16, tied=False,
)  # fmt: skip
TABLES = {"embed_tokens": 0.5, "markov_w1": 1.0}  # scales of tables, whose rows are looked up
SIZES = {"tiny": TINY, "small": SMALL, "timing": TIMING}


def default_taps(layers: int, count: int) -> tuple[int, ...]:
    """``count`` layers from 1 to ``layers - 3``, evenly spaced, as DFlash picks them; fewer if there are fewer.

    Never the last one: its output is told normed by some and raw by others.
    """
    last = max(1, layers - 3)
    if count < 2 or last == 1:
        return (min(1, layers - 2),)
    return tuple(sorted({round(1 + (last - 1) * place / (count - 1)) for place in range(count)}))


def drafter_for(
    target: TargetConfig, *, layers: int = 2, block: int = 4, window: int | None = None, kv_heads: int | None = None,
    taps: int = 3, logits_start: int = 1, markov_rank: int = 0,
) -> DrafterConfig:  # fmt: skip
    """Configuration of a drafter with the target's shape; ``taps`` counts tapped layers, all get ``window``.

    With a ``markov_rank`` it is DSpark.
    """
    return DrafterConfig(
        target.vocabulary, target.hidden, layers, target.heads, kv_heads or target.kv_heads, target.head_dim,
        target.intermediate, target.positions, target.theta, target.eps, windows=(window,) * layers,
        dtype=target.dtype, taps=default_taps(target.layers, taps), target_layers=target.layers, block=block,
        mask_token=1, logits_start=logits_start, kind="dspark" if markov_rank else "dflash", markov_rank=markov_rank,
    )  # fmt: skip


def chain_for(
    target: TargetConfig, kind: str, *, drafts: int, depth: int = 1, window: int | None = None,
    taps: tuple[int, ...] | None = None,
) -> DrafterConfig:  # fmt: skip
    """Configuration of a drafter with the target's shape that drafts ``drafts`` tokens one by one.

    ``kind`` is eagle3, mtp-eagle (both with one module) or mtp, of which ``depth`` modules draft a token each. EAGLE3
    taps ``taps``, three layers unless said; MTP takes the target's last state, ahead of its final norm.
    """
    chosen = default_taps(target.layers, 3) if taps is None else taps
    return DrafterConfig(
        target.vocabulary, target.hidden, depth, target.heads, target.kv_heads, target.head_dim, target.intermediate,
        target.positions, target.theta, target.eps, target.qk_norm, (window,) * depth, target.dtype,
        taps=chosen if kind == "eagle3" else (target.layers - 1,), target_layers=target.layers, block=drafts,
        logits_start=0, kind=kind, depth=depth,
    )  # fmt: skip


def random_target(config: TargetConfig, seed: int, taps: tuple[int, ...] = ()) -> Target:
    """A target with weights of ``seed``, on the CPU in float32 until it is made ready."""
    return fill(Target(config, taps), config.layers, f"target {seed}")


def random_drafter(config: DrafterConfig, seed: int) -> AnyDrafter:
    """A drafter with weights of ``seed``."""
    return fill(drafter_module(config), config.layers, f"drafter {seed}")


def random_pair(
    target: TargetConfig, drafter: DrafterConfig, seed: int, device: torch.device | str, *, exact: bool = False
) -> tuple[Target, AnyDrafter]:
    """Target and drafter of one seed, ready on ``device``; the drafter computes in the target's dtype."""
    drafter = replace(drafter, dtype=target.dtype)
    return (
        random_target(target, seed, drafter.taps).ready(device, exact=exact),
        random_drafter(drafter, seed).ready(device, exact=exact),
    )


def fill(module: Filled, layers: int, name: str) -> Filled:
    """Fill every parameter of ``module`` from the stream of ``name`` and its own name.

    Scales are such that the greedy choice turns on tokens far back: attention is peaked (large gains of the queries'
    norm) and layers add to the stream more than it began with.
    """
    with torch.no_grad():
        for parameter_name, parameter in module.named_parameters():
            values = _uniform(f"{name} {parameter_name}", parameter.shape)
            if parameter_name.endswith(".bias"):
                parameter.copy_(values / 2)
                continue
            if parameter.ndim == 1:
                parameter.copy_((1 + values / 4) * (2 if "q_norm" in parameter_name else 1))
                continue
            scale = parameter.shape[1] ** -0.5
            scale = next((own for name, own in TABLES.items() if name in parameter_name), scale)
            if parameter_name.endswith(("o_proj.weight", "down_proj.weight")):
                scale *= (2 / layers) ** 0.5
            parameter.copy_(values * (scale * 3**0.5))
    return module


def _uniform(name: str, shape: torch.Size) -> torch.Tensor:
    """Values of [-1, 1) with 16 bits each, float32 of ``shape``."""
    stream = np.random.Generator(np.random.PCG64(named_seed("tier 0 weights", name)))
    drawn = np.frombuffer(stream.bytes(2 * shape.numel()), dtype="<i2").astype(np.float32)
    return torch.from_numpy(drawn / np.float32(1 << 15)).reshape(shape)
