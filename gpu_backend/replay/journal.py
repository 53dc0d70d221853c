"""Memory events of a device: gathered on it while a step runs, read back together, written as the model writes them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from model.events import Kind
from model.reader import LOGGED


class Journal:
    """Events since the last reading. A field is a number that names the event or a tensor that the device holds."""

    def __init__(self) -> None:
        self._events: list[tuple[Kind, tuple[int, ...], int]] = []
        self._fields: list[torch.Tensor] = []

    def add(self, kind: Kind, names: tuple[int, ...], *fields: torch.Tensor) -> None:
        """An event: ``names`` (iteration, pool, row slot), then ``fields`` as the device has them now.

        The tensors are integers, not views of what later work changes.
        """
        flat = [field.reshape(-1) for field in fields]
        self._events.append((kind, names, sum(len(field) for field in flat)))
        self._fields += flat

    def read(self, *behind: torch.Tensor) -> tuple[list[tuple[Kind, tuple[int, ...]]], list[list[int]]]:
        """All events since the last call, and the values of ``behind``, in one copy from the device."""
        tensors = [*self._fields, *(tensor.reshape(-1) for tensor in behind)]
        values = torch.cat([tensor.long() for tensor in tensors]).tolist() if tensors else []
        place, events = 0, []
        for kind, names, count in self._events:
            events.append((kind, (*names, *values[place : place + count])))
            place += count
        rest = []
        for tensor in behind:
            rest.append(values[place : place + tensor.numel()])
            place += tensor.numel()
        self._events, self._fields = [], []
        return events, rest


def logged(tags: torch.Tensor) -> torch.Tensor:
    """The bits of tags that a record keeps."""
    return tags & LOGGED


def encoded(events: list[tuple[Kind, tuple[int, ...]]]) -> Iterator[tuple[int, ...]]:
    """Records as :class:`model.events.Channel` takes them."""
    for kind, fields in events:
        yield (kind, len(fields), *fields)
