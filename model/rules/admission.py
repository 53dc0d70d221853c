"""Rules *admission*, *suspension*, *epoch*, *rewind* and *accounting*: order and undo of growing two pools."""

from __future__ import annotations

from dataclasses import dataclass

from model.geometry import Lifecycle, cdiv
from model.pages import PagePool
from model.table import TableRow


@dataclass(frozen=True, slots=True)
class Admission:
    """``counts_draft``: both pools must grow before a request is admitted. ``reverts_target``, ``reverts_draft``:
    a growth that the other pool or the forward could not follow is undone. ``frees_failed_first``: a first chunk
    that is not scheduled gives its claims back. ``rewinds_on_fallback``: a claim without reuse moves the cursor
    back. ``covers_block``: drafter pages reach behind the drafts for the block the drafter writes. ``clips``: the
    target may claim no deeper than the drafter did; without ``limits`` each claims its own match.
    ``refuses_oversized``: what can never fit is refused when it arrives. ``straddles``: a window may lie across one
    page more than it fills. ``counts_pages``: growth takes as many pages as its tokens need, not one.
    ``grows_row``: a verify row is backed for all of its tokens, not for the next one alone. ``charges_once``: a
    pool grows once for each row. ``reserve``: how often K is backed behind a context. ``counts_cached``: pages that
    are only cached can be had as well as free ones. ``reverts_at_gate``: growth is also undone where a fleet's
    benchmark gate keeps the step back."""

    name: str = "symmetric"
    counts_draft: bool = True
    reverts_target: bool = True
    reverts_draft: bool = True
    frees_failed_first: bool = True
    rewinds_on_fallback: bool = True
    covers_block: bool = True
    clips: bool = True
    limits: bool = True
    refuses_oversized: bool = True
    straddles: bool = True
    counts_pages: bool = True
    grows_row: bool = True
    charges_once: bool = True
    reserve: int = 1
    reverts_at_gate: bool = True
    counts_cached: bool = True

    def obtainable(self, pool: PagePool, returning: int = 0) -> int:
        """Pages that ``pool`` can give to whom ``returning`` pages come back from the host tier."""
        return pool.obtainable(returning) if self.counts_cached else pool.free_count()

    def floor(self, life: Lifecycle, longest: int, step: int, claims: int, page_size: int) -> int:
        """Pages of a lifecycle without which a request of up to ``longest`` tokens, claiming ``claims`` of them at
        most, cannot run alone."""
        if not self.straddles and life.window is not None:
            return cdiv(min(longest, life.window), page_size)
        # While a claim's partial page is copied, the shared one is held beside its copy.
        return max(life.peak_blocks(longest, step, page_size), life.peak_blocks(claims, 1, page_size) + 1)

    def grown(self, width: int) -> int:
        """Tokens that a verify row of ``width`` tokens is recorded to have grown."""
        return width if self.grows_row else 1

    def growth(self, width: int, draft: bool) -> int:
        """Tokens that a pool really grows for a verify row of ``width`` tokens."""
        return self.grown(width) * (1 if self.charges_once or not draft else 2)

    def reached(self, capacity: int, backed: int, page_size: int) -> int:
        """Capacity that growth aims at when ``capacity`` is wanted and ``backed`` tokens lie in pages."""
        return capacity if self.counts_pages else min(capacity, backed + page_size)


@dataclass(frozen=True, slots=True)
class Suspension:
    """``both``: a victim gives up both pools. ``keeps_context``: a context that lacks pages for its next chunk waits
    with what it has computed; otherwise it gives all of it up. ``gates_used``: what the resume gate limits is the
    share of a pool that is in use."""

    name: str = "both-pools"
    both: bool = True
    keeps_context: bool = True
    gates_used: bool = True

    def share(self, used: float) -> float:
        """What the resume gate compares with its limit when ``used`` is the share of a pool that is locked."""
        return used if self.gates_used else 1 - used


@dataclass(frozen=True, slots=True)
class Epoch:
    """``refuses_late``: outputs of a step from before a preemption are dropped. ``releases_rows``: an absent
    request's row slot is given up, and a returning one gets a row of its own. ``drops_drafts``: drafts are verified
    only in the epoch that proposed them. ``keeps_drafts``: a request that is only absent keeps those it has.
    ``frees_draft``: a request that ends gives back its drafter's pages.
    ``ends_once``: what arrives for a request that was cancelled does not end it, and free its pages, again."""

    name: str = "fresh"
    refuses_late: bool = True
    releases_rows: bool = True
    drops_drafts: bool = True
    keeps_drafts: bool = True
    frees_draft: bool = True
    ends_once: bool = True

    def may_verify(self, proposed_by: int, owner: int) -> bool:
        """Whether ``owner`` verifies drafts of the epoch ``proposed_by`` (-1: there are none)."""
        return proposed_by == owner if self.drops_drafts else proposed_by >= 0

    def left_to_free(self, tables: tuple[TableRow, ...], ended: bool) -> tuple[TableRow, ...]:
        """Of the tables of a row whose request is not there any more, those that its output has still to free.

        None: a request gives its pages back when it ends, or begins anew, and at no other time.
        """
        return () if self.ends_once or not ended else tables


@dataclass(frozen=True, slots=True)
class Rewind:
    """``recorded``: undo what was recorded as grown; otherwise the padded draft length. ``records_tail``: pages
    behind the settled history are on record and go back with the rest."""

    name: str = "recorded-width"
    recorded: bool = True
    records_tail: bool = True

    def surplus(self, grown: int, committed: int, padded: int) -> int:
        """Tokens of capacity to take back after ``committed`` of ``grown`` were used."""
        return (grown if self.recorded else padded) - committed

    def forgotten(self, blocks: int, history: int, page_size: int) -> int:
        """Last pages of a sequence of ``blocks`` that nobody gives back when it ends."""
        return 0 if self.records_tail else max(0, blocks - cdiv(history, page_size))


@dataclass(frozen=True, slots=True)
class Accounting:
    """``recompute_apart``: a hit of a preempted request on its own pages is not counted as reuse.
    ``with_drafts``: hits are reported when tokens are drafted, too. ``retracts_lost``: a hit whose pages were lost on
    their way from the host tier is taken back. ``recomputes_output``: what a preempted request had generated is part
    of what it computes again."""

    name: str = "ledger"
    recompute_apart: bool = True
    with_drafts: bool = True
    retracts_lost: bool = True
    recomputes_output: bool = True

    def recomputed(self, start: int, end: int, prompt: int) -> int:
        """Tokens of a chunk of a later epoch that count as computed again, behind a ``prompt`` of so many tokens."""
        return end - start if self.recomputes_output else max(0, min(end, prompt) - start)
