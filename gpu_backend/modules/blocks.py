"""Row blocks: what makes the bits of a row independent of how many rows are computed beside it.

A matrix library picks its kernel, and a reduction its order, by the number of rows. In blocks of one fixed number of
rows, the last one padded with zeros, every row meets the same kernels always (kernels.md: fixed row padding).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

EXACT_ROWS = {"cpu": 16, "cuda": 64}  # rows of a block; no more than one tile of a matrix kernel, so that the place of
# a row in its block means nothing either


class RowBlocks:
    """Calls a function of row tensors on all rows at once, or on blocks of ``rows`` rows each."""

    def __init__(self, rows: int | None) -> None:
        self.rows = rows

    @classmethod
    def of(cls, device: torch.device | str, *, exact: bool) -> RowBlocks:
        """Blocks as exact mode on ``device`` wants them; without it all rows at once."""
        return cls(EXACT_ROWS[torch.device(device).type] if exact else None)

    def __call__(
        self, function: Callable[..., tuple[torch.Tensor, ...]], *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """``function(*tensors)``; it takes and gives tensors ``[rows, ...]``, each row computed from its own alone."""
        count = len(tensors[0])
        if self.rows is None or not count:
            return function(*tensors)
        parts = []
        for begin in range(0, count, self.rows):
            block = [tensor[begin : begin + self.rows] for tensor in tensors]
            missing = self.rows - len(block[0])
            if missing:
                block = [torch.cat([part, part.new_zeros(missing, *part.shape[1:])]) for part in block]
            parts.append(function(*block))
        joined = (torch.cat(column)[:count] for column in zip(*parts, strict=True))
        return tuple(joined)
