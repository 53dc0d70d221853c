"""Memory events of a device: gathered on it while a step runs, read back together, written as the model writes them."""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from model.events import Kind
from model.reader import LOGGED


class Part(NamedTuple):
    """``size`` numbers of a tensor of the journal from ``begin`` on."""

    tensor: int
    begin: int
    size: int


class Landing:
    """Pinned host memory that a journal is read into, and the event behind its copy; used again once it was read.

    One that is not ``pooled`` belongs to a graph, which copies into it. Pooled ones hold a power of two of numbers:
    kept by the very number they would become more as long as steps of other sizes come.
    """

    def __init__(self, numbers: int, *, pooled: bool = True) -> None:
        self.room = torch.empty(numbers, dtype=torch.int64, pin_memory=True)
        self.host = self.room  # what of it is in use
        self.arrived = torch.cuda.Event()
        self.pooled = pooled

    @classmethod
    def of(cls, numbers: int) -> Landing:
        """One that nobody waits for."""
        room = 1 << (numbers - 1).bit_length()
        free = _LANDINGS.get(room)
        landing = free.pop() if free else cls(room)
        landing.host = landing.room[:numbers]
        return landing

    def left(self) -> None:
        """It was read."""
        if self.pooled:
            self.host = self.room
            _LANDINGS.setdefault(len(self.room), []).append(self)


_LANDINGS: dict[int, list[Landing]] = {}  # free ones by how many numbers they hold


def landed() -> tuple[int, int]:
    """Bytes of the landings that are free, which stay for the next replay, and how many they are."""
    free = [landing.room.nbytes for landings in _LANDINGS.values() for landing in landings]
    return sum(free), len(free)


class Journal:
    """Events of one stretch. A field is a number that names the event or a tensor that the device holds."""

    def __init__(self) -> None:
        self._events: list[tuple[Kind, tuple[int, ...], tuple[Part, ...]]] = []
        self._tensors: list[torch.Tensor] = []
        self._behind: list[Part] = []
        self._host: NDArray[np.int64] | None = None
        self.landing: Landing | None = None  # where the first tensor is copied to already, or all that was queued is

    def add(self, kind: Kind, names: tuple[int, ...], *fields: torch.Tensor) -> None:
        """An event: ``names`` (iteration, pool, row slot), then ``fields`` as the device has them now.

        The tensors are integers, not views of what later work changes.
        """
        self._events.append((kind, names, tuple(map(self.keep, fields))))

    def keep(self, tensor: torch.Tensor) -> Part:
        """Read ``tensor`` back with the rest; the part that is all of it."""
        self._tensors.append(tensor)
        return Part(len(self._tensors) - 1, 0, tensor.numel())

    def refer(self, kind: Kind, names: tuple[int, ...], *parts: Part) -> None:
        """An event whose fields are parts of tensors that are kept."""
        self._events.append((kind, names, parts))

    def behind(self, part: Part) -> None:
        """Hand out a part beside the events."""
        self._behind.append(part)

    def queue(self) -> None:
        """Copy everything to the host behind what runs now; no event comes any more."""
        if not self._tensors:
            return
        if self.landing is not None and len(self._tensors) == 1:  # all that a graph left, and it copied that itself
            self.landing.arrived.record()
            return
        flat = torch.cat([tensor.reshape(-1).long() for tensor in self._tensors])
        if not flat.is_cuda:
            self._host = flat.numpy()
            return
        self.landing = Landing.of(flat.numel())
        self.landing.host.copy_(flat, non_blocking=True)
        self.landing.arrived.record()

    def wait(self) -> None:
        """Until what was queued has arrived."""
        if self.landing is not None:
            self.landing.arrived.synchronize()

    def land(self) -> None:
        """Wait, and take what arrived out of the memory that it arrived in."""
        if self.landing is not None:
            self._host = self._arrived()

    def read(self) -> tuple[bytes, int, list[NDArray[np.int64]]]:
        """The events one behind the other, as a channel of :mod:`model.events` has their bytes; how many; the parts
        behind them. Waits until the copy has arrived; to be called once."""
        values = self._arrived()
        first, at = [], 0
        for tensor in self._tensors:
            first.append(at)
            at += tensor.numel()
        pieces: list[array[int] | NDArray[np.int64]] = []
        for kind, names, parts in self._events:
            count, head = len(names), len(pieces)
            for part in parts:
                begin = first[part.tensor] + part.begin
                pieces.append(values[begin : begin + part.size])
                count += part.size
            pieces.insert(head, array("q", (kind, count, *names)))
        behind = []
        for part in self._behind:
            begin = first[part.tensor] + part.begin
            behind.append(values[begin : begin + part.size])
        return b"".join(pieces), len(self._events), behind

    def _arrived(self) -> NDArray[np.int64]:
        """All numbers that were read back, in memory of their own."""
        self.wait()
        landing, self.landing = self.landing, None
        if landing is not None:
            values = landing.host.numpy().copy()
            landing.left()
            return values
        return _NONE if self._host is None else self._host


_NONE = np.zeros(0, dtype=np.int64)


def logged(tags: torch.Tensor) -> torch.Tensor:
    """The bits of tags that a record keeps."""
    return tags & LOGGED
