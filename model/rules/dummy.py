"""Rule *dummy*: what stands in for a request where there is none, what it owns and when it goes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dummy:
    """Answers about dummies; the defaults are today's.

    ``pads_unscheduled``: a rank of a fleet pads where nothing of its own is scheduled; otherwise only where no request
    is active. ``draft``: a dummy owns a cache in the drafter's pool as well. ``hints_draft``: that cache is told the
    history too. ``leaves_with_skip``: a dummy whose step is skipped goes with it. ``counts_extra``: the estimate of a
    warm-up includes the extra tokens and the verify row. ``undoes_partial``: a warm-up that fails half way gives
    everything back. ``in_both_maps``: the sequence slots of the drafter's manager count the dummies, too.
    """

    name: str = "cache-in-both-pools"
    pads_unscheduled: bool = True
    draft: bool = True
    hints_draft: bool = True
    leaves_with_skip: bool = True
    counts_extra: bool = True
    undoes_partial: bool = True
    in_both_maps: bool = True
