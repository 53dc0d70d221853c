"""What a drafter's mirror that cannot grow says: the size it wanted, and every mirror that holds pages."""

from __future__ import annotations

from model.manager import Manager
from model.sequence import SequenceCache


def resize_error(manager: Manager, sequence: SequenceCache, capacity: int) -> str:
    """One line: the request's wanted capacity in tokens, then capacity, history, blocks and windows of each mirror."""
    windows = ", ".join(str(life.window) if life.window is not None else "full" for life in manager.lifecycles)
    mirrors = "; ".join(
        f"owner {owner}: capacity {mirror.capacity}, history {mirror.history}, "
        f"{sum(table.count() for table in mirror.tables)} blocks"
        for owner, mirror in manager.sequences.items()
    )
    free = ", ".join(f"{pool.name} {pool.obtainable()} of {pool.device_pages}" for pool in manager.distinct_pools)
    return (
        f"draft KV cache context resize failed for owner {sequence.owner}: could not resize to {capacity} tokens; "
        f"windows {windows}; obtainable pages: {free}; live mirrors: {mirrors}"
    )
