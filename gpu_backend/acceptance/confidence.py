"""What a drafter's confidence head said of drafts beside what became of them, slot by slot, summed on the device."""

from __future__ import annotations

from collections.abc import Iterable

import torch


class Confidence:
    """``told`` float32 ``[slots, K]``: chances of the drafts that a slot holds, NaN where nobody told them.

    ``sums`` float64 ``[3, K]``: how often each draft was tried (all before it were accepted), the sum of its chances
    then, and how often it was accepted.
    """

    def __init__(self, slots: int, drafts: int, device: torch.device) -> None:
        self.told = torch.full((slots, drafts), float("nan"), device=device)
        self.sums = torch.zeros((3, drafts), dtype=torch.float64, device=device)
        self._place = torch.arange(drafts, device=device)

    def forget(self, slot: int) -> None:
        """A slot is another request's now."""
        self.told[slot].fill_(float("nan"))

    def hear(self, slot: torch.Tensor, chance: torch.Tensor) -> None:
        """The drafts of row slots int64 ``[rows]`` have chances ``[rows, K]``."""
        self.told[slot] = chance

    def judge(self, slot: torch.Tensor, committed: torch.Tensor, real: torch.Tensor | None = None) -> None:
        """Verify rows of slots ``slot`` committed so many tokens int64 ``[rows]``; others than ``real`` (bool
        ``[rows]``) verified placeholders. Nothing is read back."""
        chance, accepted = self.told[slot], committed[:, None] - 1
        tried = (accepted >= self._place) & chance.isfinite()
        if real is not None:
            tried = tried & real[:, None]
        self.sums += torch.stack([
            tried.double(), torch.where(tried, chance, 0).double(), (tried & (accepted > self._place)).double(),
        ]).sum(1)  # fmt: skip


def table(found: Iterable[Confidence]) -> dict[str, list[float | int]] | None:
    """How well chances foretold acceptance, over all of ``found``: by slot how often a draft was ``tried``, its mean
    ``chance`` and the share ``accepted``; None if none was tried."""
    sums = [one.sums.cpu() for one in found]
    if not sums:
        return None
    tried, chance, accepted = torch.stack(sums).sum(0).tolist()
    if not tried[0]:
        return None
    return {
        "tried": [int(count) for count in tried],
        "chance": [round(part / count, 4) if count else 0.0 for part, count in zip(chance, tried, strict=True)],
        "accepted": [round(part / count, 4) if count else 0.0 for part, count in zip(accepted, tried, strict=True)],
    }
