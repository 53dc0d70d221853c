"""What one pass of verify rows gave, on the device and row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from model.plan import GenerationRow


@dataclass(slots=True)
class Evidence:
    """What a rule judged one row's drafts by: int64 ``drafts`` ``[K]``, the target's ``logits`` ``[1 + K, vocabulary]``
    and the drafter's ``proposal`` ``[K, vocabulary]``."""

    drafts: torch.Tensor
    logits: torch.Tensor
    proposal: torch.Tensor


@dataclass(slots=True)
class Ran:
    """What one generation row's pass gave: tokens that target and drafter agreed on, and the target's choices."""

    row: GenerationRow
    count: int
    choice: list[int]
    start: int  # position of the token that the row began with
    evidence: Evidence | None = None


@dataclass(slots=True)
class Agreed:
    """``numbers`` int64 ``[rows, 2 + width]``: tokens agreed on, start, choices; ``evidence`` of all rows, where kept.

    In a captured step these tensors are the graph's own: they hold until it runs again.
    """

    numbers: torch.Tensor
    evidence: Evidence | None = None

    def of(self, rows: Sequence[GenerationRow]) -> list[Ran]:
        """The first rows, which are ``rows``; waits for the device."""
        found = []
        kept = self.evidence
        for place, (row, (count, at, *choice)) in enumerate(
            zip(rows, self.numbers[: len(rows)].tolist(), strict=True)
        ):  # fmt: skip
            own = None if kept is None else Evidence(kept.drafts[place], kept.logits[place], kept.proposal[place])
            found.append(Ran(row, count, choice, at, own))
        return found
