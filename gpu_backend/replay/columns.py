"""One lifecycle on the device: its block table, the generations that rows saw, the tags that their tokens say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_backend.answers import TableBuffer
from gpu_backend.backend import Kernels
from gpu_backend.calls import ClaimCall
from gpu_backend.layout import UNBACKED
from gpu_backend.replay.planes import FIRST_PAGE, Planes, sent
from model.joint import Column
from model.rules.device import TableUpload, Unbacked
from model.table import TableRow

UNSEEN = -2  # an entry that nobody looked at since its row was bound


class DeviceColumn:
    """Rows of one lifecycle, by row slot. ``expected`` int64 ``[rows, tokens]`` are tags at the request's positions."""

    def __init__(self, column: Column, planes: Planes, rows: int, columns: int, tokens: int, rule: TableUpload) -> None:
        device = planes.device
        self.index, self.draft, self.life = column.index, column.draft, column.lifecycle
        self.planes, self.page_size, self.tokens = planes, planes.page_size, tokens
        self.buffer = TableBuffer(rule, rows, columns, device)
        self.table = self.buffer.table  # as the step reads it
        self.expected = torch.zeros((rows, tokens), dtype=torch.int64, device=device)
        self.seen_page = torch.full((rows, columns), UNSEEN, dtype=torch.int32, device=device)
        self.seen_generation = torch.zeros((rows, columns), dtype=torch.int32, device=device)
        self.origin = torch.zeros(rows, dtype=torch.int32, device=device)
        self._loaded = [0] * rows  # tokens that a row of ``expected`` holds; 0 behind them
        self.beyond: list[tuple[int, int]] = []  # row slots that name a page outside the pool, and the page
        self._known: list[tuple[TableRow, NDArray[np.int32]] | None] = [None] * rows
        self._named: set[int] = set()  # row slots of the last step, the only ones that are backed
        self._last: tuple[Sequence[int], Sequence[TableRow]] | None = None  # what :meth:`changes` was told last

    # -- tables --------------------------------------------------------------------------------------------------

    def upload(self, slots: Sequence[int], told: Sequence[TableRow], unbacked: Unbacked) -> None:
        """Queue the rows of a step, named by slots of the model, and resolve what no page backs."""
        if slots and self.buffer.rule is TableUpload.SHARED_BUFFER:
            entries = np.stack([self._entries(slot, row) for slot, row in zip(slots, told, strict=True)])
            self.buffer.upload(torch.tensor(slots), torch.from_numpy(entries))
        elif slots:
            changes = self.changes(slots, told)
            if changes is not None:
                self.buffer.change(sent(torch.from_numpy(changes), self.table.device))
        self.table = self.resolved(self.buffer.table, unbacked)

    def changes(self, slots: Sequence[int], told: Sequence[TableRow]) -> NDArray[np.int64] | None:
        """Entries that a step has to change, so that its rows are as ``told`` and all others unbacked.

        Row, column and page, int64 ``[3, n]``; ``None`` where nothing changes.
        """
        if self._last == (slots, told):
            return None
        self._last = slots, told
        parts: list[tuple[int, NDArray[np.int64], NDArray[np.int32]]] = []
        named = set(slots)
        if named != self._named:
            for slot in sorted(self._named - named):
                known, self._known[slot] = self._known[slot], None
                if known is not None:
                    backed = np.flatnonzero(known[1] != UNBACKED)
                    parts.append((slot, backed, np.full(len(backed), UNBACKED, dtype=np.int32)))
            self._named = named
        for slot, row in zip(slots, told, strict=True):
            known = self._known[slot]
            if known is None or known[0] is not row:
                grown = None if known is None else self._grown(slot, *known, row)
                if grown is not None:
                    parts.append((slot, *grown))
                    continue
                entries = self._entries(slot, row)
                changed = np.flatnonzero(entries != (UNBACKED if known is None else known[1]))
                parts.append((slot, changed, entries[changed]))
        if not parts:
            return None
        slot, column, page = zip(*parts, strict=True)
        place = np.repeat(slot, [len(columns) for columns in column])
        return np.stack([place, np.concatenate(column), np.concatenate(page)])

    def _grown(
        self, slot: int, before: TableRow, entries: NDArray[np.int32], row: TableRow
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]] | None:
        """Columns and pages that ``row`` has behind those of ``before``; ``None`` where that is not all that differs,
        or where a page lies outside the pool."""
        same = before.base == row.base and before.sinks == row.sinks and row.pages.startswith(before.pages)
        first, end = row.base + len(before.view), min(len(entries), row.base + len(row.view))
        if not same or end <= first:
            return None
        pages = np.array(row.view[first - row.base : end - row.base], dtype=np.int32) + FIRST_PAGE
        if pages.max() > self.planes.device_pages:
            return None
        entries[first:end] = pages
        self._known[slot] = row, entries
        return np.arange(first, end), pages

    def _entries(self, slot: int, row: TableRow) -> NDArray[np.int32]:
        known = self._known[slot]
        if known is None or known[0] is not row:
            entries = dense(row, self.buffer.table.shape[1])
            beyond = entries > self.planes.device_pages
            if beyond.any():  # no kernel is given a page that is not there
                self.beyond.append((slot, int(entries[beyond][0]) - FIRST_PAGE))
                entries[beyond] = UNBACKED
            known = self._known[slot] = (row, entries)
        return known[1]

    @staticmethod
    def resolved(table: torch.Tensor, unbacked: Unbacked) -> torch.Tensor:
        """A table as the device reads it: unbacked entries stay -1, or stand for the first page, by the rule."""
        return table if unbacked is Unbacked.GUARD else table.masked_fill(table < 0, FIRST_PAGE)

    def forget(self, slot: int) -> None:
        """A row slot was bound anew: generations are taken as they are when it is read next."""
        self.seen_page[slot].fill_(UNSEEN)

    def note_generations(self, kernels: Kernels, slots: torch.Tensor, owner: torch.Tensor) -> None:
        """Row slots ``slots``, int64 ``[n]``, are about to be read: entries new to them are held from now on.

        A page that its own row gave back and was granted again is new, too. ``owner`` is by slot.
        """
        planes = self.planes
        kernels.claim(
            ClaimCall(
                slots, self.table, owner, planes.tenant, planes.pool.generation, self.seen_page, self.seen_generation
            )
        )

    def shifted(self, base: torch.Tensor) -> torch.Tensor:
        """The table as an access sees it that leaves the bases int32 ``[rows]`` out of account."""
        entry = torch.arange(self.table.shape[1], device=self.table.device)[None] - base[:, None].long()
        pages = self.table.gather(1, entry.clamp(min=0))
        return torch.where(entry >= 0, pages, UNBACKED)

    # -- cells ---------------------------------------------------------------------------------------------------

    def page_at(self, table: torch.Tensor, slot: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Physical page behind positions int64 of row slots (broadcast together), -1 where none backs them."""
        block = torch.div(position, self.page_size, rounding_mode="floor")
        inside = (block >= 0) & (block < table.shape[1])
        return torch.where(inside, table[slot, block.clamp(0, table.shape[1] - 1)].long(), UNBACKED)

    def cell_at(self, slot: torch.Tensor, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Slot of the model (-1: guard) and tag (0 there) of one position in each row, int64 ``[n]``."""
        page = self.page_at(self.table, slot, position)
        backed = page >= 0
        offset = position.remainder(self.page_size)
        tag = self.planes.pool.cells.tags[page.clamp(min=0), offset]
        return torch.where(backed, page - FIRST_PAGE, UNBACKED), torch.where(backed, tag, 0)

    def load(self, slot: int, tags: NDArray[np.uint64]) -> None:
        """The tokens of a row's request are known: ``tags`` of its cells, from position 0 on."""
        count = min(len(tags), self.tokens)
        known = torch.from_numpy(np.ascontiguousarray(tags[:count]).view(np.int64))
        self.expected[slot, :count] = sent(known, self.expected.device)
        if count < self._loaded[slot]:
            self.expected[slot, count : self._loaded[slot]].fill_(0)
        self._loaded[slot] = count


def dense(row: TableRow, columns: int) -> NDArray[np.int32]:
    """A row as the device has it: physical pages by block, -1 where none backs one; int32 ``[columns]``."""
    entries = np.full(columns, UNBACKED, dtype=np.int32)
    sinks = np.frombuffer(row.sinks, dtype=np.int32)
    pages = np.frombuffer(row.pages, dtype=np.int32)
    entries[: len(sinks)] = sinks + FIRST_PAGE
    end = min(columns, row.base + len(pages))
    if end > row.base:
        entries[row.base : end] = pages[: end - row.base] + FIRST_PAGE
    return entries
