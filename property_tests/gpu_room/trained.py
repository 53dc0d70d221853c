"""A pair that was trained, in seconds and by steps: its target knows a language, and its drafter needs the context.

The language: `state, mark, state, mark ..`. A text keeps its mark, and a mark is a permutation that says which state
follows which. So the target is sure of every token, and a drafter can only guess them behind an anchor if it sees what
came before it.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gpu_backend.modules.drafter import Drafter
from gpu_backend.modules.saver import save
from gpu_backend.modules.target import Target
from gpu_backend.train.dense import Passes, run_target
from gpu_backend.train.drafter_stage import loss_behind
from gpu_backend.train.kinds import KINDS
from gpu_backend.train.optimiser import Optimiser, rate_at, start
from gpu_backend.train.recipe import TINY, drafter_of
from gpu_backend.train.target_stage import head_loss

STATES, MARKS, FIRST = 12, 6, 16
TEXT = 240  # tokens of one text of the line that prompts are taken from
STEPS = (90, 60)  # of target and drafter
_TARGET = replace(TINY.target, vocabulary=FIRST + STATES + MARKS, layers=2, positions=256)
RECIPE = replace(
    TINY, target=_TARGET, drafter=drafter_of(_TARGET, (0,), window=16, layers=1, block=4), target_rows=8,
    target_length=48, drafter_rows=8,
)  # fmt: skip


def texts(rows: int, length: int, seed: int) -> np.ndarray:
    """Texts int64 ``[rows, length]`` of random marks and first states."""
    draw = np.random.default_rng(1)
    follows = np.stack([draw.permutation(STATES) for _ in range(MARKS)])
    draw = np.random.default_rng([2, seed])
    mark, state = draw.integers(MARKS, size=rows), draw.integers(STATES, size=rows)
    found = np.empty((rows, length + 1), dtype=np.int64)
    for place in range(0, length, 2):
        found[:, place], found[:, place + 1] = FIRST + state, FIRST + STATES + mark
        state = follows[mark, state]
    return found[:, :length]


def shared(folder: Path) -> Path:
    """The pair in ``folder``, where whoever comes first leaves it for the other processes of a run."""
    if not folder.exists():
        own = folder.with_name(f"{folder.name}-{os.getpid()}")
        train(own)
        try:
            own.rename(folder)
        except OSError:  # another one was as fast
            shutil.rmtree(own)
    return folder


def train(folder: Path) -> Path:
    """Leave a pair in ``folder``, and held-out text beside it."""
    config, passes = RECIPE.drafter, Passes()
    target, drafter = Target(RECIPE.target, config.taps), Drafter(config)
    start(target, RECIPE.target.layers, 3)
    optimiser = Optimiser(target, RECIPE.muon, RECIPE.target_adam)
    for step in range(STEPS[0]):
        ids = torch.from_numpy(texts(RECIPE.target_rows, RECIPE.target_length + 1, step))
        states, _ = run_target(target, ids[:, :-1], passes)
        loss = head_loss(target, states, ids[:, 1:].flatten())
        loss.backward()
        optimiser.step(rate_at(step / STEPS[0], RECIPE.target_shape))
    target.requires_grad_(False)
    start(drafter, config.layers, 4)
    drafter.norm.weight.data.copy_(target.model.norm.weight)
    optimiser = Optimiser(drafter, RECIPE.muon, RECIPE.drafter_adam)
    for step in range(STEPS[1]):
        ids = torch.from_numpy(texts(RECIPE.drafter_rows, 48, 10_000 + step))
        slots = KINDS["dflash"].slots(target, drafter, ids, len(ids), RECIPE, passes)
        loss, _, _ = loss_behind(*slots, RECIPE.distillation, RECIPE.slots)
        loss.backward()
        optimiser.step(rate_at(step / STEPS[1], RECIPE.drafter_shape))
    save(folder / "target", target, RECIPE.target)
    save(folder / "drafter", drafter, config)
    (folder / "tokens").mkdir(parents=True)
    held = [{"name": str(row), "ids": ids.tolist()} for row, ids in enumerate(texts(40, TEXT, 99_999))]
    (folder / "tokens" / "prompts.json").write_text(json.dumps(held))
    return folder
