"""Acceptance of the trained pairs on held-out prompts, in both timelines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from gpu_backend.acceptance.metrics import LENGTHS, Measured
from gpu_backend.modules.loader import load_pair, target_config_of
from gpu_backend.shipped.card import DRAFTERS
from gpu_backend.train.files import PROGRESS, TARGET, TOKENS, read_json, read_prompts, recover
from gpu_backend.train.fit import target_fits, tokens_fit
from gpu_backend.train.kinds import KINDS
from gpu_backend.train.recipe import Recipe
from gpu_backend.train.session import Say
from gpu_backend.train.speculation import measure
from gpu_backend.train.tokens import PROMPTS
from scenarios.errors import InputError

TIMELINES = {"immediate": 0, "seed": 1}  # steps of placeholders behind the prefill


def evaluate(
    folder: Path, recipe: Recipe, device: torch.device, say: Say, generated: int | None = None
) -> dict[str, Any]:  # fmt: skip
    """Acceptance of every drafter in ``folder`` over the first so many generated tokens, the recipe's unless said,
    greedy.

    The figures of :class:`gpu_backend.acceptance.metrics.Measured` by kind: of timeline ``immediate``, which the
    weights are trained for, and under ``seed`` of the other one. An acceptance length over more tokens is not told.
    """
    prompts = read_prompts(folder / TOKENS / PROMPTS)
    if not prompts:
        problem = f"expected prompts of {recipe.eval_prompt} tokens, found none: texts held out are shorter"
        raise InputError(str(folder / TOKENS / PROMPTS), 0, "", problem)
    if len({len(prompt["ids"]) for prompt in prompts}) > 1:
        raise InputError(str(folder / TOKENS / PROMPTS), 0, "", "expected prompts of one length")
    tokens_fit(folder, recipe)
    recover(folder / TARGET)
    read_json(folder / TARGET / PROGRESS, TARGET)
    target_fits(folder, target_config_of(folder / TARGET), recipe)
    ids = torch.tensor([prompt["ids"] for prompt in prompts], device=device)
    found, generated = {}, generated or recipe.eval_tokens
    for kind in trained(folder):
        target, drafter = load_pair(folder / TARGET, folder / DRAFTERS[kind], device)
        tables = {
            name: _figures(measure(target, drafter, ids, generated, placeholders=placeholders), generated)
            for name, placeholders in TIMELINES.items()
        }
        found[kind] = {"drafts": drafter.config.drafts} | tables["immediate"] | {"seed": tables["seed"]}
        say(f"evaluate: {kind}, AL16 {found[kind]['AL16']:g}")
    return {"prompts": len(prompts), "prompt_tokens": ids.shape[1], "drafters": found}


def trained(folder: Path) -> list[str]:
    """Kinds whose drafters are in ``folder``; InputError if there is none."""
    for kind in KINDS:
        recover(folder / DRAFTERS[kind])
    found = [kind for kind in KINDS if (folder / DRAFTERS[kind] / PROGRESS).exists()]
    if not found:
        read_json(folder / DRAFTERS["dflash"] / PROGRESS, "drafter")
    return found


def _figures(measured: Measured, generated: int) -> dict[str, Any]:
    table = measured.table()
    longer = {f"AL{length}{end}" for length in LENGTHS if length > generated for end in ("", "_request_mean")}
    return {name: value for name, value in table.items() if name not in longer | {"requests", "prefilled_tokens"}}
