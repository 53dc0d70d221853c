"""What a target said at every row of a run, so that a share's outputs can be held to those of the whole."""

from __future__ import annotations

from dataclasses import dataclass

import torch

# How far logits of two runs may differ, as a share of their row's largest magnitude. On a CPU shares of two ranks came
# within a fifth of it in float32 and within two fifths in bfloat16.
NEAR = {torch.float32: 2.0**-17, torch.bfloat16: 2.0**-4}
PLACES = 16  # logits kept of each row besides the largest


@dataclass(frozen=True, slots=True)
class Said:
    """One step's rows: ``choice`` int64 ``[n]``, ``logits`` float32 ``[n, 1 + PLACES]`` (the largest first), ``scale``
    float32 ``[n]``, their largest magnitude."""

    step: int
    choice: torch.Tensor
    logits: torch.Tensor
    scale: torch.Tensor

    @classmethod
    def of(cls, step: int, logits: torch.Tensor) -> Said:
        """Of ``logits`` ``[n, vocabulary]``, copied to the host."""
        wide = logits.float()
        top, choice = wide.max(-1)
        place = torch.linspace(0, wide.shape[1] - 1, PLACES, device=wide.device).long()
        kept = torch.cat([top[:, None], wide[:, place]], 1)
        return cls(step, choice.cpu(), kept.cpu(), wide.abs().amax(-1).cpu())


@dataclass(frozen=True, slots=True)
class Beside:
    """Two runs' outputs: ``rows`` compared, ``equal`` choices, ``worst`` difference in units of what is tolerated."""

    rows: int = 0
    equal: int = 0
    worst: float = 0.0
    wrong: str = ""  # the first difference beyond it, in words
    step: int = -1


def beside(found: list[Said], wanted: list[Said], dtype: torch.dtype) -> Beside:
    """Compare two runs step by step. Logits may differ by :data:`NEAR` of their row's largest magnitude.

    A choice may differ between logits that lie that close, and no others.
    """
    rows = equal = 0
    worst = 0.0
    for mine, its in zip(found, wanted, strict=False):
        if mine.step != its.step or mine.logits.shape != its.logits.shape:
            return Beside(rows, equal, worst, "other rows than those of one rank", mine.step)
        allowed = NEAR[dtype] * its.scale.clamp(min=1e-30)
        units = (mine.logits - its.logits).abs().amax(1) / allowed
        units = torch.where(units.isfinite(), units, torch.inf)
        rows, worst = rows + len(units), max(worst, float(units.max()))
        equal += int((mine.choice == its.choice).sum())
        if not worst <= 1:
            row = int(units.argmax())
            text = f"logits of row {row} are {float(units[row]):.3g} times the tolerance from those of one rank"
            return Beside(rows, equal, worst, text, mine.step)
    if len(found) != len(wanted):
        steps = "1 step" if len(found) == 1 else f"{len(found)} steps"
        return Beside(rows, equal, worst, f"{steps}, one rank has {len(wanted)}", -1)
    return Beside(rows, equal, worst)
