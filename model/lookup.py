"""What an n-gram drafter keeps: per row slot, whose tokens it has read and how far. It has no KV and no pool."""

from __future__ import annotations

from model.rules.lookup import Lookup


class LookupTable:
    """Ingest state of the row slots. A draft is looked up among the tokens that were read."""

    def __init__(self, slots: int) -> None:
        self.reader = [-1] * slots  # owner whose tokens were read last
        self.watermark = [0] * slots  # tokens read

    def bind(self, slot: int, rule: Lookup) -> None:
        """A slot gets a request."""
        if rule is Lookup.FROM_START:
            self.reader[slot] = -1
            self.watermark[slot] = 0

    def read(self, slot: int, owner: int, length: int) -> None:
        """Read on to the ``length`` tokens that are known; nothing is read twice."""
        if self.watermark[slot] < length:
            self.watermark[slot] = length
            self.reader[slot] = owner
