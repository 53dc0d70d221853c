"""Plain greedy decoding and plain speculation of one sequence, which outputs and accept traces are compared with."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gpu_backend.modules.plain import DenseCache, PlainDrafter, PlainTarget
from gpu_backend.modules.verify import Differs, differences, verify


def greedy_plain(target: PlainTarget, prompt: Sequence[int], count: int) -> list[int]:
    """The ``count`` greedy tokens behind ``prompt``, one pass each."""
    cache = DenseCache(target.config.layers)
    output: list[int] = []
    feed = list(prompt)
    while len(output) < count:
        logits, _ = target.forward(feed, cache)
        feed = [int(logits[-1].argmax())]
        output += feed
    return output


def lossless(
    target: PlainTarget, prompt: Sequence[int], output: Sequence[int], *, exact: bool = False
) -> list[Differs]:
    """Where ``output`` is not what plain decoding gives behind ``prompt``, in one dense pass over both.

    The weights' dtype names the tolerance, even if ``target`` itself computes in a wider one.
    """
    logits, _ = target.forward([*prompt, *output[:-1]], DenseCache(target.config.layers))
    return differences(logits[len(prompt) - 1 :], output, target.config.dtype, exact=exact)


def cold_context(
    target: PlainTarget, drafter: PlainDrafter, tokens: Sequence[int]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Drafter K and V by layer, ``[tokens, kv_heads, head_dim]``, of ``tokens`` recomputed from nothing (SHADOW).

    A row depends on the target's states at its own position only, so any single row of a pool may be held to these.
    """
    _, features = target.forward(tokens, DenseCache(target.config.layers), drafter.config.taps)
    return drafter.context_rows(features, 0)


def speculate_plain(
    target: PlainTarget, drafter: PlainDrafter, prompt: Sequence[int], count: int, *, hidden: int = 0
) -> tuple[list[int], list[int]]:
    """At least ``count`` greedy tokens by drafting from the prompt's end on, and the tokens committed by each step.

    The first token comes from the prompt's own pass and is in no step. The drafter reads no context below ``hidden``.
    """
    taps = drafter.config.taps
    cache, context = DenseCache(target.config.layers), DenseCache(drafter.config.layers)
    logits, features = target.forward(prompt, cache, taps)
    _append(context, drafter.context_rows(features, 0))
    output, steps = [int(logits[-1].argmax())], []
    while len(output) < count:
        drafts = drafter.block(output[-1], context, target, hidden).argmax(-1)
        start = cache.length
        logits, features = target.forward([output[-1], *drafts.tolist()], cache, taps)
        verdict = verify(logits[None], drafts[None])
        accepted = int(verdict.accepted)
        output += verdict.choice[0, :accepted].tolist()
        steps.append(accepted)
        _append(context, drafter.context_rows(features[:accepted], start))
        _cut(cache, start + accepted)
    return output, steps


def _append(context: DenseCache, rows: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for layer, (k, v) in enumerate(rows):
        context.put(layer, *context.extended(layer, k, v))


def _cut(cache: DenseCache, length: int) -> None:
    for layer, (k, v) in enumerate(zip(cache.k, cache.v, strict=True)):
        assert k is not None and v is not None
        cache.put(layer, k[:length], v[:length])
