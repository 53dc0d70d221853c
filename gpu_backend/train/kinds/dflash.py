"""DFlash: K slots of one block behind the anchor, at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from gpu_backend.modules.config import DrafterConfig
from gpu_backend.modules.drafter import Drafter
from gpu_backend.modules.markov import draft_slots
from gpu_backend.modules.target import Target
from gpu_backend.train.dense import (
    KeyValues,
    Passes,
    anchors_of,
    attend,
    context_kv,
    new_cache,
    run_blocks,
    run_target,
    window_of,
)
from gpu_backend.train.kinds.base import Choose, Ran, Slots
from gpu_backend.train.optimiser import start
from gpu_backend.train.paths import greedy_paths
from gpu_backend.train.recipe import Recipe


class Dflash:
    """The kind."""

    name = "dflash"

    def joined(self, recipe: Recipe) -> int:
        """A row is a sequence: a window is far shorter."""
        return 1

    def config(self, recipe: Recipe) -> DrafterConfig:
        """The recipe's own."""
        return recipe.drafter

    def module(self, config: DrafterConfig) -> Drafter:
        """A drafter without weights."""
        return Drafter(config)

    def begin(self, module: Drafter, target: Target, folder: Path, seed: int) -> dict[str, Any]:
        """Weights by chance; the last norm is the target's."""
        start(module, module.config.layers, seed)
        with torch.no_grad():
            module.norm.weight.copy_(target.model.norm.weight)
        return {}

    def slots(
        self, target: Target, module: Drafter, ids: torch.Tensor, own: int, recipe: Recipe, passes: Passes
    ) -> Slots:
        """The blocks of every anchor, ``[rows, anchors, K]``; in raw text before what the target would write there."""
        config, (rows, length) = module.config, ids.shape
        anchor = anchors_of(module, length, recipe.stride, ids.device)
        before = anchor[:, None] + torch.arange(config.drafts, device=ids.device)  # the tokens before each slot
        kept: list[KeyValues] | None = [] if recipe.paths and own < rows else None
        with torch.no_grad():
            states, features = run_target(target, ids, passes, kept)
            states = states.unflatten(0, (rows, length))
            first = rows if kept is None else own  # of the rows with paths
            (wanted,) = target.head(target.model.norm(states[:first, before]))
            labels = ids[:first, before + 1]
            if kept is not None:
                pairs = [(k[own:], v[own:]) for k, v in kept]
                path, logits = greedy_paths(target, states[own:, anchor], pairs, anchor, config.drafts, passes)
                labels, wanted = torch.cat([labels, path]), torch.cat([wanted, logits])
            anchors = ids[:, anchor, None]
            masks = anchors.new_full((1, 1, config.block - 1), config.mask_token).expand(*anchors.shape[:2], -1)
            embedded = target.embed(torch.cat([anchors, masks], -1)).to(features.dtype)
        hidden = run_blocks(module, features, embedded, rows, recipe.stride, passes)[:, :, config.logits_start :]
        hidden, head = self.biased(module, hidden, target.head_weight, torch.cat([anchors, labels[..., :-1]], -1))
        return Slots(hidden, head, labels, wanted)

    def biased(
        self, module: Drafter, hidden: torch.Tensor, head: torch.Tensor, previous: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """States and the head of slots behind known tokens ``previous`` ``[rows, anchors, K]``: without a bias."""
        return hidden, head

    def context(self, target: Target, module: Drafter, rows: int, longest: int) -> BlockContext:
        """Context rows of every layer."""
        return BlockContext(target, module, rows, longest)


class BlockContext:
    """Context rows; blocks attend to them and to themselves."""

    def __init__(self, target: Target, drafter: Drafter, rows: int, longest: int) -> None:
        self.target, self.drafter = target, drafter
        self.cache = new_cache(drafter, rows, longest)
        self.row = torch.arange(rows, device=self.cache.device)[:, None]

    def fold(self, ran: Ran) -> None:
        """Context rows of features."""
        drafter = self.drafter
        fused = drafter.hidden_norm(drafter.fc(ran.features))
        cos, sin = drafter.rotary.at(ran.position.flatten())
        for layer, kv in zip(drafter.stack, self.cache, strict=True):
            for half, part in zip(kv, context_kv(layer, fused, cos, sin), strict=True):
                half[self.row, ran.position] = part.unflatten(0, ran.position.shape)

    def draft(
        self, anchor: torch.Tensor, position: torch.Tensor, choose: Choose
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """One pass over a block a row; a Markov head then goes from slot to slot."""
        drafter = self.drafter
        place = position[:, None] + torch.arange(drafter.config.block, device=anchor.device)
        cos, sin = drafter.rotary.at(place.flatten())
        key = torch.arange(self.cache.shape[3], device=anchor.device)
        seen = (key < place[:, :1, None]) & (place[..., None] - key < window_of(drafter))
        seen = torch.cat([seen, seen.new_ones(*place.shape, place.shape[1])], 2)
        x = self.target.embed(drafter.block_tokens(anchor))
        for layer, kv in zip(drafter.stack, self.cache, strict=True):
            q, k, v = (part.unflatten(0, place.shape) for part in layer.project(x, cos, sin))
            out = attend(q, torch.cat([kv[0], k], 1), torch.cat([kv[1], v], 1), seen)
            (x,) = layer.finish(x, out.flatten(0, 1))
        hidden = drafter.norm(x.unflatten(0, place.shape)[:, drafter.config.logits_start :])
        (logits,) = self.target.head(hidden)
        drafted = draft_slots(drafter.markov_head, hidden, logits, anchor, choose)
        return drafted.token, drafted.offered
