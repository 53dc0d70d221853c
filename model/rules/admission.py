"""Rules *admission*, *suspension*, *epoch*, *rewind* and *accounting*: order and undo of growing two pools."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Admission:
    """``counts_draft``: both pools must grow before a request is admitted. ``reverts_target``, ``reverts_draft``:
    a growth that the other pool or the forward could not follow is undone. ``frees_failed_first``: a first chunk
    that is not scheduled gives its claims back. ``rewinds_on_fallback``: a claim without reuse moves the cursor
    back. ``covers_block``: drafter pages reach behind the drafts for the block the drafter writes. ``clips``: the
    target may claim no deeper than the drafter did."""

    name: str = "symmetric"
    counts_draft: bool = True
    reverts_target: bool = True
    reverts_draft: bool = True
    frees_failed_first: bool = True
    rewinds_on_fallback: bool = True
    covers_block: bool = True
    clips: bool = True


@dataclass(frozen=True, slots=True)
class Suspension:
    """``both``: a victim gives up both pools."""

    name: str = "both-pools"
    both: bool = True


@dataclass(frozen=True, slots=True)
class Epoch:
    """``refuses_late``: outputs of a step from before a preemption are dropped. ``releases_rows``: an absent
    request's row slot is given up, and a returning one gets a row of its own."""

    name: str = "fresh"
    refuses_late: bool = True
    releases_rows: bool = True


@dataclass(frozen=True, slots=True)
class Rewind:
    """``recorded``: undo what was recorded as grown; otherwise the padded draft length."""

    name: str = "recorded-width"
    recorded: bool = True

    def surplus(self, grown: int, committed: int, padded: int) -> int:
        """Tokens of capacity to take back after ``committed`` of ``grown`` were used."""
        return (grown if self.recorded else padded) - committed


@dataclass(frozen=True, slots=True)
class Accounting:
    """``recompute_apart``: a hit of a preempted request on its own pages is not counted as reuse."""

    name: str = "ledger"
    recompute_apart: bool = True
