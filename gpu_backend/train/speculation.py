"""Speculation with a trained pair: dense, many sequences at once, in both timelines."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from gpu_backend.acceptance.metrics import Measured, Steps
from gpu_backend.acceptance.rules import Sampling
from gpu_backend.modules.target import Target
from gpu_backend.train.dense import KeyValues, Passes, attend, new_cache, run_target
from gpu_backend.train.kinds import KINDS
from gpu_backend.train.kinds.base import Ran

BATCH = 256


def measure(
    target: Target, drafter: Any, prompts: torch.Tensor, generated: int, *, placeholders: int = 0,
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
    target: Target, drafter: Any, prompts: torch.Tensor, generated: int, *, placeholders: int = 0,
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
    longest = length + generated + 2 * (config.drafts + 1)
    own, context = new_cache(target, rows, longest), KINDS[config.kind].context(target, drafter, rows, longest)
    kept: list[KeyValues] = []
    states, features = run_target(target, prompts, Passes(), kept)
    for kv, pair in zip(own, kept, strict=True):
        for half, part in zip(kv, pair, strict=True):
            half[:, :length] = part
    (logits,) = target.head(target.model.norm(states.unflatten(0, (rows, length))[:, -1]))
    start = torch.full((rows,), length, device=device)
    line = torch.zeros(rows, generated + 2 * (config.drafts + 1), dtype=torch.int64, device=device)
    line[:, 0] = token = rule.token(logits, key, start)
    behind = torch.cat([prompts[:, 1:], token[:, None]], 1)
    context.fold(Ran(features, torch.arange(length, device=device).expand(rows, -1), behind))
    anchors, counts = [], []
    while bool((active := start < length + generated).any()):
        at = torch.minimum(start, torch.tensor(length + generated, device=device))
        drafts, q = context.draft(token, at, lambda logits, first, start=start: rule.draft(logits, key, start, first))
        position = at[:, None] + place
        out, features = _verify(target, torch.cat([token[:, None], drafts], 1), position, row, own)
        real = active if len(counts) >= placeholders else torch.zeros_like(active)
        verdict = rule.verify(out, drafts, key, start, q, real)
        context.fold(Ran(features, position, verdict.choice))  # of rejected drafts, too: the next fold writes there
        anchors.append(start - length)
        counts.append(torch.where(active, verdict.accepted, 0))
        token = torch.where(active, verdict.anchor, token)
        written = position - length + 1
        line[row, written] = torch.where(place < counts[-1][:, None], verdict.choice, line[row, written])
        start = start + counts[-1]
    return torch.stack(anchors, 1), torch.stack(counts, 1), line[:, :generated]


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
