"""The host tier of a pool: pages in pinned memory, each contiguous, with its tags and states."""

from __future__ import annotations

import torch

from gpu_backend.device import DeviceMemoryError
from gpu_backend.pool import DevicePool


class HostTier:
    """``slots`` host slots for pages of ``pool``; pinned where the pool is on a GPU, so that copies overlap.

    ``kv`` is ``[slots, layers, 2, page_size, kv_heads, head_dim]``, ``tags`` int64 and ``states`` int8
    ``[slots, page_size]``. Copies are queued on the current stream: order against compute is the caller's.
    """

    def __init__(self, pool: DevicePool, slots: int) -> None:
        layers, planes, _, page_size, heads, dim = pool.kv.shape
        pinned = pool.device.type == "cuda"
        self.pool, self.slots = pool, slots
        try:
            self.kv = torch.empty(
                (slots, layers, planes, page_size, heads, dim), dtype=pool.kv.dtype, pin_memory=pinned
            )
            self.tags = torch.empty((slots, page_size), dtype=torch.int64, pin_memory=pinned)
            self.states = torch.empty((slots, page_size), dtype=torch.int8, pin_memory=pinned)
        except RuntimeError as error:
            needed = slots * pool.layout.bytes_per_page
            raise DeviceMemoryError(f"the host tier of pool {pool.name!r} could not get {needed:,} bytes") from error

    def offload(self, page: int, slot: int) -> None:
        """Copy physical ``page`` to host ``slot``; its device page stays as it is until it is released."""
        self.kv[slot].copy_(self.pool.kv[:, :, page], non_blocking=True)
        self.tags[slot].copy_(self.pool.cells.tags[page], non_blocking=True)
        self.states[slot].copy_(self.pool.cells.states[page], non_blocking=True)

    def onboard(self, slot: int, page: int) -> None:
        """Copy host ``slot`` to physical ``page``, tags and states included."""
        self.pool.kv[:, :, page].copy_(self.kv[slot], non_blocking=True)
        self.pool.cells.tags[page].copy_(self.tags[slot], non_blocking=True)
        self.pool.cells.states[page].copy_(self.states[slot], non_blocking=True)
