"""Rule *budget*: how bytes become the pages of two pools."""

from __future__ import annotations

from dataclasses import dataclass, replace

from model.budget import (
    Cost,
    HostShare,
    Pair,
    admissible_sequences,
    split_device,
    split_host,
    split_host_paired,
    window_pages,
    window_share,
)
from model.config import Drafter, Limits
from model.geometry import cdiv


@dataclass(frozen=True, slots=True)
class Budget:
    """Target and drafter hold equally many tokens, a windowed drafter has a share for every admissible sequence.

    ``host``: what the drafter gets of the host tier. ``splits_device`` and ``splits_host`` off: each pool takes all.
    ``headroom`` off: the share charges bare windows. ``trail`` off: what is kept below a window is not charged.
    ``own_window`` off: the drafter is charged with the target's window. What ranks agree on is the *ranks* rule's.
    """

    name: str = "window-share"
    host: HostShare = HostShare.GIVEN
    splits_device: bool = True
    splits_host: bool = True
    headroom: bool = True
    trail: bool = True
    own_window: bool = True

    def share(self, limits: Limits, drafter: Drafter, trail: int, target_window: int | None) -> int:
        """Pages of the window-sized share."""
        if not self.own_window:
            drafter = replace(drafter, window=target_window)
        if drafter.window is None:
            longest = cdiv(limits.max_seq_len, limits.page_size)
            return admissible_sequences(limits.max_batch, limits.run_ahead) * longest
        if not self.headroom:
            bare = window_pages(drafter.window, limits.page_size)
            sequences = admissible_sequences(limits.max_batch, limits.run_ahead)
            return sequences * bare + cdiv(limits.max_num_tokens, limits.page_size)
        return window_share(limits, drafter, trail if self.trail else 0)

    def on_device(self, budget: int, total: Cost, target: Cost) -> Pair:
        """Device bytes of both pools."""
        if not self.splits_device:
            return Pair(budget, budget)
        return split_device(budget, total, target) or Pair(budget, 0)

    def on_host(self, host: int, total: Cost, target: Cost, draft_device: int, given: int) -> Pair:
        """Host bytes of both pools."""
        if not self.splits_host:
            return Pair(host, host)
        if self.host is HostShare.SLOPES:
            return split_host(host, total, target)
        if self.host is HostShare.FUNDING:
            return split_host_paired(host, draft_device)
        return Pair(host - given, given)


SLOPES = Budget("affine-split", HostShare.SLOPES)
FUNDING = Budget("host-by-draft-funding", HostShare.FUNDING)
