"""Steps from the state that a worker keeps by row: lengths, bases and tables on the device, widths on the host.

A :class:`StepShape` holds what depends on the rows' widths alone and is made once; a step is then queued without a copy
from the host, so that one captured graph serves every step of its shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gpu_backend.calls import Cells
from gpu_backend.modules.step import Paging, Rows, Step


@dataclass(slots=True)
class Lane:
    """The rows of a step in one lifecycle: pool, tables int32 ``[rows, columns]``, bases int32 ``[rows]`` in pages.

    ``limit`` int ``[rows]`` bounds the absolute positions that a row may address: what lies behind is neither stored
    nor read. ``active`` bool ``[rows]``: other rows store nothing, read nothing and give zeros. The rest is as in
    :class:`Paging`, by token in the order of the step.
    """

    kv: torch.Tensor
    table: torch.Tensor
    base: torch.Tensor
    limit: torch.Tensor | None = None
    active: torch.Tensor | None = None
    cells: Cells | None = None
    tag: torch.Tensor | None = None
    state: torch.Tensor | None = None
    live: torch.Tensor | None = None
    readable: torch.Tensor | None = None
    writable: torch.Tensor | None = None
    stores: torch.Tensor | None = None


class StepShape:
    """Rows of ``widths`` tokens each, the first ``chunks`` of them context chunks.

    Chunks and generation rows get an attention call each. Making a shape copies to the device; using it does not.
    """

    def __init__(self, widths: Sequence[int], device: torch.device | str, *, chunks: int = 0) -> None:
        self.widths, self.chunks = tuple(widths), chunks
        parts = [part for part in (self.widths[:chunks], self.widths[chunks:]) if part]
        calls, row, token = [], 0, 0
        for part in parts:
            calls.append(Rows.of(part, device, first_row=row, first=token))
            row, token = row + len(part), token + sum(part)
        self.calls = tuple(calls)
        width = torch.tensor(self.widths, dtype=torch.int64)
        row = torch.arange(len(width)).repeat_interleave(width)
        offset = torch.arange(len(row)) - (width.cumsum(0) - width)[row]
        self.row, self.offset, self.width = (
            row.to(device),
            offset.to(device),
            width.to(device),
        )  # int64 [tokens], [rows]

    def positions(self, start: torch.Tensor) -> torch.Tensor:
        """Absolute positions int64 ``[tokens]`` of rows that begin at ``start`` int ``[rows]``."""
        return start.long()[self.row] + self.offset

    def last(self) -> torch.Tensor:
        """Index of the last token of each row, int64 ``[rows]``."""
        return self.width.cumsum(0) - 1

    def step(self, token: torch.Tensor, start: torch.Tensor, lanes: Sequence[Lane]) -> Step:
        """The step of ``token`` int64 ``[tokens]``, whose rows begin at absolute positions ``start`` int ``[rows]``."""
        position = self.positions(start)
        end = start.long() + self.width
        return Step(token, position, self.calls, tuple(self._paging(lane, position, end) for lane in lanes))

    def _paging(self, lane: Lane, position: torch.Tensor, end: torch.Tensor) -> Paging:
        shift = lane.base.long() * lane.kv.shape[3]
        stored = torch.ones_like(position, dtype=torch.bool)
        length = end if lane.limit is None else torch.minimum(end, lane.limit.long())
        length = (length - shift).clamp(min=0)
        if lane.limit is not None:
            stored = position < lane.limit.long()[self.row]
        if lane.active is not None:
            length = torch.where(lane.active, length, 0)
            stored = stored & lane.active[self.row]
        row = torch.where(stored, self.row, -1)
        return Paging(
            lane.kv, lane.table, lane.base, row.int(), (position - shift[self.row]).int(), length.int(),
            torch.zeros_like(lane.base), lane.cells, lane.tag, lane.state, from_origin=True, readable=lane.readable,
            writable=lane.writable, live=lane.live, stores=lane.stores,
        )  # fmt: skip
