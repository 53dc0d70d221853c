"""DSpark: DFlash whose anchor's own slot predicts, with a bias by the token before each slot (a Markov head)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gpu_backend.modules.config import DrafterConfig
from gpu_backend.modules.drafter import Drafter
from gpu_backend.modules.loader import drafter_config_of
from gpu_backend.modules.target import Target
from gpu_backend.modules.weights import read_weights
from gpu_backend.train.files import DRAFTER, PROGRESS, recover
from gpu_backend.train.kinds.dflash import Dflash
from gpu_backend.train.recipe import Recipe


class Dspark(Dflash):
    """The kind."""

    name = "dspark"

    def config(self, recipe: Recipe) -> DrafterConfig:
        """The recipe's DFlash with as many drafts, perhaps fewer layers, and the head."""
        base, layers = recipe.drafter, recipe.dspark_layers
        return replace(
            base, kind=self.name, layers=layers, windows=base.windows[:layers], block=base.drafts, logits_start=0,
            markov_rank=recipe.markov_rank,
        )  # fmt: skip

    def begin(self, module: Drafter, target: Target, folder: Path, seed: int) -> dict[str, Any]:
        """As the DFlash drafter in ``folder``, whose slots stand one further, if there is one; else by chance. The head
        adds nothing yet."""
        told = super().begin(module, target, folder, seed)
        assert module.markov_head is not None
        with torch.no_grad():
            module.markov_head.markov_w2.weight.zero_()
        recover(folder / DRAFTER)
        if not (folder / DRAFTER / PROGRESS).exists():
            return told
        found, own = drafter_config_of(folder / DRAFTER, target.config), module.config
        if found.layers < own.layers or replace(
            own, kind=found.kind, layers=found.layers, windows=found.windows, block=found.block,
            logits_start=found.logits_start, markov_rank=found.markov_rank,
        ) != found:  # fmt: skip
            return told
        weights = read_weights(folder / DRAFTER, Drafter(found).state_dict(), torch.float32)
        names = module.state_dict().keys()
        module.load_state_dict({name: tensor for name, tensor in weights.items() if name in names}, strict=False)
        return told | {
            "began_with": f"layers 0 to {own.layers - 1} of the DFlash drafter, whose slots stand one further"
        }

    def biased(
        self, module: Drafter, hidden: torch.Tensor, head: torch.Tensor, previous: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The embeddings of ``previous`` beside the states, the head's second matrix beside the target's head: one
        product gives logits with their bias."""
        markov = module.markov_head
        assert markov is not None and markov.form == "vanilla"
        read = markov.markov_w1(previous).to(hidden.dtype)
        return torch.cat([hidden, read], -1), torch.cat([head, markov.markov_w2.weight.to(head.dtype)], 1)
