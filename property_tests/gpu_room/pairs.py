"""Targets, drafters and their plain twins for the tests of the modules."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from gpu_backend.modules.config import DrafterConfig, TargetConfig
from gpu_backend.modules.drafter import Drafter
from gpu_backend.modules.drafters import in_blocks
from gpu_backend.modules.own_pages import OwnPages
from gpu_backend.modules.plain import DenseCache, PlainDrafter, PlainTarget
from gpu_backend.modules.target import Target
from gpu_backend.modules.tier0 import TINY, drafter_for, random_pair

# Largest difference from float64, as a share of the largest magnitude there.
NEAR = {torch.float32: 2.0**-17, torch.bfloat16: 2.0**-4}


@dataclass(slots=True)
class Pair:
    """Paged modules and the plain ones of the same weights, which compute in float64."""

    target: Target
    drafter: Drafter
    plain_target: PlainTarget
    plain_drafter: PlainDrafter

    def pages(self, sequences: int = 1, *, page_size: int = 16, longest: int = 160) -> OwnPages:
        """Fresh pages for both."""
        return OwnPages(self.target, self.drafter, sequences, longest, page_size)

    def plain(self, tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and features of ``tokens`` in one dense pass."""
        return self.plain_target.forward(tokens, DenseCache(self.target.config.layers), self.drafter.config.taps)


def make_pair(
    device: torch.device,
    target: TargetConfig = TINY,
    drafter: DrafterConfig | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    exact: bool = False,
    seed: int = 7,
) -> Pair:
    """A pair of tier T0 on ``device``."""
    target = replace(target, dtype=dtype)
    paged, made = random_pair(target, drafter or drafter_for(target, window=20), seed, device, exact=exact)
    drafts = in_blocks(made)
    return Pair(
        paged,
        drafts,
        PlainTarget(target, paged.state_dict(), torch.float64),
        PlainDrafter(drafts.config, drafts.state_dict(), torch.float64),
    )


def prompt(length: int, seed: int = 1, vocabulary: int = TINY.vocabulary) -> list[int]:
    """Random token ids."""
    return torch.randint(0, vocabulary, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def distance(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Largest difference as a share of the largest magnitude of ``wanted``; infinity if anything is not finite."""
    difference = float((found.double() - wanted.double()).abs().max() / wanted.double().abs().max())
    return difference if difference == difference else float("inf")
