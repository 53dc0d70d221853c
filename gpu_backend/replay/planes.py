"""One pool of a replay: pages on the device and in the host tier, their tenants and published lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from gpu_backend.backend import Kernels
from gpu_backend.calls import CopyCall
from gpu_backend.cells import SENTINEL, CellState
from gpu_backend.host_tier import HostTier
from gpu_backend.pool import DevicePool
from gpu_backend.replay.content import Synthetic
from model.config import PoolSize

FIRST_PAGE = 1  # physical page of the model's slot 0: the guard is page 0


def upload(values: Sequence[int], device: torch.device, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Numbers of the host as a tensor ``[n]`` on ``device``, queued behind what runs there."""
    return sent(torch.tensor(values, dtype=dtype), device)


def sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor of the host on ``device``, queued behind what runs there; the host does not wait."""
    if device.type != "cuda":
        return tensor
    if device not in _STAGES:
        _STAGES[device] = Stage()
    return _STAGES[device].pinned(tensor).to(device, non_blocking=True)


class Stage:
    """Pinned host memory that copies to a device start from, filled round and round in two halves of ``half`` bytes.

    A half is used again once the copies that were queued from it are done.
    """

    def __init__(self, half: int = 4 << 20) -> None:
        self._halves = [torch.empty(half, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
        self._left = [torch.cuda.Event() for _ in range(2)]
        self._now = self._at = 0

    def pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of ``tensor`` in pinned memory, to be copied to the current stream at once."""
        size = tensor.nbytes
        if size > len(self._halves[0]):
            return tensor.pin_memory()
        if self._at + size > len(self._halves[0]):
            self._left[self._now].record()
            self._now, self._at = 1 - self._now, 0
            self._left[self._now].synchronize()
        place = self._halves[self._now][self._at : self._at + size].view(tensor.dtype).view(tensor.shape)
        self._at += -(-size // 64) * 64
        return place.copy_(tensor)


_STAGES: dict[torch.device, Stage] = {}  # by device


class CopyStream:
    """Where copies between the tiers run: a stream of its own on a GPU, ordered with compute by events."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextmanager
    def behind_compute(self) -> Iterator[None]:
        """Copies queued here start when all compute queued before is done; later compute waits for them."""
        if self._stream is None:
            yield
            return
        compute = torch.cuda.current_stream(self._stream.device)
        queued = torch.cuda.Event()
        queued.record(compute)
        self._stream.wait_event(queued)
        with torch.cuda.stream(self._stream):
            yield
        copied = torch.cuda.Event()
        copied.record(self._stream)
        compute.wait_event(copied)


class Planes:
    """Slots ``0 .. device_pages`` are pages of the device, those behind them slots of the host tier.

    ``tenant`` int64 ``[slots + 1]`` is the owner that a page was granted to, ``sealed`` int32 ``[slots + 1]`` how many
    of its first tokens are published and must not change. Both lie on the device.
    """

    def __init__(
        self, name: str, content: Synthetic, page_size: int, size: PoolSize, device: torch.device, *, debug: bool
    ) -> None:
        self.name, self.content, self.device = name, content, device
        self.device_pages, self.page_size = size.device_pages, page_size
        self.pool = DevicePool(name, content.layout(page_size), size.device_pages, device, debug=debug)
        self.copies = CopyStream(device)
        self.host = HostTier(self.pool, size.host_pages) if size.host_pages else None
        if self.host is not None:
            self.host.tags.fill_(SENTINEL[CellState.UNWRITTEN])
            self.host.states.fill_(int(CellState.UNWRITTEN))
        total = size.device_pages + size.host_pages
        self.nobody = total  # a slot behind all: what pads a batch of slots goes there
        self.tenant = torch.zeros(total + 1, dtype=torch.int64, device=device)
        self.sealed = torch.zeros(total + 1, dtype=torch.int32, device=device)

    def on_device(self, slot: int) -> bool:
        """Whether a slot is a page of the device."""
        return slot < self.device_pages

    def grant(self, slots: Sequence[int], owner: int) -> torch.Tensor:
        """A new tenancy of ``slots`` starts: nothing is written there. Returns them as the device has them."""
        listed = upload(slots, self.device)
        self.tenant.index_fill_(0, listed, owner)
        self.sealed.index_fill_(0, listed, 0)
        pages = listed if max(slots) < self.device_pages else listed[listed < self.device_pages]
        self.pool.release(pages + FIRST_PAGE)
        for slot in slots:
            if not self.on_device(slot):
                self._tier().states[slot - self.device_pages].fill_(int(CellState.UNWRITTEN))
                self._tier().tags[slot - self.device_pages].fill_(SENTINEL[CellState.UNWRITTEN])
        return listed

    def copy(self, kernels: Kernels, source: int, target: int, tokens: int) -> tuple[torch.Tensor, ...]:
        """Copy the first ``tokens`` cells of a page; returns source, target and tokens as the kernel was told them."""
        told = upload((source + FIRST_PAGE, target + FIRST_PAGE, tokens), self.device, torch.int32)
        pages = told[:1], told[1:2], told[2:]
        kernels.copy(CopyCall(self.pool.kv, self.pool.cells, *pages))
        return pages[0] - FIRST_PAGE, pages[1] - FIRST_PAGE, pages[2].clone()

    def copy_all(self, kernels: Kernels, pages: Sequence[tuple[int, int, int]]) -> None:
        """Several copies at once (source, target, tokens), none of which reads what another one writes."""
        source, target, tokens = (upload(list(part), self.device).int() for part in zip(*pages, strict=True))
        kernels.copy(CopyCall(self.pool.kv, self.pool.cells, source + FIRST_PAGE, target + FIRST_PAGE, tokens))

    def move(self, source: int, target: int) -> None:
        """A page changes its slot with its content, tenant and published length."""
        here, there = self.on_device(source), self.on_device(target)
        pool, pages = self.pool, self.device_pages
        if here and not there:
            with self.copies.behind_compute():
                self._tier().offload(source + FIRST_PAGE, target - pages)
        elif there and not here:
            with self.copies.behind_compute():
                self._tier().onboard(source - pages, target + FIRST_PAGE)
        elif here:
            pool.kv[:, :, target + FIRST_PAGE] = pool.kv[:, :, source + FIRST_PAGE]
            for plane in (pool.cells.tags, pool.cells.states):
                plane[target + FIRST_PAGE] = plane[source + FIRST_PAGE]
        else:
            tier = self._tier()
            for plane in (tier.kv, tier.tags, tier.states):
                plane[target - pages] = plane[source - pages]
        self.hand_over(source, target)

    def hand_over(self, source: int, target: int) -> None:
        """Tenant and published length go along, whatever becomes of the content."""
        self.tenant[target] = self.tenant[source]
        self.sealed[target] = self.sealed[source]

    def tag(self, slot: int, offset: int) -> torch.Tensor:
        """Tag of one cell, int64 ``[1]`` on the pool's device, as it is now."""
        if self.on_device(slot):
            return self.pool.cells.tags[slot + FIRST_PAGE, offset : offset + 1].clone()
        return self._tier().tags[slot - self.device_pages, offset : offset + 1].to(self.device, copy=True)

    def _tier(self) -> HostTier:
        if self.host is None:
            raise IndexError(f"pool {self.name!r} has no host tier")
        return self.host
