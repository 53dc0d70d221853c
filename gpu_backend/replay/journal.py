"""Memory events of a device: gathered on it while a step runs, read back together, written as the model writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from model.events import Kind
from model.reader import LOGGED


class Part(NamedTuple):
    """``size`` numbers of a tensor of the journal from ``begin`` on."""

    tensor: int
    begin: int
    size: int


class Journal:
    """Events of one stretch. A field is a number that names the event or a tensor that the device holds."""

    def __init__(self) -> None:
        self._events: list[tuple[Kind, tuple[int, ...], tuple[Part, ...]]] = []
        self._tensors: list[torch.Tensor] = []
        self._behind: list[Part] = []
        self._host: torch.Tensor | None = None
        self._arrived: torch.cuda.Event | None = None

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
        first = self._tensors[0]
        if len(self._tensors) == 1 and first.is_cuda and first.dtype is torch.int64:
            flat = first.reshape(-1)  # all that a graph left
        else:
            flat = torch.cat([tensor.reshape(-1).long() for tensor in self._tensors])
        if not flat.is_cuda:
            self._host = flat
            return
        self._host = torch.empty(len(flat), dtype=torch.int64, pin_memory=True)
        self._host.copy_(flat, non_blocking=True)
        self._arrived = torch.cuda.Event()
        self._arrived.record()

    def read(self) -> tuple[list[tuple[Kind, tuple[int, ...]]], list[list[int]]]:
        """The events and the parts behind them; waits until the copy has arrived."""
        if self._arrived is not None:
            self._arrived.synchronize()
        values = [] if self._host is None else self._host.tolist()
        first, at = [], 0
        for tensor in self._tensors:
            first.append(at)
            at += tensor.numel()

        def fetched(part: Part) -> list[int]:
            begin = first[part.tensor] + part.begin
            return values[begin : begin + part.size]

        events = [
            (kind, (*names, *(value for part in parts for value in fetched(part))))
            for kind, names, parts in self._events
        ]
        return events, [fetched(part) for part in self._behind]


def logged(tags: torch.Tensor) -> torch.Tensor:
    """The bits of tags that a record keeps."""
    return tags & LOGGED


def encoded(events: list[tuple[Kind, tuple[int, ...]]]) -> Iterator[tuple[int, ...]]:
    """Records as :class:`model.events.Channel` takes them."""
    for kind, fields in events:
        yield (kind, len(fields), *fields)
