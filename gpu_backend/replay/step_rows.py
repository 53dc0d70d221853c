"""The rows of a step as the device is told of them: one small array of the host, one copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_backend.replay.memory import DeviceMemory
from model.plan import ContextRow, GenerationRow

FIELDS = 7


@dataclass(frozen=True, slots=True)
class StepRows:
    """Chunks first, verify rows behind them, padding last; int64 ``[rows]`` each, the flags bool.

    ``start`` and ``chunk`` are of chunks, ``taken`` tokens of each verify row are committed. A padding row names the
    dummies' slot and nobody's ``place``, verifies nothing (``width`` 0) and moves nothing. The host knows ``widest``,
    a bound of the widths, and ``longest``, one of the positions that a row may read.
    """

    slot: torch.Tensor
    start: torch.Tensor
    taken: torch.Tensor
    place: torch.Tensor
    width: torch.Tensor
    drafting: torch.Tensor
    chunk: torch.Tensor
    widest: int
    longest: int

    @classmethod
    def of(cls, told: torch.Tensor, widest: int, longest: int) -> StepRows:
        """The rows in ``told`` int64 ``[FIELDS, rows]``, as :func:`pack` orders them."""
        slot, start, taken, place, width, drafting, chunk = told
        return cls(slot, start, taken, place, width, drafting > 0, chunk > 0, widest, longest)

    def behind(self, chunks: int) -> StepRows:
        """The rows behind the first ``chunks``."""
        if not chunks:
            return self
        fields = (self.slot, self.start, self.taken, self.place, self.width, self.drafting, self.chunk)
        slot, start, taken, place, width, drafting, chunk = (field[chunks:] for field in fields)
        return StepRows(slot, start, taken, place, width, drafting, chunk, self.widest, self.longest)

    def __len__(self) -> int:
        return len(self.slot)


def pack(
    memory: DeviceMemory,
    context: Sequence[ContextRow],
    generation: Sequence[GenerationRow],
    accepted: Sequence[int],
    size: int = 0,
) -> NDArray[np.int64]:
    """Rows of a step, int64 ``[FIELDS, rows]``, padded up to ``size`` rows."""
    chunks, count, place_of = len(context), len(context) + len(generation), memory.rows.place_of
    told = np.zeros((FIELDS, max(size, count)), dtype=np.int64)
    if chunks:
        told[0, :chunks] = [row.slot for row in context]
        told[1, :chunks] = [row.start for row in context]
        told[3, :chunks] = [place_of[row.owner] for row in context]
        told[5, :chunks] = [row.drafts for row in context]
        told[6, :chunks] = 1
    if count > chunks:
        told[0, chunks:count] = [row.slot for row in generation]
        told[2, chunks:count] = accepted
        told[3, chunks:count] = [place_of[row.owner] for row in generation]
        told[4, chunks:count] = [row.width for row in generation]
        told[5, chunks:count] = [row.drafts for row in generation]
    if size > count:
        told[0, count:] = memory.dummy_slot
        told[3, count:] = memory.rows.scratch
        told[6, count:] = 1
    return told


def longest_read(memory: DeviceMemory, rows: Sequence[ContextRow | GenerationRow]) -> int:
    """A bound of the positions that ``rows`` read, a power of two: their tokens are known up to there.

    A slot that is longer than its request's tokens is found when its length is compared.
    """
    known = memory.known
    most = max((known[row.owner].stream.length for row in rows), default=1)
    return min(memory.tokens, 1 << (most + memory.width - 1).bit_length())
