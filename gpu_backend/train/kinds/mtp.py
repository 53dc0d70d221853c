"""MTP: a chain of D modules that draft a token each; all cells of a sequence at once, module by module."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gpu_backend.modules.chain import Mtp
from gpu_backend.modules.config import DrafterConfig
from gpu_backend.modules.target import Target
from gpu_backend.modules.tier0 import chain_for
from gpu_backend.train.kinds.base import Passes, Slots
from gpu_backend.train.kinds.chain import ChainContext, begin_chain, rotation_at, seen_by_target
from gpu_backend.train.recipe import Recipe


class MtpChain:
    """The kind."""

    name = "mtp"

    def joined(self, recipe: Recipe) -> int:
        """It attends to everything before, so rows are as long as contexts will be."""
        return recipe.joined

    def config(self, recipe: Recipe) -> DrafterConfig:
        """As many modules as the recipe says, each a layer of the target's heads."""
        target = replace(recipe.target, intermediate=recipe.mtp_intermediate)
        return chain_for(target, self.name, drafts=recipe.depth, depth=recipe.depth)

    def module(self, config: DrafterConfig) -> Mtp:
        """A drafter without weights."""
        return Mtp(config)

    def begin(self, module: Mtp, target: Target, folder: Path, seed: int) -> dict[str, Any]:
        """Weights by chance; the norms ahead of the head are the target's."""
        norms = [module.module(number).shared_head.norm.weight for number in range(module.config.depth)]
        begin_chain(module, norms, target, seed)
        return {}

    def slots(self, target: Target, module: Mtp, ids: torch.Tensor, own: int, recipe: Recipe, passes: Passes) -> Slots:
        """The drafts behind every other position: ``[rows, positions, D]``."""
        (rows, length), depth, device = ids.shape, module.config.depth, ids.device
        span, position = slice(1, length - 1 - depth, 2), torch.arange(length, device=device)
        grid = position[span]
        behind = grid[:, None] + 1 + torch.arange(depth, device=device)  # the tokens whose successors are drafted
        features, wanted, embedded = seen_by_target(target, ids, behind, passes)
        rotation = rotation_at(module, position, rows)
        state, states = module.fuse(features), []
        for number, layer in enumerate(module.stack):
            ahead = embedded.roll(-1 - number, 1).flatten(0, 1)  # the last cells are unused
            state = passes.causal(layer, module.enter(number, ahead, state), *rotation, rows)
            states.append(module.normed(number, state.unflatten(0, (rows, length))[:, span]))
        return Slots(torch.stack(states, 2), target.head_weight, ids[:, behind + 1], wanted)

    def context(self, target: Target, module: Mtp, rows: int, longest: int) -> ChainContext:
        """Cells of all modules."""
        return ChainContext(target, module, rows, longest)
