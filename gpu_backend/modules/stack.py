"""A stack of decoder layers over paged K/V: what target and drafter have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from gpu_backend.backend import Kernels
from gpu_backend.modules.blocks import RowBlocks
from gpu_backend.modules.config import DecoderConfig
from gpu_backend.modules.layers import Layer
from gpu_backend.modules.step import Step


class Runner:
    """How a module is carried out: the kernels, and the row blocks of everything beside them."""

    def __init__(self, kernels: Kernels, blocks: RowBlocks) -> None:
        self.kernels, self.blocks = kernels, blocks


def places(config: DecoderConfig) -> list[tuple[int, int]]:
    """Group and place in its pool of every layer."""
    found = {
        layer: (number, place) for number, group in enumerate(config.groups) for place, layer in enumerate(group.layers)
    }
    return [found[layer] for layer in range(config.layers)]


def run_layers(
    layers: Sequence[Layer],
    config: DecoderConfig,
    x: torch.Tensor,
    rotation: tuple[torch.Tensor, torch.Tensor],
    step: Step,
    run: Runner,
    *,
    causal: bool,
    taps: Iterable[int] = (),
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Take ``x`` ``[tokens, hidden]`` through the layers: K/V is stored before it is read, layer by layer.

    Returns the stream behind the last layer and behind each layer of ``taps``, in the order of ``taps``.
    """
    tapped: dict[int, torch.Tensor] = {}
    wanted = tuple(taps)
    for number, layer in enumerate(layers):
        x = run_layer(layer, number, config, x, rotation, step, run, causal=causal)
        if number in wanted:
            tapped[number] = x
    return x, [tapped[number] for number in wanted]


def run_layer(
    layer: Layer,
    number: int,
    config: DecoderConfig,
    x: torch.Tensor,
    rotation: tuple[torch.Tensor, torch.Tensor],
    step: Step,
    run: Runner,
    *,
    causal: bool,
) -> torch.Tensor:
    """Take ``x`` through layer ``number`` of ``config``: K/V is stored, then read; returns the stream behind it."""
    group, place = places(config)[number]
    paging = step.paging[group]
    q, k, v = run.blocks(layer.project, x, *rotation)
    run.kernels.store(paging.store(place, k, v), paging.writable)
    out = torch.empty_like(q) if step.calls else torch.zeros_like(q)
    for rows in step.calls:
        call = paging.attention(place, rows, q, out, causal=causal, window_left=config.groups[group].window_left)
        run.kernels.attend(call, paging.readable, rows.widths)
    (x,) = run.blocks(layer.finish, x, out)
    return x
