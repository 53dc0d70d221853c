"""What modules are told of one step: tokens, positions, and how rows reach the pages. Everything lies on the device.

Tokens of a step stand one behind the other, row by row. A row is a request's chunk, a verify row, a drafter block or a
padding row. Kernels read lengths, bases and tables from device memory, so a step whose tensors are updated in place can
be captured in a graph; ``widths`` alone are known to the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from gpu_backend.calls import AttentionCall, Cells, StoreCall


@dataclass(slots=True)
class Rows:
    """Rows of one attention call: ``[first_row, first_row + n)`` of the step's rows, whose tokens begin at ``first``.

    ``widths`` are their query tokens and ``bounds`` int32 ``[n + 1]`` the same cumulated, from 0 on the device. Put
    chunks and generation rows in different calls: one tile size does not serve both.
    """

    first_row: int
    first: int
    widths: tuple[int, ...]
    bounds: torch.Tensor

    @classmethod
    def of(cls, widths: Sequence[int], device: torch.device | str, *, first_row: int = 0, first: int = 0) -> Rows:
        """Rows of ``widths``; waits for the copy to ``device``."""
        ends = [0]
        for width in widths:
            ends.append(ends[-1] + width)
        return cls(first_row, first, tuple(widths), torch.tensor(ends, dtype=torch.int32, device=device))

    @property
    def tokens(self) -> int:
        """Number of query tokens."""
        return sum(self.widths)


@dataclass(slots=True)
class Paging:
    """How the tokens of a step reach the pages of one lifecycle.

    ``kv`` is ``[layers, 2, pages, page_size, kv_heads, head_dim]``. By token, int32 ``[tokens]``: ``row`` (-1 drops
    it) and ``position``, where its K/V is stored. By row, int32 ``[rows]``: ``base``, ``length`` (keys, the row's own
    tokens among them; 0 parks the row) and ``start`` (first readable key); ``table`` int32 ``[rows, columns]``.
    Positions, lengths and starts count from the row's base page. With ``cells`` the group's last layer writes ``tag``
    int64 and ``state`` int8 ``[tokens]``. ``from_origin`` promises that every start is 0. ``readable`` and
    ``writable``, bool ``[pages]``, are asserted on a CPU. ``live``, bool ``[tokens]``: other K/V is stored as zeros.
    ``stores`` replaces the table where K/V is stored.
    """

    kv: torch.Tensor
    table: torch.Tensor
    base: torch.Tensor
    row: torch.Tensor
    position: torch.Tensor
    length: torch.Tensor
    start: torch.Tensor
    cells: Cells | None = None
    tag: torch.Tensor | None = None
    state: torch.Tensor | None = None
    from_origin: bool = False
    readable: torch.Tensor | None = None
    writable: torch.Tensor | None = None
    live: torch.Tensor | None = None
    stores: torch.Tensor | None = None

    def store(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> StoreCall:
        """The store of ``k`` and ``v`` ``[tokens, kv_heads, head_dim]`` into ``layer`` of this pool."""
        if self.live is not None:
            unused = ~self.live[:, None, None]
            k, v = k.masked_fill(unused, 0), v.masked_fill(unused, 0)
        call = StoreCall(
            k.contiguous(), v.contiguous(), self.kv[layer, 0], self.kv[layer, 1], self.row, self.position,
            self.table if self.stores is None else self.stores, self.base,
        )  # fmt: skip
        if self.cells is not None and layer == len(self.kv) - 1:
            call.cells, call.tag, call.state = self.cells, self.tag, self.state
        return call

    def attention(
        self, layer: int, rows: Rows, q: torch.Tensor, out: torch.Tensor, *, causal: bool, window_left: int
    ) -> AttentionCall:
        """The attention of ``rows``; ``q`` and ``out`` are of the whole step, ``[tokens, heads, head_dim]``."""
        tokens = slice(rows.first, rows.first + rows.tokens)
        own = slice(rows.first_row, rows.first_row + len(rows.widths))
        return AttentionCall(
            q[tokens], out[tokens], self.kv[layer, 0], self.kv[layer, 1], self.table[own], rows.bounds,
            self.length[own], self.base[own], self.start[own], causal, window_left, self.from_origin,
        )  # fmt: skip


@dataclass(slots=True)
class Step:
    """One pass of a stack: ``token`` int64 ``[tokens]``, ``position`` int64 ``[tokens]`` (absolute, for the rotation).

    ``calls`` cover the tokens that attend, ``paging`` has an entry for each group of layers. Padding tokens repeat any
    legal token id and position.
    """

    token: torch.Tensor
    position: torch.Tensor
    calls: tuple[Rows, ...] = field(default=())
    paging: tuple[Paging, ...] = field(default=())
