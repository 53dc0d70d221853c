"""States of token slots on the device, and the tag that a slot carries while it holds no final content.

A slot has an int64 tag and an int8 state. Only a FINAL slot carries its content tag; in every other state the tag is
the state's sentinel, the value that the model's tagged memory keeps in its cells, so that both memories hold the same
64 bits per slot.
"""

from __future__ import annotations

import enum

import numpy as np
import torch
from numpy.typing import NDArray

from model.reader import DUMMY, MASKED, PROVISIONAL, UNWRITTEN


class CellState(enum.IntEnum):
    """What a token slot holds; a check's ``legal`` argument is a mask of ``1 << state``."""

    UNWRITTEN = 0  # nothing since its page was granted
    FINAL = 1  # K/V of a committed token
    PROVISIONAL = 2  # K/V of a draft, readable only in the pass that wrote it
    MASKED = 3  # a fixed-size column that carries no token
    DUMMY = 4  # written by a padding row


ONLY_FINAL = 1 << CellState.FINAL


def signed(value: int) -> int:
    """``value`` of 64 bits as a signed integer, the only kind that torch computes with."""
    return value - (1 << 64) if value >> 63 else value


SENTINEL = {
    CellState.UNWRITTEN: signed(UNWRITTEN),
    CellState.PROVISIONAL: signed(PROVISIONAL),
    CellState.MASKED: signed(MASKED),
    CellState.DUMMY: signed(DUMMY),
}


def device_tags(tags: NDArray[np.uint64], device: torch.device | str = "cpu") -> torch.Tensor:
    """Content tags of the model, uint64 ``[n]``, as an int64 tensor ``[n]`` on ``device``."""
    return torch.from_numpy(np.ascontiguousarray(tags).view(np.int64).copy()).to(device)
