"""Rule *transfer*: how the pages of a prefilled request reach the worker that decodes it.

A request that another worker prefilled starts in generation (gen-init): capacity ``L + K + X``, history ``L``, in
absolute coordinates (semantics.md sections 7 and 8). What the local tree holds of it is claimed, the rest is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from model.geometry import Lifecycle, floor_to
from model.rules.claim import Claim, recompute_tail

if TYPE_CHECKING:
    from model.rules.claim import ClaimRule, ClaimView

Step = TypeVar("Step")


@dataclass(frozen=True, slots=True)
class Transfer:
    """Answers of a transfer rule; the defaults are those of a sound connector.

    ``drafts``: the drafter's pages travel as well; otherwise its slot hides the prompt below its base. ``absolute``:
    history is the position that the request continues at, not what is left to receive. ``seeds_in_place``: a fresh
    drafter slot stands at that position, not at a slot-local 0. ``keeps_tail``: nothing is recomputed here, so the
    recompute of a speculative tail, a rule of local prefill, does not apply. ``own_lists``: each pool has page lists
    of its own. ``lists_drafts``: drafter pages that are to travel are listed. ``keeps_retained``: a windowed pool
    receives all that its retention keeps, not the window alone. ``waits_for_source``: the write starts behind the
    step that computes the last of it. ``waits_for_target``: and behind the steps that may still touch the pages it
    writes. ``drains``: a cancelled transfer keeps its pages until the write has stopped. ``registers_first``:
    received pages are published before their sequence may go.
    """

    name: str = "per-pool-fenced"
    drafts: bool = True
    absolute: bool = True
    seeds_in_place: bool = True
    keeps_tail: bool = True
    own_lists: bool = True
    keeps_retained: bool = True
    waits_for_source: bool = True
    waits_for_target: bool = True
    drains: bool = True
    lists_drafts: bool = True
    registers_first: bool = True

    def claim(self, view: ClaimView, local: ClaimRule, drafts: bool, position: int) -> Claim:
        """What the decode worker claims of its own tree; ``fresh``: the drafter's part is received, or hidden.

        ``drafts`` says whether drafter pages travel. Where they do not, they are claimed only if nothing is missing.
        """
        match = view.target
        covered = view.joint(match, getattr(local, "boundary", False))
        joint = covered == match and (drafts or not view.drafts or match == position)
        return Claim(match, fresh=not joint)

    def frontier(self, position: int, window: int | None, page_size: int) -> int:
        """Tokens of context with which a request starts that continues at ``position``."""
        return position if self.keeps_tail else recompute_tail(position, position, window or page_size, page_size)

    def history(self, position: int, claimed: int) -> int:
        """History with which a sequence starts that continues at ``position`` and claims ``claimed`` tokens."""
        return position if self.absolute else position - claimed

    def leaving(self, register: Step, remove: Step) -> tuple[Step, Step]:
        """Order of the two steps with which a received sequence that nobody needs any more leaves."""
        return (register, remove) if self.registers_first else (remove, register)

    def first(self, lifecycle: Lifecycle, position: int, backed_from: int, page_size: int) -> int:
        """First position that a windowed pool receives; ``backed_from`` is where its table starts."""
        if self.keeps_retained:
            return backed_from
        return max(backed_from, floor_to(lifecycle.read_from(position), page_size))
