"""EAGLE3: one layer that drafts K tokens by itself, trained on states of its own (arXiv 2503.01840).

Training-time test: a batch runs the cells of all positions once, from what the target saw. Then, at a grid of
positions, each the last one known, K - 1 further cells follow one another: the hidden state of each is the layer's own,
its token the one that stands there. Such a cell attends the first ones up to its position of the grid, and those of its
own chain.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gpu_backend.modules.chain import Eagle3
from gpu_backend.modules.config import DrafterConfig
from gpu_backend.modules.target import Target
from gpu_backend.modules.tier0 import chain_for
from gpu_backend.train.kinds.base import Passes, Slots
from gpu_backend.train.kinds.chain import ChainContext, begin_chain, rotation_at, seen_by_target
from gpu_backend.train.recipe import Recipe


class Eagle:
    """The kind."""

    name = "eagle3"

    def joined(self, recipe: Recipe) -> int:
        """It attends to everything before, so rows are as long as contexts will be."""
        return recipe.joined

    def config(self, recipe: Recipe) -> DrafterConfig:
        """A layer of the target's heads that reads DFlash's taps and drafts as many tokens."""
        target = replace(recipe.target, intermediate=recipe.eagle_intermediate)
        return chain_for(target, self.name, drafts=recipe.drafter.drafts, taps=recipe.drafter.taps)

    def module(self, config: DrafterConfig) -> Eagle3:
        """A drafter without weights."""
        return Eagle3(config)

    def begin(self, module: Eagle3, target: Target, folder: Path, seed: int) -> dict[str, Any]:
        """Weights by chance; the last norm is the target's."""
        begin_chain(module, [module.norm.weight], target, seed)
        return {}

    def slots(
        self, target: Target, module: Eagle3, ids: torch.Tensor, own: int, recipe: Recipe, passes: Passes
    ) -> Slots:
        """The drafts behind every position of the grid: ``[rows, positions, K]``."""
        (rows, length), drafts, device = ids.shape, module.config.drafts, ids.device
        span = slice(recipe.stride - 1, length - 1 - drafts, recipe.stride)
        position = torch.arange(length, device=device)
        grid = position[span]
        behind = grid[:, None] + 1 + torch.arange(drafts, device=device)  # the tokens whose successors are drafted
        features, wanted, embedded = seen_by_target(target, ids, behind, passes)
        x = module.enter(0, embedded.roll(-1, 1).flatten(0, 1), module.fuse(features))  # the last cell is unused
        state, k, v = passes.cells(module.midlayer, x, *rotation_at(module, position, rows), rows)
        state = state.unflatten(0, (rows, length))[:, span]
        states = [state]
        reached = position <= grid[:, None]
        step = torch.arange(drafts - 1, device=device)
        # They require a gradient from the first step on, so that all steps share one graph.
        mine = [part.new_zeros(rows, len(grid), drafts - 1, *part.shape[2:]).requires_grad_() for part in (k, v)]
        for number in range(drafts - 1):
            x = module.enter(0, embedded[:, grid + (2 + number)].flatten(0, 1), state.flatten(0, 1))
            x, *mine = passes.further(
                module.midlayer, x, *rotation_at(module, grid + 1 + number, rows), k, v, *mine, reached, step - number
            )
            state = x.unflatten(0, (rows, len(grid)))
            states.append(state)
        hidden = module.normed(0, torch.stack(states, 2))
        return Slots(hidden, target.head_weight, ids[:, behind + 1], wanted)

    def context(self, target: Target, module: Eagle3, rows: int, longest: int) -> ChainContext:
        """Cells of the layer."""
        return ChainContext(target, module, rows, longest)
