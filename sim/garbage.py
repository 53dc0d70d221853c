"""Python's garbage collector, which has little to find in a run and looks through much."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the collector look less often: a run keeps very many tree nodes alive (7 % of a long trace)."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
