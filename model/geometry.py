"""Pages, windows and bytes: the arithmetic that every room shares.

Positions and lengths are tokens, blocks are page ordinals within one sequence, ranges are half open.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


def cdiv(value: int, unit: int) -> int:
    """Return ``value / unit`` rounded up; both are non-negative, ``unit`` is positive."""
    return -(-value // unit)


def floor_to(value: int, unit: int) -> int:
    """Return the largest multiple of ``unit`` that is at most ``value``."""
    return value // unit * unit


class ReusePolicy(enum.IntEnum):
    """How a lifecycle takes part in prefix reuse (semantics of the unified layout)."""

    REQUIRED = 0  # constrains every match
    OPTIONAL = 1  # never constrains a match; claimed only where its window is complete
    PRIVATE = 2  # never matched, never published, always fresh pages


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """One retention class of KV layers: which tokens it keeps, and which pool its pages come from.

    ``window`` counts tokens (``None`` keeps all), ``sinks`` counts tokens kept at the front, ``trail`` counts
    tokens kept below the window, ``lookahead`` is the number of following tokens that a cell depends on.
    """

    name: str
    pool: str
    role: str  # "target" or "draft"
    window: int | None = None
    sinks: int = 0
    trail: int = 0
    lookahead: int = 0
    policy: ReusePolicy = ReusePolicy.REQUIRED
    bytes_per_token: int = 0

    def retained_from(self, history: int) -> int:
        """First position that stays backed at ``history``: the window of the query at ``history`` and its trail."""
        if self.window is None:
            return 0
        return max(0, history + 1 - self.window - self.trail)

    def read_from(self, position: int) -> int:
        """First position that the query at ``position`` attends, sinks aside."""
        return 0 if self.window is None else max(0, position + 1 - self.window)

    def sink_blocks(self, page_size: int) -> int:
        """Number of leading blocks that are never released."""
        return 0 if self.window is None else cdiv(self.sinks, page_size)

    def stale_range(self, history: int, page_size: int) -> tuple[int, int]:
        """Blocks ``[begin, end)`` that nothing will read once ``history`` tokens are settled.

        The live window is ``[history + 1 - window, history]``: the query at ``history`` is in flight.
        """
        if self.window is None:
            return (0, 0)
        begin = min(cdiv(history, page_size), self.sink_blocks(page_size))
        return (begin, max(begin, self.retained_from(history) // page_size))

    def live_blocks(self, history: int, capacity: int, page_size: int) -> int:
        """Number of blocks that are backed for ``capacity`` tokens when ``history`` of them are settled."""
        begin, end = self.stale_range(history, page_size)
        blocks = cdiv(capacity, page_size)
        return blocks - (min(end, blocks) - min(begin, blocks))

    def peak_blocks(self, longest: int, step: int, page_size: int) -> int:
        """Most blocks that one sequence of up to ``longest`` tokens backs while it advances by up to ``step``.

        A window that is no longer than a page may straddle two of them, so the bound is not ``cdiv(window, page)``.
        """
        everything = cdiv(longest, page_size)
        if self.window is None:
            return everything
        span = self.window + self.trail + step - 1
        return min(everything, self.sink_blocks(page_size) + cdiv(max(0, span - 1), page_size) + 1)


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Storage shape of the KV layers behind one lifecycle."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype_bytes: int = 2

    def bytes_per_token(self, tensor_parallel: int = 1) -> int:
        """Bytes of K and V for one token on the fullest rank; heads are sharded, never fewer than one a rank."""
        heads = cdiv(self.kv_heads, tensor_parallel)
        return self.layers * 2 * heads * self.head_dim * self.dtype_bytes

    def bytes_per_page(self, page_size: int, tensor_parallel: int = 1) -> int:
        """Bytes of one page of ``page_size`` tokens on one rank (seed_figures X1)."""
        return self.bytes_per_token(tensor_parallel) * page_size
