"""Acceptance of a trained pair on held-out prompts: greedy, dense, many sequences at once, timeline ``immediate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from gpu_backend.modules.drafter import Drafter
from gpu_backend.modules.loader import load_pair, target_config_of
from gpu_backend.modules.target import Target
from gpu_backend.modules.verify import verify
from gpu_backend.train.dense import Passes, attend, context_kv, run_target, window_of
from gpu_backend.train.files import DRAFTER, PROGRESS, TARGET, TOKENS, read_json, recover
from gpu_backend.train.fit import target_fits, tokens_fit
from gpu_backend.train.recipe import Recipe
from gpu_backend.train.tokens import PROMPTS
from scenarios.errors import InputError

LENGTHS = (16, 32, 64, 128)
BATCH = 128


def evaluate(folder: Path, recipe: Recipe, device: torch.device, generated: int = LENGTHS[-1]) -> dict[str, Any]:
    """Acceptance lengths of the recipe's pair in ``folder`` over the first so many generated tokens.

    AL is tokens committed by verify steps / verify steps, pooled over prompts; the last step counts whole, and the
    token of the prefill does not. A step belongs to the first G tokens if its anchor does.
    """
    prompts = read_json(folder / TOKENS / PROMPTS, "tokenizer")
    if not prompts:
        problem = f"expected prompts of {recipe.eval_prompt} tokens, found none: texts held out are shorter"
        raise InputError(str(folder / TOKENS / PROMPTS), 0, "", problem)
    tokens_fit(folder, recipe)
    for stage in (TARGET, DRAFTER):
        recover(folder / stage)
        read_json(folder / stage / PROGRESS, stage)
    target_fits(folder, target_config_of(folder / TARGET), recipe)
    target, drafter = load_pair(folder / TARGET, folder / DRAFTER, device)
    ids = torch.tensor([prompt["ids"] for prompt in prompts], device=device)
    parts = [speculate(target, drafter, part, generated) for part in ids.split(BATCH)]
    anchor, accepted = (torch.cat(pair) for pair in zip(*(_padded(*part, generated) for part in parts), strict=True))
    table: dict[str, Any] = {"prompts": len(prompts), "prompt_tokens": ids.shape[1], "drafts": drafter.config.drafts}
    for count in (count for count in LENGTHS if count <= generated):
        within = (accepted > 0) & (anchor < count)
        table[f"AL{count}"] = round(float(accepted[within].sum() / within.sum()), 4)
    table["first"] = round(float(accepted[:, 0].float().mean()), 4)
    table["slots"] = [
        round(float((accepted[accepted > 0] > slot).float().mean()), 4) for slot in range(1, drafter.config.drafts + 1)
    ]
    return table


@torch.no_grad()
def speculate(
    target: Target, drafter: Drafter, prompts: torch.Tensor, generated: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Anchors (counted from the first generated token) and accepted tokens by row and step, ``[rows, steps]`` each.

    A row that has ``generated`` tokens rests: its steps accept 0.
    """
    config, (rows, length), device = drafter.config, prompts.shape, prompts.device
    row = torch.arange(rows, device=device)[:, None]
    place = torch.arange(config.block, device=device)
    caches = [_cache(module, rows, length + generated + 2 * config.block) for module in (target, drafter)]
    own, context = caches
    states, features = run_target(target, prompts, Passes())
    _prefill(target, prompts, own)
    _fold(drafter, features, torch.arange(length, device=device).expand(rows, -1), row, context)
    (logits,) = target.head(target.model.norm(states.unflatten(0, (rows, length))[:, -1]))
    token, start = logits.argmax(-1), torch.full((rows,), length, device=device)
    anchors, counts = [], []
    while bool((active := start < length + generated).any()):
        position = torch.minimum(start, torch.tensor(length + generated, device=device))[:, None] + place
        drafts = _draft(target, drafter, token, position, context)
        out, features = _verify(target, torch.cat([token[:, None], drafts], 1), position, row, own)
        verdict = verify(out, drafts)
        _fold(drafter, features, position, row, context)  # rows of rejected drafts lie where the next fold writes
        anchors.append(start - length)
        counts.append(torch.where(active, verdict.accepted, 0))
        token = torch.where(active, verdict.anchor, token)
        start = start + counts[-1]
    return torch.stack(anchors, 1), torch.stack(counts, 1)


def _padded(anchor: torch.Tensor, accepted: torch.Tensor, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Both with ``steps`` columns, so that batches can be joined."""
    more = (0, steps - anchor.shape[1])
    return torch.nn.functional.pad(anchor, more), torch.nn.functional.pad(accepted, more)


def _cache(module: Target | Drafter, rows: int, longest: int) -> torch.Tensor:
    """K and V, ``[layers, 2, rows, longest, kv_heads, head_dim]``."""
    config, weight = module.config, next(module.parameters())
    shape = (config.layers, 2, rows, longest, config.kv_heads, config.head_dim)
    return torch.zeros(shape, dtype=weight.dtype, device=weight.device)


def _prefill(target: Target, prompts: torch.Tensor, cache: torch.Tensor) -> None:
    """K and V of the prompts, layer by layer."""
    rows, length = prompts.shape
    cos, sin = target.rotary.at(torch.arange(length, device=prompts.device).repeat(rows))
    x = target.embed(prompts.flatten())
    passes = Passes()
    for layer, kv in zip(target.stack, cache, strict=True):
        _, k, v = layer.project(x, cos, sin)
        kv[0, :, :length], kv[1, :, :length] = k.unflatten(0, (rows, -1)), v.unflatten(0, (rows, -1))
        x = passes.causal(layer, x, cos, sin, rows)


def _fold(
    drafter: Drafter, features: torch.Tensor, position: torch.Tensor, row: torch.Tensor, cache: torch.Tensor
) -> None:
    """Context rows of ``features`` ``[rows * tokens, taps * hidden]`` at ``position`` ``[rows, tokens]``."""
    fused = drafter.hidden_norm(drafter.fc(features))
    cos, sin = drafter.rotary.at(position.flatten())
    for layer, kv in zip(drafter.stack, cache, strict=True):
        for half, part in zip(kv, context_kv(layer, fused, cos, sin), strict=True):
            half[row, position] = part.unflatten(0, position.shape)


def _verify(
    target: Target, tokens: torch.Tensor, position: torch.Tensor, row: torch.Tensor, cache: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits ``[rows, 1 + K, vocabulary]`` and features ``[rows * (1 + K), taps * hidden]`` of verify rows."""
    cos, sin = target.rotary.at(position.flatten())
    seen = torch.arange(cache.shape[3], device=tokens.device) <= position[..., None]
    x = target.embed(tokens.flatten())
    tapped = []
    for number, (layer, kv) in enumerate(zip(target.stack, cache, strict=True)):
        q, k, v = (part.unflatten(0, tokens.shape) for part in layer.project(x, cos, sin))
        kv[0][row, position], kv[1][row, position] = k, v
        (x,) = layer.finish(x, attend(q, kv[0], kv[1], seen).flatten(0, 1))
        if number in target.taps:
            tapped.append(x)
    (logits,) = target.head(target.model.norm(x))
    return logits.unflatten(0, tokens.shape), torch.cat(tapped, -1)


def _draft(
    target: Target, drafter: Drafter, anchor: torch.Tensor, position: torch.Tensor, cache: torch.Tensor
) -> torch.Tensor:
    """Greedy drafts int64 ``[rows, K]`` behind anchors at ``position[:, 0]``."""
    blocks = drafter.block_tokens(anchor)
    cos, sin = drafter.rotary.at(position.flatten())
    key = torch.arange(cache.shape[3], device=anchor.device)
    seen = (key < position[:, :1, None]) & (position[..., None] - key < window_of(drafter))
    seen = torch.cat([seen, seen.new_ones(*position.shape, position.shape[1])], 2)
    x = target.embed(blocks)
    for layer, kv in zip(drafter.stack, cache, strict=True):
        q, k, v = (part.unflatten(0, position.shape) for part in layer.project(x, cos, sin))
        out = attend(q, torch.cat([kv[0], k], 1), torch.cat([kv[1], v], 1), seen)
        (x,) = layer.finish(x, out.flatten(0, 1))
    drafted = x.unflatten(0, position.shape)[:, drafter.config.logits_start :]
    (logits,) = target.head(drafter.norm(drafted))
    return logits.argmax(-1)
