"""Acceptance of a trained pair on held-out prompts: dense, many sequences at once, in both timelines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from gpu_backend.acceptance.metrics import LENGTHS, Measured, Steps
from gpu_backend.acceptance.rules import Sampling
from gpu_backend.modules.drafter import Drafter
from gpu_backend.modules.drafters import in_blocks
from gpu_backend.modules.loader import load_pair, target_config_of
from gpu_backend.modules.target import Target
from gpu_backend.train.dense import Passes, attend, context_kv, run_target, window_of
from gpu_backend.train.files import DRAFTER, PROGRESS, TARGET, TOKENS, read_json, recover
from gpu_backend.train.fit import target_fits, tokens_fit
from gpu_backend.train.recipe import Recipe
from gpu_backend.train.tokens import PROMPTS
from scenarios.errors import InputError

BATCH = 128
TIMELINES = {"immediate": 0, "seed": 1}  # steps of placeholders behind the prefill


def evaluate(folder: Path, recipe: Recipe, device: torch.device, generated: int = LENGTHS[-1]) -> dict[str, Any]:
    """Acceptance of the recipe's pair in ``folder`` over the first so many generated tokens, greedy.

    The figures of :class:`gpu_backend.acceptance.metrics.Measured`: of timeline ``immediate``, which the weights are
    trained for, and under ``seed`` of the other one. An acceptance length over more tokens is not told.
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
    target, loaded = load_pair(folder / TARGET, folder / DRAFTER, device)
    drafter = in_blocks(loaded)
    ids = torch.tensor([prompt["ids"] for prompt in prompts], device=device)
    tables = {
        name: _figures(measure(target, drafter, ids, generated, placeholders=placeholders), generated)
        for name, placeholders in TIMELINES.items()
    }
    head = {"prompts": len(prompts), "prompt_tokens": ids.shape[1], "drafts": drafter.config.drafts}
    return head | tables["immediate"] | {"seed": tables["seed"]}


def _figures(measured: Measured, generated: int) -> dict[str, Any]:
    table = measured.table()
    longer = {f"AL{length}{end}" for length in LENGTHS if length > generated for end in ("", "_request_mean")}
    return {name: value for name, value in table.items() if name not in longer | {"requests", "prefilled_tokens"}}


def measure(
    target: Target, drafter: Drafter, prompts: torch.Tensor, generated: int, *, placeholders: int = 0,
    sampling: Sampling | None = None, requests: torch.Tensor | None = None,
) -> Measured:  # fmt: skip
    """What the pair commits behind ``prompts`` int64 ``[requests, length]``, all of them prefilled.

    ``requests`` int64 ``[requests]`` are the keys of their draws, their places by default.
    """
    keys = torch.arange(len(prompts), device=prompts.device) if requests is None else requests
    parts = [
        speculate(target, drafter, part, generated, placeholders=placeholders, sampling=sampling, requests=key)
        for part, key in zip(prompts.split(BATCH), keys.split(BATCH), strict=True)
    ]
    most = max(anchor.shape[1] for anchor, _, _ in parts)
    anchor, committed = (
        torch.cat([F.pad(part[which], (0, most - part[which].shape[1])) for part in parts]).cpu().numpy()
        for which in (0, 1)
    )
    outputs = tuple(tuple(row) for _, _, tokens in parts for row in tokens.tolist())
    prefilled = np.full(len(prompts), prompts.shape[1])
    return Measured(
        Steps.dense(anchor, committed, placeholders=placeholders), outputs, {"target": prefilled, "draft": prefilled},
        tuple(range(len(prompts))), drafter.config.drafts,
    )  # fmt: skip


@torch.no_grad()
def speculate(
    target: Target, drafter: Drafter, prompts: torch.Tensor, generated: int, *, placeholders: int = 0,
    sampling: Sampling | None = None, requests: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Anchors (counted from the first generated token) and committed tokens by row and step, ``[rows, steps]`` each,
    and the output, ``[rows, generated]``.

    A row that has ``generated`` tokens behind that of the prefill rests: its steps commit 0. The first ``placeholders``
    steps verify placeholders and commit one token.
    """
    config, (rows, length), device = drafter.config, prompts.shape, prompts.device
    rule = sampling or Sampling()
    key = torch.arange(rows, device=device) if requests is None else requests
    row = torch.arange(rows, device=device)[:, None]
    place = torch.arange(config.drafts + 1, device=device)
    block = torch.arange(config.block, device=device)
    caches = [_cache(module, rows, length + generated + 2 * config.block) for module in (target, drafter)]
    own, context = caches
    states, features = run_target(target, prompts, Passes())
    _prefill(target, prompts, own)
    _fold(drafter, features, torch.arange(length, device=device).expand(rows, -1), row, context)
    (logits,) = target.head(target.model.norm(states.unflatten(0, (rows, length))[:, -1]))
    start = torch.full((rows,), length, device=device)
    line = torch.zeros(rows, generated + 2 * config.block, dtype=torch.int64, device=device)
    line[:, 0] = token = rule.token(logits, key, start)
    anchors, counts = [], []
    while bool((active := start < length + generated).any()):
        at = torch.minimum(start, torch.tensor(length + generated, device=device))[:, None]
        offers = _draft(target, drafter, token, at + block, context)
        drafts, q = rule.draft(offers, key, start)
        out, features = _verify(target, torch.cat([token[:, None], drafts], 1), at + place, row, own)
        real = active if len(counts) >= placeholders else torch.zeros_like(active)
        verdict = rule.verify(out, drafts, key, start, q, real)
        _fold(drafter, features, at + place, row, context)  # rows of rejected drafts lie where the next fold writes
        anchors.append(start - length)
        counts.append(torch.where(active, verdict.accepted, 0))
        token = torch.where(active, verdict.anchor, token)
        behind = at - length + 1 + place
        line[row, behind] = torch.where(place < counts[-1][:, None], verdict.choice, line[row, behind])
        start = start + counts[-1]
    return torch.stack(anchors, 1), torch.stack(counts, 1), line[:, :generated]


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
    """Logits of drafts ``[rows, K, vocabulary]`` behind anchors at ``position[:, 0]``."""
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
    return logits
