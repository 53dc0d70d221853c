"""What a folder holds has to be of the size that is asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from gpu_backend.modules.config import TargetConfig
from gpu_backend.train.files import TARGET, TOKENS, read_json
from gpu_backend.train.recipe import Recipe
from scenarios.errors import InputError

INFO = "tokens.json"
ON_A_CPU = 1 << 16  # tokens of a step of the target's training


def tokens_fit(folder: Path, recipe: Recipe) -> None:
    """``InputError`` unless the tokens in ``folder`` were made with the recipe's vocabulary."""
    path = folder / TOKENS / INFO
    info = read_json(path, "tokenizer")
    vocabulary_fits(path, info.get("vocabulary") if isinstance(info, dict) else None, recipe)


def vocabulary_fits(path: Path, found: object, recipe: Recipe) -> None:
    """``InputError`` unless ``found``, of the file ``path``, is the recipe's vocabulary."""
    if found != recipe.target.vocabulary:
        problem = f"expected {recipe.target.vocabulary} ids, as this --size has, found {found}"
        raise InputError(str(path), 0, "vocabulary", problem)


def device_fits(device: torch.device, recipe: Recipe) -> None:
    """``InputError`` where a step of the recipe is too large for a CPU's memory: its logits alone take gigabytes."""
    tokens = recipe.target_rows * recipe.target_length
    if device.type == "cpu" and tokens > ON_A_CPU:
        problem = f"expected a GPU for steps of {tokens:,} tokens, found the CPU, on which --size tiny trains"
        raise InputError("device", 0, "", problem)


def target_fits(folder: Path, found: TargetConfig, recipe: Recipe) -> None:
    """``InputError`` unless the target in ``folder`` has the recipe's shape; how windows are written is its own."""
    if found != replace(recipe.target, windows=found.windows):
        problem = "expected the shape of this --size, found another"
        raise InputError(str(folder / TARGET), 0, "config.json", problem)
