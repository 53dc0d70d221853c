"""Whether a suspended sequence may resume and one more may begin, from page states and sequences alone."""

from __future__ import annotations

from model.eviction import LOCKED
from model.joint import Twin


def gate_open(twin: Twin) -> bool:
    """Whether no pool has more of its device pages locked than the resume gate allows; only those can be locked."""
    limit = twin.config.limits.max_util_for_resume
    if limit >= 1:
        return True
    return all(
        pool.device_pages > 0 and pool.state.count(LOCKED) / pool.device_pages <= limit for pool in twin.pools.values()
    )


def slots_left(twin: Twin) -> bool:
    """Whether every manager has a sequence slot for one more."""
    return all(len(manager.sequences) < manager.index_slots for manager in twin.managers)
