"""Rule *columns*: how many page columns the device's block tables have."""

from __future__ import annotations

import enum

from model.config import Limits
from model.geometry import cdiv


class Columns(enum.Enum):
    """Answers. A request at the length limit still has verify rows in flight behind it."""

    ROWS_IN_FLIGHT = "length limit, rows in flight and headroom"
    LENGTH_LIMIT = "length limit"

    def count(self, limits: Limits, drafts: int) -> int:
        """Columns of a row: 8,193 for a million tokens in pages of 128 (X16)."""
        behind = limits.extra_tokens + (limits.run_ahead + 2) * (1 + drafts) if self is Columns.ROWS_IN_FLIGHT else 0
        return cdiv(limits.max_seq_len + behind, limits.page_size)
