"""One lifecycle's pages in device memory: K/V, a tag and a state per token slot, a generation per page."""

from __future__ import annotations

import torch

from gpu_backend.calls import Cells
from gpu_backend.cells import SENTINEL, CellState
from gpu_backend.device import DeviceMemoryError, free_bytes, require_memory
from gpu_backend.layout import GUARD_PAGE, PoolLayout


class DevicePool:
    """``pages`` usable pages, physical ids ``1 .. pages``; physical page 0 is the guard.

    ``kv`` is ``[layers, 2, pages + 1, page_size, kv_heads, head_dim]``, ``cells`` holds int64 tags and int8 states
    ``[pages + 1, page_size]``, ``generation`` is int32 ``[pages + 1]`` and grows at every free. K/V is never zeroed: an
    unwritten slot must not look like an empty one. With ``debug`` fresh and released pages hold NaN, so that whoever
    reads what nobody wrote sees it in the output. The guard page holds NaN always.
    """

    def __init__(
        self, name: str, layout: PoolLayout, pages: int, device: torch.device | str, *, debug: bool = False
    ) -> None:
        self.name, self.layout, self.pages = name, layout, pages
        self.device = torch.device(device)
        self.debug = debug
        if pages < 1:
            raise DeviceMemoryError(f"pool {name!r} gets {pages} pages, at least one is needed")
        what = f"pool {name!r} on {self.device}"
        require_memory(what, pages + 1, layout.bytes_per_page, free_bytes(self.device))
        try:
            self.kv = torch.empty(layout.shape(pages + 1), dtype=layout.dtype, device=self.device)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            needed = layout.bytes(pages)
            raise DeviceMemoryError(f"{what} could not get {needed:,} bytes for {pages:,} pages") from error
        if debug:
            self.kv.fill_(float("nan"))
        else:
            self.kv[:, :, GUARD_PAGE].fill_(float("nan"))
        shape = (pages + 1, layout.page_size)
        self.cells = Cells(
            torch.full(shape, SENTINEL[CellState.UNWRITTEN], dtype=torch.int64, device=self.device),
            torch.full(shape, CellState.UNWRITTEN, dtype=torch.int8, device=self.device),
        )
        self.generation = torch.zeros(pages + 1, dtype=torch.int32, device=self.device)

    def k(self, layer: int) -> torch.Tensor:
        """Keys of one layer, ``[pages + 1, page_size, kv_heads, head_dim]``."""
        return self.kv[layer, 0]

    def v(self, layer: int) -> torch.Tensor:
        """Values of one layer, with the shape and the strides of its keys."""
        return self.kv[layer, 1]

    def release(self, pages: torch.Tensor) -> None:
        """End the tenancy of physical ``pages``, int64 ``[n]``, each listed once; queued like a kernel.

        Every generation grows by one, tags and states are reset; in debug mode the K/V becomes NaN.
        """
        self.generation.index_add_(0, pages, torch.ones_like(pages, dtype=torch.int32))
        self.cells.tags.index_fill_(0, pages, SENTINEL[CellState.UNWRITTEN])
        self.cells.states.index_fill_(0, pages, int(CellState.UNWRITTEN))
        if self.debug:
            self.kv.index_fill_(2, pages, float("nan"))
