"""Grants and publications of many pages at once: gathered on the host by pool, carried out by a handful of kernels.

A pool's array of a batch is padded by entries that name nobody's slot (:attr:`Planes.nobody`), so that a captured graph
carries out any batch that fits.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_backend.cells import CellState
from gpu_backend.layout import GUARD_PAGE
from gpu_backend.replay.journal import Journal, Part, logged
from gpu_backend.replay.memory import DeviceMemory
from gpu_backend.replay.planes import FIRST_PAGE, Planes
from model.events import Kind
from model.reader import vouched_tokens

Room = tuple[int, int, int]  # pages granted, pages published, publications


@dataclass(slots=True)
class PoolBatch:
    """Numbers of one pool: a granted page is (slot, owner), a published one (slot, sealed, judged) tokens, a
    publication (slot of its last page, coverage)."""

    granted: list[tuple[int, int]] = field(default_factory=list)
    published: list[tuple[int, int, int]] = field(default_factory=list)
    publications: list[tuple[int, int]] = field(default_factory=list)
    anew: set[int] = field(default_factory=set)  # slots granted
    copies: list[tuple[int, int, int]] = field(default_factory=list)  # source, target, tokens: behind all grants
    read: set[int] = field(default_factory=set)  # their sources
    written: set[int] = field(default_factory=set)  # and their targets

    @property
    def room(self) -> Room:
        """How much it holds."""
        return len(self.granted), len(self.published), len(self.publications)

    def pack(self, room: Room, nobody: int) -> NDArray[np.int64]:
        """All numbers, column by column, padded to ``room``; int64 ``[size(room)]``."""
        told = np.zeros(size(room), dtype=np.int64)
        at = 0
        held = self.granted, self.published, self.publications
        for values, places, width in zip(held, room, (2, 3, 2), strict=True):
            block = told[at : at + width * places].reshape(width, places)
            block[0, len(values) :] = nobody
            if values:
                block[:, : len(values)] = np.array(values, dtype=np.int64).T
            at += width * places
        return told


def size(room: Room) -> int:
    """Numbers of a pool's part of a batch."""
    return 2 * room[0] + 3 * room[1] + 2 * room[2]


@dataclass(frozen=True, slots=True)
class Note:
    """An event of a batch: its pool, and where its numbers lie among the pool's (first page, pages, publication)."""

    kind: Kind
    pool: int
    first: int
    pages: int
    publication: int = -1


class PageBatch:
    """Records of grants and publications as long as their order means nothing: publications are carried out first."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.memory = memory
        self.pools = [PoolBatch() for _ in memory.planes]
        self.notes: list[Note] = []

    def grant(self, pool: int, slots: array[int], owner: int) -> bool:
        """Take a grant in; whether the batch could."""
        batch = self.pools[pool]
        taken = all(found.isdisjoint(slots) for found in (batch.anew, batch.read, batch.written))
        if max(slots) >= self.memory.planes[pool].device_pages or not taken:
            return False
        self.notes.append(Note(Kind.MEM_GRANT, pool, len(batch.granted), len(slots)))
        batch.anew.update(slots)
        batch.granted += [(slot, owner) for slot in slots]
        return True

    def publish(self, pool: int, slots: array[int], coverage: int, owner: int, column: int, block: int) -> bool:
        """Take a publication in; whether the batch could."""
        memory, batch = self.memory, self.pools[pool]
        if max(slots) >= memory.planes[pool].device_pages or not batch.anew.isdisjoint(slots):
            return False
        known, span = memory.known.get(owner), memory.column_of[pool, column].life.lookahead
        prompt = None if known is None or not span else known.stream.prompt_length
        begin, page = block * memory.page_size, memory.page_size
        vouched = vouched_tokens(prompt, len(slots), coverage, span, begin, page).tolist()
        self.notes.append(
            Note(Kind.MEM_PUBLISH, pool, len(batch.published), len(slots), len(batch.publications))
        )  # fmt: skip
        batch.published += [
            (slot, count, 0 if known is None else count) for slot, count in zip(slots, vouched, strict=True)
        ]
        batch.publications.append((slots[-1], coverage))
        return True

    def copy(self, pool: int, source: int, target: int, tokens: int) -> bool:
        """Take a copy of a page in, where no event of it is kept; whether the batch could."""
        batch = self.pools[pool]
        mixed = source == target or source in batch.written or target in batch.read or target in batch.written
        if mixed or max(source, target) >= self.memory.planes[pool].device_pages:
            return False
        batch.copies.append((source, target, tokens))
        batch.read.add(source)
        batch.written.add(target)
        return True

    @property
    def empty(self) -> bool:
        """Whether nothing was taken in."""
        return not self.notes and not self.copies

    @property
    def copies(self) -> bool:
        """Whether pages are copied, for which a captured graph has no room."""
        return any(batch.copies for batch in self.pools)

    def refer(self, journal: Journal, iteration: int, kept: list[tuple[Part, Room]]) -> None:
        """Write the events into ``journal``, from what :func:`carry_out` returned for each pool, kept there."""
        for note in self.notes:
            part, room = kept[note.pool]
            granted, published, publications = room

            def of(begin: int, count: int = 1, part: Part = part) -> Part:
                return Part(part.tensor, part.begin + begin, count)

            if note.kind is Kind.MEM_GRANT:
                parts = of(granted + note.first), of(note.first, note.pages)
            else:
                begin = 2 * granted
                slots = of(begin + note.first, note.pages)
                begin += published + note.publication
                parts = of(begin), of(begin + publications), slots
            journal.refer(note.kind, (iteration, note.pool), *parts)


def carry_out(
    memory: DeviceMemory, planes: Planes, told: torch.Tensor, room: Room, unfinished: torch.Tensor
) -> torch.Tensor:
    """Carry out a pool's part of a batch, ``told`` int64 ``[size(room)]`` on the device.

    Cells below what is judged that are not final are added to ``unfinished`` int64 ``[1]``. Returns the events' fields,
    int64: slots granted and their tenants, slots published, coverages and last tags of the publications.
    """
    granted, published, publications = room
    slot, owner, page, sealed, judged, last, coverage = torch.split(
        told, [granted, granted, published, published, published, publications, publications]
    )
    if published:
        planes.sealed.scatter_reduce_(0, page, sealed.int(), "amax")
        states = planes.pool.cells.states[_physical(planes, page)]
        offset = torch.arange(memory.page_size, device=memory.device)
        unfinished += ((states != int(CellState.FINAL)) & (offset < judged[:, None])).sum()
    tag = planes.pool.cells.tags[_physical(planes, last), (coverage - 1).clamp(min=0)]
    if granted:
        planes.tenant.index_copy_(0, slot, owner)
        planes.sealed.index_fill_(0, slot, 0)
        planes.pool.release(_physical(planes, slot))
    return torch.cat([slot, planes.tenant[slot], page, coverage, logged(tag)])


def _physical(planes: Planes, slot: torch.Tensor) -> torch.Tensor:
    """Pages of slots; the guard page for nobody's."""
    return torch.where(slot < planes.device_pages, slot + FIRST_PAGE, GUARD_PAGE)
