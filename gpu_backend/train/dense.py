"""Target and drafter over dense K/V, for training: the modules' own layers, with plain attention between their halves.

Tokens are flat, ``[rows * length, ...]``, as the layers take them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from gpu_backend.modules.drafter import Drafter
from gpu_backend.modules.drafters import AnyDrafter
from gpu_backend.modules.layers import Layer
from gpu_backend.modules.target import Target
from gpu_backend.train.further import Cells, further_cells, whole_cells

Rotation = tuple[torch.Tensor, torch.Tensor]
KeyValues = tuple[torch.Tensor, torch.Tensor]


def causal_layer(layer: Layer, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, rows: int) -> torch.Tensor:
    """One layer over ``rows`` whole sequences, ``x`` ``[rows * length, hidden]``."""
    q, k, v = [part.unflatten(0, (rows, -1)).transpose(1, 2) for part in layer.project(x, cos, sin)]
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    (x,) = layer.finish(x, out.transpose(1, 2).flatten(0, 1))
    return x


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Attention of ``q`` ``[rows, queries, heads, dim]`` over ``k``, ``v`` ``[rows, keys, kv_heads, dim]``.

    ``seen`` is bool ``[rows or 1, queries, keys]``. Query heads of one KV head stand together, so no K/V is copied.
    """
    group = q.shape[2] // k.shape[2]
    folded = q.unflatten(2, (-1, group)).permute(0, 2, 3, 1, 4).flatten(2, 3)  # [rows, kv_heads, group * queries, dim]
    mask = seen[:, None].repeat(1, 1, group, 1)
    out = F.scaled_dot_product_attention(folded, k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask)
    return out.unflatten(2, (group, -1)).permute(0, 3, 1, 2, 4).flatten(2, 3)


class Windows(torch.autograd.Function):
    """``[rows, length, ...]`` to ``[rows, anchors, window, ...]``: window ``a`` ends before ``window + a * stride``.

    Windows overlap, so the gradient of a position is a sum over them: shift by shift, not entry by entry.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, window: int, stride: int, anchors: int) -> torch.Tensor:
        ctx.sizes = (x.shape, window, stride, anchors)
        blocks = x.reshape(len(x), -1, stride * x[0, 0].numel())
        found = blocks.unfold(1, window // stride, 1)[:, :anchors]  # [rows, anchors, entries, window / stride]
        return found.transpose(2, 3).reshape(len(x), anchors, window, *x.shape[2:])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        shape, window, stride, anchors = ctx.sizes
        shifts = window // stride
        grad = grads[0].reshape(shape[0], anchors, shifts, -1)
        total = torch.zeros(shape[0], shape[1] // stride, grad.shape[-1], dtype=torch.float32, device=grad.device)
        for shift in range(shifts):
            total[:, shift : shift + anchors] += grad[:, :, shift]
        return total.reshape(shape).to(grad.dtype), None, None, None


def block_layer(
    layer: Layer, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    seen: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """One layer over blocks, ``x`` ``[blocks * width, hidden]``; ``k``, ``v`` are context ``[blocks, keys, ...]``."""
    q, own_k, own_v = [part.unflatten(0, (len(k), -1)) for part in layer.project(x, cos, sin)]
    out = attend(q, torch.cat([k, own_k.to(k.dtype)], 1), torch.cat([v, own_v.to(v.dtype)], 1), seen)
    (x,) = layer.finish(x, out.flatten(0, 1))
    return x


def context_kv(layer: Layer, fused: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Rotation:
    """K and V of fused features ``[tokens, hidden]``."""
    return layer.self_attn.keys_values(fused, cos, sin)


@dataclass(slots=True)
class Passes:
    """The parts of a pass, compiled or not: one graph each, whatever the layer."""

    causal: Callable[..., torch.Tensor] = causal_layer
    block: Callable[..., torch.Tensor] = block_layer
    context: Callable[..., Rotation] = context_kv
    cells: Callable[..., Cells] = whole_cells
    further: Callable[..., Cells] = further_cells

    @classmethod
    def on(cls, device: torch.device) -> Passes:
        """Compiled on a GPU."""
        if device.type != "cuda":
            return cls()
        import torch._dynamo

        torch._dynamo.config.recompile_limit = 64
        torch._dynamo.config.automatic_dynamic_shapes = False  # layers share a graph of static shapes
        return cls(
            torch.compile(causal_layer), torch.compile(block_layer), torch.compile(context_kv),
            torch.compile(whole_cells), torch.compile(further_cells),
        )  # fmt: skip


def run_target(
    target: Target, ids: torch.Tensor, passes: Passes, kept: list[KeyValues] | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """States behind the last layer, ``[rows * length, hidden]``, not normed, and features, of ``ids`` int64
    ``[rows, length]``. K and V of each layer, ``[rows, length, kv_heads, dim]``, are added to ``kept``."""
    rows, length = ids.shape
    position = torch.arange(length, device=ids.device).repeat(rows)
    cos, sin = target.rotary.at(position)
    x = working(target.embed(ids.flatten()))
    tapped = []
    for number, layer in enumerate(target.stack):
        if kept is None:
            x = passes.causal(layer, x, cos, sin, rows)
        else:
            x, *pair = passes.cells(layer, x, cos, sin, rows)
            kept.append((pair[0], pair[1]))
        if number in target.taps:
            tapped.append(x)
    return x, torch.cat(tapped, -1) if tapped else x[:, :0]


def anchors_of(drafter: Drafter, length: int, stride: int, device: torch.device) -> torch.Tensor:
    """Positions of the anchors in sequences of ``length``: every ``stride`` from the window on, as drafts fit."""
    return torch.arange(window_of(drafter), length - drafter.config.drafts, stride, device=device)


def window_of(drafter: Drafter) -> int:
    """The window that all layers share."""
    (window,) = set(drafter.config.windows)
    assert window is not None
    return window


def run_blocks(
    drafter: Drafter, features: torch.Tensor, embedded: torch.Tensor, rows: int, stride: int, passes: Passes
) -> torch.Tensor:
    """Normed states of the blocks of every anchor, ``[rows, anchors, block, hidden]``.

    ``features`` ``[rows * length, taps * hidden]``; ``embedded`` ``[rows, anchors, block, hidden]``. Window and length
    are multiples of ``stride``. A query reads keys nearer than the window on either side (z-lab's rule).
    """
    config, window = drafter.config, window_of(drafter)
    length, device = len(features) // rows, features.device
    anchor = anchors_of(drafter, length, stride, device)
    fused = drafter.hidden_norm(drafter.fc(features))
    rotation = drafter.rotary.at(torch.arange(length, device=device).repeat(rows))
    place = torch.arange(config.block, device=device)
    cos, sin = drafter.rotary.at((anchor[:, None] + place).flatten().repeat(rows))
    back = place[:, None] + window - torch.arange(window, device=device)  # from a query to a context row
    seen = torch.cat([back < window, place[:, None] - place < window], 1)[None]
    x = embedded.flatten(0, 2)
    for layer in drafter.stack:
        k, v = (
            Windows.apply(part.unflatten(0, (rows, -1)), window, stride, len(anchor)).flatten(0, 1)  # type: ignore[union-attr]
            for part in passes.context(layer, fused, *rotation)
        )
        x = passes.block(layer, x, cos, sin, k, v, seen)
    return drafter.norm(x).unflatten(0, (rows, len(anchor), config.block))


def new_cache(module: Target | AnyDrafter, rows: int, longest: int) -> torch.Tensor:
    """Room for K and V of a module's layers, ``[layers, 2, rows, longest, kv_heads, head_dim]``."""
    config, weight = module.config, next(module.parameters())
    shape = (config.layers, 2, rows, longest, config.kv_heads, config.head_dim)
    return torch.zeros(shape, dtype=weight.dtype, device=weight.device)


def working(x: torch.Tensor) -> torch.Tensor:
    """``x`` in the dtype of the autocast in force, if any."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x
