"""STATE of what a row slot keeps between two steps: its base, its drafts, and what an n-gram drafter has read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model.geometry import cdiv
from model.invariants.base import Docket, Violation
from model.plan import ContextRow, GenerationRow
from model.reader import Reader

if TYPE_CHECKING:
    from model.lookup import LookupTable
    from model.slot_store import SlotStore


class SlotLaws:
    """Judge of the row slots of one memory."""

    def __init__(self, docket: Docket) -> None:
        self.docket = docket

    def _strange_base(self, shadow: SlotStore, row: ContextRow | GenerationRow) -> None:
        """A base hides nothing that its request has still to compute."""
        slot, length = row.slot, shadow.draft_length[row.slot]
        most = cdiv(length, shadow.page)
        self.docket.report(
            Violation(
                "STATE",
                f"row slot {slot} starts with the base of another request",
                row.request_id,
                position=length,
                step=shadow.iteration,
                expected=f"base page {most} at most: the request stands at position {length}",
                found=f"base page {shadow.base[slot]}",
            )
        )

    def looked_up(self, shadow: SlotStore, lookup: LookupTable, row: GenerationRow) -> None:
        """An n-gram drafter looks its drafts up in all tokens of its own request and in no others."""
        self.docket.count("STATE")
        slot, length = row.slot, shadow.length[row.slot]
        if lookup.reader[slot] == row.owner and lookup.watermark[slot] == length:
            return
        self.docket.report(
            Violation(
                "STATE",
                "drafts are looked up in the tokens of another request",
                row.request_id,
                position=length,
                step=shadow.iteration,
                expected=f"{length} tokens of owner {row.owner}",
                found=f"{lookup.watermark[slot]} tokens, the last of them of owner {lookup.reader[slot]}",
            )
        )

    def _strange_drafts(self, shadow: SlotStore, row: GenerationRow, reader: Reader, position: int) -> None:
        """Drafts belong to the epoch and the position at which the drafter's last pass proposed them."""
        proposed = f"drafts proposed at position {reader.flushed}" if reader.slot >= 0 else "no drafts in this epoch"
        self.docket.report(
            Violation(
                "STATE",
                "verifies drafts that are not its own" if row.real_drafts else "lost the drafts it had",
                row.request_id,
                position=position,
                step=shadow.iteration,
                expected=proposed,
                found=f"a row at {position} that verifies {'drafts' if row.real_drafts else 'placeholders'}",
            )
        )
