"""Rule *lookup*: what an n-gram drafter, which keeps no KV, remembers of the request before."""

from __future__ import annotations

import enum


class Lookup(enum.Enum):
    """Rule *lookup*: where an n-gram drafter goes on reading when a slot gets another request."""

    FROM_START = "at the request's first token"
    FROM_WATERMARK = "where the slot's last request ended"
