"""Rule *slots*: where a drafter slot starts, and what survives a missed iteration or a failed forward."""

from __future__ import annotations

from dataclasses import dataclass

from model.drafter import Seed, SlotState
from model.geometry import cdiv, floor_to


@dataclass(frozen=True, slots=True)
class Slots:
    """Answers of a slots rule; the defaults are today's.

    ``hides_prefix``: a prefix whose drafter cells do not exist here lies below the base. ``parks``: an absent
    request's base is kept. ``seed``: where a slot with no parked base starts. ``keeps_base``: a failed forward
    restores the base as well as the length. ``stores_in_place``: a context tail is stored at its target position,
    not at the slot's own 0. ``checks_trail``: a seed on the page boundary is used only where pools keep a trailing
    page. ``forgets_ended``: a new request under an ended one's id starts with a base of its own. ``counts_missed``
    (wrong): a prefix that was not there to restore is hidden, and the slot's length advances by it all the same.
    """

    name: str = "parked-and-resumed"
    hides_prefix: bool = True
    parks: bool = True
    seed: Seed = Seed.PAGE
    keeps_base: bool = True
    stores_in_place: bool = True
    checks_trail: bool = True
    forgets_ended: bool = True
    counts_missed: bool = False

    def first(self, claim: int, reused: int, page_size: int) -> SlotState:
        """Slot of a request whose context starts at ``claim`` with ``reused`` drafter tokens claimed along.

        A claim inside a page leaves cells of it unwritten, so the base is rounded up and hides the whole page.
        """
        if claim and not self.stores_in_place:
            return SlotState(0, 0)
        if reused or not claim or not self.hides_prefix:
            return SlotState(0, claim)
        return SlotState(cdiv(claim, page_size), claim + (claim if self.counts_missed else 0))

    def returning(self, parked: int | None, position: int, page_size: int, trailing: bool = True) -> SlotState:
        """Slot of a request that missed an iteration and continues at absolute ``position``.

        A seed on the page boundary trails the request by part of a page, so it needs pools that keep a ``trailing``
        page below each window; without one the slot starts at the position itself.
        """
        if parked is not None and self.parks:
            return SlotState(parked, position)
        if self.seed is Seed.ZERO:
            return SlotState(0, 0)
        if self.seed is Seed.PAGE and (trailing or not self.checks_trail):
            return SlotState(position // page_size, floor_to(position, page_size))
        return SlotState(cdiv(position, page_size), position)
