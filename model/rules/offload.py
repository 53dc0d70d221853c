"""Rule *offload*: how copies to and from the host tier are ordered with compute, and what a change of tier leaves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Offload:
    """``store_after_steps``, ``load_after_steps``: a copy to (from) the host waits for every step dispatched before it
    began. ``steps_wait``: a step waits for the loads whose pages it touches; ``grants_wait``: it waits for the stores
    that still read a page it was granted. ``copies_wait``: a copy waits for earlier ones that use its slots.
    ``lost_is_miss``: pages of a failed copy leave the tree and whoever holds them restarts. ``brings_drafts``: pages
    of the drafter come back like the target's. ``keeps_order``: pages that come back stay in the order of their
    blocks. ``reattaches``: a resume tells the device where its pages lie now. ``addresses_slots``: the drafter's
    table rows name slots, not page ids. ``undoes_failed``: a resume that finds no room changes nothing.
    ``frees_aborted``: whoever ends gives up pages that a copy is still bringing back."""

    name: str = "fenced"
    store_after_steps: bool = True
    load_after_steps: bool = True
    steps_wait: bool = True
    grants_wait: bool = True
    copies_wait: bool = True
    lost_is_miss: bool = True
    brings_drafts: bool = True
    keeps_order: bool = True
    reattaches: bool = True
    addresses_slots: bool = True
    undoes_failed: bool = True
    frees_aborted: bool = True

    def fenced(self, store: bool) -> bool:
        """Whether a copy of this direction waits for the steps before it."""
        return self.store_after_steps if store else self.load_after_steps

    def holds_up(self, store: bool) -> bool:
        """Whether a step waits for an open copy of this direction that uses one of its slots."""
        return self.grants_wait if store else self.steps_wait
