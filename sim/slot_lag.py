"""A drafter slot that trails its request: how often its window starts below what the mirror still backs (X13)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from model.builds import BUILDS
from model.config import Limits
from model.geometry import Lifecycle
from model.manager import Manager
from model.pages import PagePool
from model.plan import Recorder
from model.tree import Match


def released_reads(
    lag: int, counts: Sequence[int], trail: int, *, page: int = 128, window: int = 4096, steps: int = 600
) -> int:
    """Steps of ``steps`` whose reads begin in a released entry.

    The slot was seeded ``lag`` tokens below its request, each step accepts the next of ``counts`` (in turn) tokens,
    and the mirror keeps ``trail`` tokens below the ``window``. Source: seed 002, semantics of the trailing page.
    """
    limits = Limits(page_size=page, max_batch=1, max_num_tokens=8192, max_seq_len=1 << 20, chunk_unit=page)
    pools = {"draft": PagePool("draft", 0, 64)}
    life = Lifecycle("draft", "draft", "draft", window=window, trail=trail)
    manager = Manager("draft", [life], pools, limits, BUILDS["mirror-21281"].rules, Recorder())
    mirror = manager.create(1, None, Match([], 0), 0)
    if not mirror.resume():
        raise RuntimeError("an empty mirror could not be resumed")
    history = 10 * window + lag
    wrong = 0
    for count in itertools.islice(itertools.cycle(counts), steps):
        if not mirror.resize(history + 16, history):
            raise RuntimeError(f"the mirror could not be resized to {history + 16} tokens")
        slot_end = history - lag + count  # after folding the accepted tokens
        wrong += life.read_from(slot_end) // page < mirror.tables[0].base
        history += count
    return wrong
