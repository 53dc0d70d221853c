"""Checks that look at bytes and outputs: K/V rows beside their tags, attention beside what the tokens give, all cells.

They cost as much as the step itself or more, and belong to ``--check full``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gpu_backend.calls import AttentionCall
from gpu_backend.cells import CellState, device_tags
from gpu_backend.layout import GUARD_PAGE
from gpu_backend.replay.columns import DeviceColumn
from gpu_backend.replay.memory import DeviceMemory
from gpu_backend.replay.planes import FIRST_PAGE, Planes
from model.invariants.base import Violation
from model.shadow import Shadow

TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.25, torch.float16: 0.05}  # of outputs between 0 and 15


@dataclass(frozen=True, slots=True)
class ReadRange:
    """What rows read of one column: cells ``[low, high)`` of row slots, int64 ``[n]``, from ``base`` pages on."""

    column: DeviceColumn
    slot: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    base: torch.Tensor
    expected: torch.Tensor
    table: torch.Tensor


class AttentionProbe:
    """One query for every row that reads: its output is what K/V rows of the expected tags give."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.memory = memory
        self.outputs = 0
        self.wrong: list[tuple[DeviceColumn, torch.Tensor]] = []

    def look(self, reads: ReadRange) -> None:
        """Attend over one range in every layer; which row slots differ is kept on the device."""
        memory, content, column = self.memory, self.memory.content, reads.column
        rows = len(column.origin)
        length = torch.zeros(rows, dtype=torch.int32, device=memory.device)
        start = torch.zeros_like(length)
        length[reads.slot], start[reads.slot] = reads.high.int(), reads.low.int()
        length = torch.where(length > start, length, 0)
        table = reads.table.clamp(min=GUARD_PAGE)  # what no page backs leads to the poisoned guard
        bounds = torch.arange(rows + 1, dtype=torch.int32, device=memory.device)
        for layer in range(content.layers):
            query = self._query(rows)
            out = torch.zeros_like(query)
            pool = column.planes.pool
            memory.kernels.attend(
                AttentionCall(
                    query, out, pool.k(layer), pool.v(layer), table, bounds, length, reads.base, start,
                    causal=False,
                ),
                widths=(1,) * rows,
            )  # fmt: skip
            wanted = self._expected(reads, query, start, length, layer)
            far = ~((out.float() - wanted).abs() <= TOLERANCE[content.dtype])  # NaN is far from everything
            self.wrong.append((column, far.flatten(1).any(1) & (length > 0)))
        self.outputs += len(reads.slot) * content.layers

    def _query(self, rows: int) -> torch.Tensor:
        content = self.memory.content
        lane = torch.arange(content.dim, device=self.memory.device)
        query = ((lane * 7) % 11 - 5).to(content.dtype) / 64
        return query.expand(rows, content.heads, -1).contiguous()

    def _expected(
        self, reads: ReadRange, query: torch.Tensor, start: torch.Tensor, length: torch.Tensor, layer: int
    ) -> torch.Tensor:
        """Output over the rows that the expected tags spell, float32 ``[rows, heads, dim]``."""
        content, column = self.memory.content, reads.column
        position = torch.arange(column.tokens, device=self.memory.device)
        shift = (reads.base.long() * column.page_size)[:, None]
        seen = (position >= start[:, None] + shift) & (position < length[:, None] + shift)
        keys = content.keys(reads.expected.reshape(-1), layer).float().view(*reads.expected.shape, content.heads, -1)
        score = torch.einsum("rhd,rnhd->rhn", query.float(), keys) * content.dim**-0.5
        weight = score.masked_fill(~seen[:, None], float("-inf")).softmax(-1)
        weight = torch.where(seen.any(1)[:, None, None], weight, 0.0)
        return torch.einsum("rhn,rnhd->rhd", weight, content.values(keys))


def wrong_outputs(
    wrong: list[tuple[DeviceColumn, torch.Tensor]], step: int, requests: dict[int, int]
) -> list[Violation]:
    """Rows of a step whose outputs differ, from what a probe kept; waits for the device."""
    return [
        Violation(
            "KEY",
            f"device: {column.life.name}: row slot {slot} attends to other rows than its tokens give",
            requests.get(slot, -1),
            column.planes.name,
            step=step,
            expected="the output over K/V rows of its own tags",
            found="another output",
        )
        for column, rows in wrong
        for slot in torch.nonzero(rows).flatten().tolist()
    ]


def unspelled(memory: DeviceMemory, step: int) -> list[Violation]:
    """Cells with content whose K/V rows do not spell their tags; waits for the device."""
    found = []
    for planes in memory.planes:
        pool, content = planes.pool, memory.content
        page, offset = torch.nonzero(pool.cells.states == int(CellState.FINAL), as_tuple=True)
        tags = pool.cells.tags[page, offset]
        for layer in range(content.layers):
            keys = content.keys(tags, layer)
            right = (pool.k(layer)[page, offset] == keys).flatten(1).all(1)
            right &= (pool.v(layer)[page, offset] == content.values(keys)).flatten(1).all(1)
            wrong = torch.nonzero(~right).flatten()
            if len(wrong):
                first = int(wrong[0])
                place = int(page[first]) - FIRST_PAGE
                text = f"device: {len(wrong)} cells hold K/V rows that are not those of their tags"
                found.append(Violation("KEY", text, -1, planes.name, place, int(offset[first]), step))
                break
    return found


def differing_cells(memory: DeviceMemory, shadow: Shadow) -> tuple[int, list[Violation]]:
    """Cells of every pool and tier beside the tagged memory's at the end of a run, and the first that differs."""
    for reader in list(shadow.dirty.values()):
        shadow.flush(reader)
    compared, found = 0, []
    for planes, cells in zip(memory.planes, shadow.cells, strict=True):
        mine = _all_tags(planes)
        wrong = torch.nonzero(mine != device_tags(cells.reshape(-1)).view(mine.shape))
        compared += mine.numel()
        if len(wrong):
            slot, offset = wrong[0].tolist()
            wanted, tag = int(cells[slot, offset]), int(mine[slot, offset]) & (1 << 64) - 1
            text = f"device: {len(wrong)} cells differ from the memory's at the end"
            found.append(
                Violation("KEY", text, -1, planes.name, slot, offset, -1, f"cell {wanted:016x}", f"cell {tag:016x}")
            )
    return compared, found


def _all_tags(planes: Planes) -> torch.Tensor:
    """Tags of a pool by slot of the model, on the host, int64 ``[slots, page_size]``."""
    tags = planes.pool.cells.tags[FIRST_PAGE:].cpu()
    return tags if planes.host is None else torch.cat([tags, planes.host.tags])
