"""One scheduling pass: generation first, then context chunks; whom to suspend, preempt, defer or leave waiting."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from model.config import Limits, PublishPolicy
from model.joint import Twin
from model.pages import PagePool
from model.request import CONTEXT, GENERATION, WAITING, Request, Totals
from model.rules.base import Rules
from model.sequence import ACTIVE

if TYPE_CHECKING:
    from model.events import EventLog


class Scheduled:
    """What one pass took. ``before`` are the capacities of each chunk's sequences before the pass grew them."""

    __slots__ = ("before", "chunks", "deferred", "evicted", "generation", "refused", "slotless")

    def __init__(self) -> None:
        self.generation: list[Request] = []
        self.chunks: list[tuple[Request, int, bool]] = []  # request, end, last
        self.before: list[list[int]] = []
        self.refused: list[Request] = []  # first chunks that found no pages
        self.slotless: list[Request] = []  # first chunks that found no sequence slot
        self.evicted = 0  # suspended or preempted
        self.deferred = 0

    def order(self) -> None:
        """Put chunks that complete their context behind those that do not."""
        rows = sorted(zip(self.chunks, self.before, strict=True), key=lambda entry: entry[0][2])
        self.chunks = [chunk for chunk, _ in rows]
        self.before = [before for _, before in rows]

    def empty(self) -> bool:
        """Whether there is nothing to run."""
        return not self.generation and not self.chunks


class Scheduler:
    """Queues of one engine and the pass over them.

    ``running`` holds started requests and ``active`` candidates that were fetched from ``waiting``; both in order of
    arrival, which a preemption does not change. At most ``max_batch`` requests are fetched at once.
    """

    def __init__(self, twin: Twin, limits: Limits, rules: Rules, policy: PublishPolicy, totals: Totals, log: EventLog):
        self.twin, self.limits, self.rules = twin, limits, rules
        self.totals, self.log = totals, log
        self.waiting: deque[Request] = deque()
        self.active: list[Request] = []
        self.by_prefix = policy is PublishPolicy.ALL_REUSABLE and limits.deferral and rules.deferral.by_prefix
        self._computing: dict[int, Request] = {}  # key of a block that a running context will publish -> request
        self._short: dict[int, tuple[PagePool, int, int]] = {}  # owner -> pool that refused it, pages, cached blocks
        self._lower_tier = any(pool.host_pages for pool in twin.pools.values())
        self._budget = 0
        self._idle = False  # the last pass took nothing
        self.lent: set[int] = set()  # owners that ended while a transfer used their pages
        self.on_starved: Callable[[Request], None] | None = None  # an observer of verify rows that found no pages
        self.on_refused: Callable[[Request, int, bool], None] | None = None  # an observer of refused chunks
        self.on_claimed: Callable[[Request], None] | None = None  # an observer of claims

    # -- queues --------------------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a new request."""
        self.waiting.append(request)

    def put_back(self, request: Request) -> None:
        """Queue a preempted request at its place of arrival; it stays among the fetched ones."""
        if request not in self.active:
            insort(self.active, request, key=lambda item: item.order)

    def remove(self, request: Request) -> None:
        """Forget an ended request."""
        if request in self.active:
            self.active.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)
        self.forget(request)

    def forget(self, request: Request) -> None:
        """Drop what the scheduler remembers of a request's context."""
        self._short.pop(request.owner, None)
        keys = request.keys
        if keys is not None and self.by_prefix:
            computing = self._computing
            for key in keys.keys[request.claim.tokens // self.limits.page_size :]:
                if computing.get(key) is request:
                    del computing[key]

    # -- the pass ------------------------------------------------------------------------------------------------

    def run(self, prepare: Callable[[Request], None], in_flight: int) -> Scheduled:
        """Schedule one iteration; ``prepare(request)`` makes a waiting request's tokens and keys known."""
        taken = Scheduled()
        self._budget = self.limits.max_num_tokens
        self._fetch()
        self._generation(taken)
        self._context(taken, prepare)
        empty = taken.empty()
        if empty:
            self._short.clear()  # whatever was expected, look again
            # What an eviction gave shows in the next pass; requests that only step aside in turn give nothing.
            if not in_flight and (self._idle or not taken.evicted):
                self._unblock(taken)
        self._idle = empty
        taken.order()
        return taken

    def _unblock(self, taken: Scheduled) -> None:
        """Nothing runs and nothing can: the newest of several holders gives its pages up."""
        holders = [request for request in self.active if not request.pinned and self.twin.sequences(request)]
        if len(holders) > 1:
            self._preempt(holders[-1], taken)

    def _fetch(self) -> None:
        active, waiting = self.active, self.waiting
        while waiting and len(active) < self.limits.max_batch:
            active.append(waiting.popleft())

    def _generation(self, taken: Scheduled) -> None:
        widest = 1 + self.twin.config.drafter.drafts
        run_ahead, most, grow, generation = (
            self.limits.run_ahead,
            self.limits.max_batch,
            self.twin.grow_generation,
            taken.generation,
        )
        for request in list(self.active):
            if request.state is not GENERATION or request.in_flight > run_ahead:
                continue
            if request.generated + request.in_flight + request.first_in_flight >= request.spec.max_new_tokens:
                continue  # what is in flight completes it
            width = widest if request.spec.drafts else 1
            if width > self._budget or len(generation) >= most:
                return
            if not grow(request) and not self._make_generation_fit(request, taken):
                return
            if request.state is GENERATION:
                self._budget -= width
                generation.append(request)

    def _make_generation_fit(self, request: Request, taken: Scheduled) -> bool:
        """Grow a generation request that found no pages, taking from later ones; ``False`` if it had to step aside."""
        for victim in self._behind(request, taken):
            if self._lower_tier and self._suspend(victim, taken) and self.twin.grow_generation(request):
                return True
        for victim in self._behind(request, taken):
            self._preempt(victim, taken)
            if self.twin.grow_generation(request):
                return True
        if self.on_starved is not None:
            self.on_starved(request)
        self._suspend(request, taken)
        return False

    def _behind(self, request: Request, taken: Scheduled) -> list[Request]:
        """Requests that hold pages, came after ``request`` and are not in this pass, newest first."""
        later = [
            other
            for other in self.active
            if other.order > request.order
            and not other.pinned
            and self.twin.sequences(other)
            and other not in taken.generation
        ]
        return later[::-1] if self.rules.victim.newest_first else later

    def _suspend(self, request: Request, taken: Scheduled) -> bool:
        sequences = self.twin.sequences(request)
        if not any(sequence.status is ACTIVE for sequence in sequences):
            return False
        self.twin.suspend_all(request)
        taken.evicted += 1
        self.note_suspended(request)
        return True

    def note_suspended(self, request: Request) -> None:
        """Count a suspension."""
        request.record.suspensions += 1
        if not self.rules.epoch.keeps_drafts:
            request.drafts_of = -1
        self.totals.suspensions += 1
        self.log.suspended(request)

    def _preempt(self, request: Request, taken: Scheduled) -> None:
        """Free a request's pages; it prefills again from what of it is cached."""
        taken.evicted += 1
        if request.started:
            request.record.preemptions += 1
            self.totals.preemptions += 1
        self.log.preempted(request)
        self.restart(request)

    def restart(self, request: Request) -> None:
        """Back to the start of a context that now includes what was generated; the next epoch begins."""
        self.twin.free(request)
        self.forget(request)
        request.state = WAITING
        request.started = False
        request.cursor = 0
        request.keys = request.draft_keys = None
        request.grown.clear()
        request.owed = [0, 0]
        request.in_flight = 0
        request.first_in_flight = False
        request.missing = None
        request.rows = ()
        request.pinned = False
        request.received = -1
        request.lag = 0
        request.hit_used = False
        request.owner = -1
        if self.rules.victim.keeps_place:
            self.put_back(request)
        else:
            self._to_the_back(request)

    def _to_the_back(self, request: Request) -> None:
        """Queue a preempted request as if it had arrived now."""
        request.order = 1 + max(item.order for item in (*self.active, *self.waiting, request))
        if request in self.active:
            self.active.remove(request)
        self.waiting.append(request)

    # -- context -------------------------------------------------------------------------------------------------

    def _context(self, taken: Scheduled, prepare: Callable[[Request], None]) -> None:
        for request in list(self.active):
            if request.state not in (WAITING, CONTEXT):
                continue
            if len(taken.generation) + len(taken.chunks) >= self.limits.max_batch or self._budget <= 0:
                return
            if not self._chunk(request, taken, prepare):
                return

    def _chunk(self, request: Request, taken: Scheduled, prepare: Callable[[Request], None]) -> bool:
        """Try to schedule the next chunk of ``request``; ``False`` ends the pass."""
        first = not request.started
        if first:
            prepare(request)
            if not self.twin.sequences(request):
                if self._too_little_budget(request) or self._still_short(request) or self._defer(request, taken):
                    return True
                if not self.twin.has_room():
                    taken.slotless.append(request)
                    return True
                self.admit(request)
        before = [sequence.capacity for sequence in self.twin.sequences(request)]
        limits, drafts = self.limits, self.twin.config.drafter.drafts
        counted = self.rules.chunking.counted_from(request.cursor, first)
        size = self.rules.chunking.size(self._budget, counted, request.context_length, drafts, limits)
        if size <= 0:
            if first:
                request.reach = request.cursor
                self.abandon(request)
            return True
        end = request.cursor + size
        last = end >= request.context_length
        for manager in self.twin.managers:
            manager.short = None
        active = any(sequence.status is ACTIVE for sequence in self.twin.sequences(request))
        if not self.twin.grow_context(request, end, last):
            if self.on_refused is not None:
                self.on_refused(request, end, last)
            return self._chunk_failed(request, first, active, taken)
        charged = self.rules.chunking.charge(size, request.claim.tokens if first else 0)
        self._budget -= charged + (drafts if last else 0)
        taken.chunks.append((request, end, last))
        taken.before.append(before)
        if first and self.by_prefix and request.keys is not None:
            for key in request.keys.keys[request.cursor // limits.page_size :]:
                self._computing.setdefault(key, request)
        return True

    def _too_little_budget(self, request: Request) -> bool:
        """Whether what is left of the budget was too little for this request's first chunk already."""
        limits, drafts = self.limits, self.twin.config.drafter.drafts
        if request.reach < 0 or self._budget >= limits.chunk_unit:
            return False
        return self.rules.chunking.size(self._budget, request.reach, request.context_length, drafts, limits) <= 0

    def admit(self, request: Request) -> None:
        """Claim what both pools hold of the prompt and put the cursor there."""
        self.totals.admissions += 1
        claim = self.twin.claim(request, self.totals)
        request.claim = claim
        request.cursor = claim.tokens
        if self.on_claimed is not None:
            self.on_claimed(request)

    def abandon(self, request: Request) -> None:
        """A first chunk that is not scheduled gives its claims and its cursor back."""
        if not self.rules.admission.frees_failed_first:
            self.twin.suspend_all(request)
            return
        self.twin.free(request)
        request.cursor = 0

    def _chunk_failed(self, request: Request, first: bool, active: bool, taken: Scheduled) -> bool:
        self.totals.refused_admissions += 1
        self.log.refused(request)
        if first:
            taken.refused.append(request)
            self.abandon(request)
            self._remember_shortage(request)
            return self.limits.chunked_prefill
        behind = self._behind(request, taken)
        if not self._lower_tier and behind:
            chunked = [entry[0] for entry in taken.chunks]
            victim = next((other for other in behind if other not in chunked), None)
            if victim is not None:
                self._preempt(victim, taken)
            return False
        if active:
            self.note_suspended(request)
        if not self._others_hold(request) or not self.rules.suspension.keeps_context:
            self._preempt(request, taken)  # alone and still short: begin again with nothing held
        return self.limits.chunked_prefill

    def _others_hold(self, request: Request) -> bool:
        """Whether pages may still come back: from other requests, or from transfers of ended ones."""
        return bool(self.lent) or any(other is not request and self.twin.sequences(other) for other in self.active)

    def _remember_shortage(self, request: Request) -> None:
        """Note how much the pool that refused a first chunk has to offer before a retry is worth it."""
        for manager in self.twin.managers:
            if manager.short is not None:
                pool, lacking = manager.short
                self._short[request.owner] = (pool, pool.obtainable() + lacking, self._published())
                return

    def _still_short(self, request: Request) -> bool:
        """Whether the pool that refused this request last still has too few pages for it."""
        known = self._short.get(request.owner)
        if known is None:
            return False
        if known[0].obtainable() < known[1] and known[2] == self._published():
            return True
        del self._short[request.owner]
        return False

    def _published(self) -> int:
        """Blocks ever cached: while it stands still no request can match more than it did."""
        return sum(manager.tree.grown for manager in self.twin.managers)

    def _defer(self, request: Request, taken: Scheduled) -> bool:
        """Whether a request in this pass computes the first block that this one would have to compute."""
        if not self.by_prefix or not self._computing:
            return False
        key = request.missing
        if key is None or key not in self._computing:
            key = request.missing = self.twin.first_new_key(request)
        other = self._computing.get(key) if key is not None else None
        if other is None or other is request or not any(entry[0] is other for entry in taken.chunks):
            return False
        taken.deferred += 1
        self.totals.deferrals += 1
        self.log.deferred(request, other)
        return True
