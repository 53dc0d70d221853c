"""Occupancy of a page pool, as reports show it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolUse:
    """Occupancy of one pool in pages."""

    name: str
    device_pages: int
    free: int
    droppable: int
    held: int
    locked: int
    peak: int
    host_pages: int
    host_used: int
    granted: int
    evicted: int
