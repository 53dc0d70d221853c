"""Which device a backend runs on, and how much memory it has left."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from model.budget import gib


class DeviceMemoryError(RuntimeError):
    """The device or the host has too little memory; the text is one sentence with the figures."""


def default_device() -> torch.device:
    """The current GPU, or the CPU where there is none."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def free_bytes(device: torch.device) -> int | None:
    """Bytes that allocations on ``device`` can still get, the allocator's idle cache included; ``None`` on a CPU."""
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def require_memory(what: str, pages: int, page_bytes: int, free: int | None) -> None:
    """``DeviceMemoryError`` if ``pages`` pages of ``page_bytes`` bytes are more than ``free`` bytes."""
    needed = pages * page_bytes
    if free is not None and needed > free:
        raise DeviceMemoryError(
            f"{what} needs {gib(needed):.2f} GiB for {pages:,} pages of {page_bytes:,} bytes, but only "
            f"{gib(free):.2f} GiB are free, enough for {free // page_bytes:,} pages"
        )


def release(device: torch.device) -> None:
    """Give back what nobody holds any more, cycles included, so that other processes on ``device`` find room.

    Nothing is done on a CPU, whose memory Python's own collections free in time.
    """
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def let_go(error: BaseException) -> None:
    """Empty the frames that ``error`` came through: whoever keeps it keeps its places, not the pools of a run."""
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__


@contextmanager
def uncollected() -> Iterator[None]:
    """No collection while a graph is captured: one that found an older graph would free it, which a capture forbids."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
