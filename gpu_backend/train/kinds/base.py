"""What the training and the evaluation ask of a kind of drafter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from gpu_backend.modules.config import DrafterConfig
from gpu_backend.modules.target import Target
from gpu_backend.train.dense import Passes
from gpu_backend.train.recipe import Recipe


class Slots(NamedTuple):
    """What the loss of a batch is made of, over any leading axes: K slots behind true tokens.

    ``hidden`` ``[..., K, inputs]`` times ``head`` ``[vocabulary, inputs]`` are the drafter's logits, ``labels`` int64
    ``[..., K]`` the tokens that stand there, ``wanted`` ``[..., K, vocabulary]`` the target's logits.
    """

    hidden: torch.Tensor
    head: torch.Tensor
    labels: torch.Tensor
    wanted: torch.Tensor


class Ran(NamedTuple):
    """``n`` tokens a row that went through the target, at ``position`` int64 ``[rows, n]``.

    ``features`` ``[rows * n, taps * hidden]`` stand behind the layers that are tapped, ``following`` int64
    ``[rows, n]`` are the tokens behind each. A row's first tokens stay, as many as it commits; the others were
    rejected, and what is stored of them lies where the next ones write.
    """

    features: torch.Tensor
    position: torch.Tensor
    following: torch.Tensor


# As :data:`gpu_backend.modules.markov.Choose`.
Choose = Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor | None]]


class Context(Protocol):
    """Dense K/V of a drafter, many sequences at once."""

    def fold(self, ran: Ran) -> None:
        """Take up tokens that the target ran."""
        ...

    def draft(
        self, anchor: torch.Tensor, position: torch.Tensor, choose: Choose
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Drafts int64 ``[rows, K]`` behind ``anchor`` int64 ``[rows]`` at ``position``, the token behind the last one
        folded; and what they were drawn from, as ``choose`` says."""
        ...


class Kind(Protocol):
    """A kind of drafter."""

    name: str

    def joined(self, recipe: Recipe) -> int:
        """How many of the target's own sequences stand behind each other in one row of a batch."""
        ...

    def config(self, recipe: Recipe) -> DrafterConfig:
        """Shape of the recipe's drafter of this kind."""
        ...

    def module(self, config: DrafterConfig) -> Any:
        """A drafter without weights; its ``config`` is ``config``."""
        ...

    def begin(self, module: Any, target: Target, folder: Path, seed: int) -> dict[str, Any]:
        """Give a new drafter its first weights; returns what is to be told of them. ``folder`` is the training's."""
        ...

    def slots(self, target: Target, module: Any, ids: torch.Tensor, own: int, recipe: Recipe, passes: Passes) -> Slots:
        """Slots of a batch of whole sequences, int64 ``[rows, length]``: the first ``own`` rows are the target's own
        writing, the others raw text."""
        ...

    def context(self, target: Target, module: Any, rows: int, longest: int) -> Context:
        """Room for ``rows`` sequences of at most ``longest`` tokens."""
        ...
