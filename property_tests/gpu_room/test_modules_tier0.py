"""Tier T0: weights that a seed names, the same bits everywhere."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
import torch

from gpu_backend.modules.config import LayerGroup
from gpu_backend.modules.tier0 import SIZES, TIMING, TINY, default_taps, drafter_for, random_drafter, random_target


def digest(module: torch.nn.Module, dtype: torch.dtype) -> str:
    """SHA-256 of all parameters in ``dtype``."""
    found = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        found.update(name.encode())
        found.update(tensor.to("cpu", dtype).contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


@pytest.mark.parametrize(
    ("dtype", "target", "drafter"),
    [(torch.float32, "28b0395f3b6c8cdf", "cb86c7f3b16e7458"), (torch.bfloat16, "02a137eff39c2b26", "d702c464b187af45")],
    ids=str,
)
def test_weights_are_the_same_on_every_machine(
    device: torch.device, dtype: torch.dtype, target: str, drafter: str
) -> None:
    config = replace(TINY, dtype=dtype)
    assert digest(random_target(config, 1).ready(device), dtype) == target
    assert digest(random_drafter(drafter_for(config), 1).ready(device), dtype) == drafter


def test_another_seed_gives_other_weights() -> None:
    one, same, other = (digest(random_target(TINY, seed), torch.float32) for seed in (1, 1, 2))
    assert one == same != other
    first, second = (layer.self_attn.q_proj.weight for layer in random_target(TINY, 1).stack[:2])
    assert not torch.equal(first, second)


def test_the_timing_shape_has_the_layers_that_checks_are_timed_beside() -> None:
    assert SIZES["timing"] is TIMING
    (layout,) = TIMING.layouts(128)
    assert (layout.layers, layout.kv_heads, layout.head_dim, layout.dtype) == (32, 8, 128, torch.bfloat16)
    drafter = drafter_for(TIMING, layers=5, block=8, window=4096, kv_heads=4)
    (layout,) = drafter.layouts(128)
    assert (layout.layers, layout.kv_heads, drafter.drafts) == (5, 4, 7)


def test_layers_of_one_window_share_a_lifecycle() -> None:
    config = replace(TINY, layers=5, windows=(None, 24, None, 8, 24))
    assert config.groups == (LayerGroup(None, (0, 2)), LayerGroup(24, (1, 4)), LayerGroup(8, (3,)))
    assert [group.window_left for group in config.groups] == [-1, 23, 7]
    assert [layout.layers for layout in config.layouts(16)] == [2, 2, 1]
    assert TINY.groups == (LayerGroup(None, (0, 1, 2)),)


@pytest.mark.parametrize(
    ("layers", "count", "taps"),
    [
        (36, 5, (1, 9, 17, 25, 33)),
        (8, 3, (1, 3, 5)),
        (3, 3, (1,)),
        (2, 3, (0,)),
        (4, 3, (1,)),
        (5, 3, (1, 2)),
        (9, 1, (1,)),
    ],
)
def test_taps_are_spread_and_never_the_last_layer(layers: int, count: int, taps: tuple[int, ...]) -> None:
    assert default_taps(layers, count) == taps
    assert max(taps) < layers - 1
