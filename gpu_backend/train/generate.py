"""What a target writes behind prompts: many sequences at once over one dense cache, greedy or by temperature."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

from gpu_backend.modules.target import Target

PREFILL_TOKENS = 1 << 18  # of one prefill pass


@torch.no_grad()
def generate(
    target: Target, prompts: torch.Tensor, new: int, temperature: torch.Tensor, seed: int,
    over: Callable[[], bool] = lambda: False, every: int = 1,
) -> torch.Tensor:  # fmt: skip
    """``prompts`` int64 ``[rows, length]`` and ``new`` tokens behind them; ``temperature`` ``[rows]``, 0 is greedy.

    Once ``over()``, which is asked behind ``every`` so many tokens, is true, no more rows are begun and no more tokens
    follow. ``every`` tokens of the rows of one pass are the least there is.
    """
    config, (rows, length), device = target.config, prompts.shape, prompts.device
    dtype = target.head_weight.dtype
    cache = torch.empty(
        config.layers, 2, rows, config.kv_heads, length + new, config.head_dim, dtype=dtype, device=device
    )
    draw = torch.Generator(device=device).manual_seed(seed)
    part = max(1, PREFILL_TOKENS // length)
    states: list[torch.Tensor] = []
    for first in range(0, rows, part):
        if not states or not over():
            states.append(_prefill(target, prompts[first : first + part], cache, first))
    state = torch.cat(states)
    rows = len(state)
    cache, temperature = cache[:, :, :rows], temperature[:rows]
    out = torch.cat([prompts[:rows], prompts.new_zeros(rows, new)], 1)
    for place in range(length, length + new):
        (logits,) = target.head(target.model.norm(state))
        out[:, place] = token = pick(logits, temperature, draw)
        if (place + 1 - length) % every == 0 and over():
            return out[:, : place + 1]
        if place < length + new - 1:
            state = _decode(target, token, cache, place)
    return out


def pick(logits: torch.Tensor, temperature: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    """Tokens int64 ``[rows]`` of ``logits`` ``[rows, vocabulary]`` (the Gumbel trick)."""
    uniform = torch.rand(logits.shape, device=logits.device, generator=draw).clamp(1e-9, 1 - 1e-7)
    return (logits.float() - temperature[:, None] * uniform.log().neg().log()).argmax(-1)


def _prefill(target: Target, prompts: torch.Tensor, cache: torch.Tensor, first: int) -> torch.Tensor:
    """Fill the cache of rows from ``first`` on; raw states of the last tokens ``[rows, hidden]``."""
    rows, length = prompts.shape
    cos, sin = target.rotary.at(torch.arange(length, device=prompts.device).repeat(rows))
    x = target.embed(prompts.flatten())
    for layer, kv in zip(target.stack, cache, strict=True):
        q, k, v = (one.unflatten(0, (rows, -1)).transpose(1, 2) for one in layer.project(x, cos, sin))
        kv[0, first : first + rows, :, :length], kv[1, first : first + rows, :, :length] = k, v
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        (x,) = layer.finish(x, out.transpose(1, 2).flatten(0, 1))
    return x.unflatten(0, (rows, -1))[:, -1]


def _decode(target: Target, token: torch.Tensor, cache: torch.Tensor, place: int) -> torch.Tensor:
    """One token of every row at position ``place``; batched products read the cache as it lies."""
    config, rows = target.config, len(token)
    cos, sin = target.rotary.at(torch.full((1,), place, device=token.device))
    x = target.embed(token)
    for layer, kv in zip(target.stack, cache, strict=True):
        q, k, v = layer.project(x, cos, sin)
        kv[0, :, :, place], kv[1, :, :, place] = k, v
        keys, values = (half.flatten(0, 1)[:, : place + 1] for half in kv)  # [rows * kv_heads, keys, dim]
        group = q.reshape(rows * config.kv_heads, -1, config.head_dim)
        weight = (torch.bmm(group, keys.mT).float() * config.head_dim**-0.5).softmax(-1).to(x.dtype)
        (x,) = layer.finish(x, torch.bmm(weight, values).reshape(rows, config.heads, config.head_dim))
    return x
