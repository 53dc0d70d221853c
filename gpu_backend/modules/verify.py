"""Greedy acceptance on the device, and what LOSSLESS means where arithmetic rounds.

A verify row holds the anchor and K drafts. The longest run of drafts that the target's own choice agrees with is
accepted, and the choice behind it, the bonus, is committed as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(slots=True)
class Verified:
    """By row: ``accepted`` int64 ``[rows]`` tokens committed, 1 .. 1 + K; ``choice`` int64 ``[rows, 1 + K]``.

    The first ``accepted`` choices are the committed tokens, the last of them is the next ``anchor`` ``[rows]``.
    """

    accepted: torch.Tensor
    choice: torch.Tensor
    anchor: torch.Tensor


def verify(logits: torch.Tensor, drafts: torch.Tensor) -> Verified:
    """Greedy acceptance of ``drafts`` ``[rows, K]`` by target logits ``[rows, 1 + K, vocabulary]``; reads nothing back.

    Of equal logits the smaller token id is chosen.
    """
    choice = logits.argmax(-1)
    agreed = (drafts == choice[:, :-1]).long().cumprod(-1)
    accepted = agreed.sum(-1) + 1
    return Verified(accepted, choice, choice.gather(1, accepted[:, None] - 1)[:, 0])


# Two logits are tied if they differ by no more than this share of the largest magnitude in their row. Logits of two
# runs of the same float32 weights differ by about 2^-20 of it and of bfloat16 weights by about 2^-6 (measured, see
# test_modules_lossless); a choice between tied logits may fall either way.
TIED = {torch.float64: 2.0**-40, torch.float32: 2.0**-17, torch.bfloat16: 2.0**-5, torch.float16: 2.0**-8}


@dataclass(frozen=True, slots=True)
class Differs:
    """One output token that plain decoding would not have chosen. ``behind``: by how much its logit is smaller."""

    index: int
    found: int
    wanted: int
    behind: float
    tied: bool


def differences(
    logits: torch.Tensor, output: Sequence[int], dtype: torch.dtype, *, exact: bool = False,
    noise: torch.Tensor | None = None,
) -> list[Differs]:  # fmt: skip
    """Tokens of ``output`` that are not the greedy choice of plain ``logits`` ``[outputs, vocabulary]``.

    With ``noise`` of that shape, in logits, the choice is that of the sum: a sampled output, by draws that are known.

    Row ``i`` are the logits behind prompt and ``output[:i]``: plain decoding is asked about the output as it is, so
    that what follows a tie is judged by itself. A difference is ``tied`` if it is within ``TIED`` of ``dtype``;
    in ``exact`` mode nothing is. LOSSLESS holds if every difference is tied.
    """
    found: list[Differs] = []
    wide = logits.double()
    told = wide if noise is None else wide + noise
    choice = told.argmax(-1).tolist()
    for index, (token, wanted) in enumerate(zip(output, choice, strict=True)):
        if token == wanted:
            continue
        behind = float(told[index, wanted] - told[index, token])
        allowed = 0.0 if exact else TIED[dtype] * float(wide[index].abs().max())
        found.append(Differs(index, token, wanted, behind, not exact and behind <= allowed))
    return found
