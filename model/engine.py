"""The engine: submit, cancel, suspend, dispatch and settle. Clock-free; the driver decides the order of events.

Life of one iteration: the pass schedules and allocates, slots are bound, the plan goes out, contexts advance (cursor,
publication, history) before the next dispatch; the settle of an iteration may follow the dispatch of the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from model.binding import RowBinder
from model.config import EngineConfig, PublishPolicy, RequestSpec
from model.copies import Copy, CopyBook
from model.dummies import PAD_TOKENS, Dummies
from model.events import EventLog, Kind
from model.geometry import cdiv
from model.joint import Twin
from model.launch import Launcher
from model.loss import Losses
from model.page_journal import PageJournal
from model.plan import Record, Recorder, SettledRow, StepPlan
from model.pool_use import PoolUse
from model.request import (
    CANCELLED,
    GENERATION,
    RECEIVING,
    SENDING,
    Request,
    RequestRecord,
    State,
    Totals,
    len_prompt,
    longest_context,
)
from model.rules.base import Rules
from model.scheduler import Scheduled, Scheduler
from model.sequence import ACTIVE
from model.settling import Settler
from model.tokens import TokenStream, prompt_tokens, stream_tokens


class Stalled(RuntimeError):
    """The deadlock detector: too many passes in a row had candidates and moved nothing."""


class Engine:
    """One worker: its pools, queues and steps in flight."""

    def __init__(self, config: EngineConfig, rules: Rules, log: EventLog) -> None:
        self.config, self.rules, self.log = config, rules, log
        self.totals = Totals()
        self.book = CopyBook(rules.offload) if config.asynchronous_copies else None
        self.recorder = Recorder(self.book)
        self.twin = Twin(config, rules, self.recorder)
        if log.decisions.keep:
            log.journal = self.recorder.journal = PageJournal(self.twin.pools.values())
        self.binder = RowBinder(self.twin, self.recorder)
        self.slots = self.binder.slots
        self.rules_of_device = rules.device()
        self.launcher, self._settler = Launcher(self), Settler(self)
        self.after_context = GENERATION  # SENDING on a worker that only prefills
        self.scheduler = Scheduler(self.twin, config.limits, rules, config.policy, self.totals, log)
        self.dummies = Dummies(self)
        self.reserved: dict[str, int] = {}  # pages by pool that a request has to leave to dummies in flight
        self.records: dict[int, RequestRecord] = {}
        self.live: dict[int, Request] = {}  # request id -> request that has not ended
        self.owners: dict[int, Request] = {}  # owner -> request of the current epoch
        self.lent = self.scheduler.lent
        self.plans: deque[StepPlan] = deque()
        self.iteration = 0
        self.stalled_passes = 0
        self.last_pass = Scheduled()
        self.withdrawn: list[tuple] = []  # bindings that the last failed forward took back
        self.on_planned: Callable[[StepPlan], None] | None = None  # an observer of plans, before contexts move on
        self._order = 0
        self._next_owner = 1

    # -- requests ------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Plans that were dispatched and not settled."""
        return len(self.plans)

    def has_work(self) -> bool:
        """Whether any request has not ended, or a step is in flight."""
        return bool(self.live) or bool(self.plans)

    def awaits(self) -> bool:
        """Whether another worker has to move first: pages are to be sent, to come, or still in a transfer's hands."""
        states = [request.state for request in self.live.values()]
        return bool(self.lent) or SENDING in states or RECEIVING in states

    def refusal(self, spec: RequestSpec) -> str | None:
        """Why a request can never be served, in one sentence; ``None`` if it can."""
        limits, twin = self.config.limits, self.twin
        prompt = len_prompt(spec)
        total = prompt + spec.max_new_tokens
        if prompt < 1 or spec.max_new_tokens < 1:
            return f"request {spec.request_id} needs a prompt and at least one output token"
        if spec.request_id in self.live:
            return f"request {spec.request_id} is still running"
        if total > limits.max_seq_len:
            return f"request {spec.request_id} needs {total} tokens, max_seq_len is {limits.max_seq_len}"
        drafts, most = self.config.drafter.drafts, limits.max_num_tokens
        if not limits.chunked_prefill and prompt + drafts > most:
            return f"request {spec.request_id} prefills {prompt} tokens at once, max_num_tokens is {most}"
        if not self.rules.admission.refuses_oversized:
            return None
        if not limits.chunked_prefill and longest_context(spec) + drafts > most:
            text = f"request {spec.request_id} may be preempted and then prefills up to {longest_context(spec)} tokens"
            return f"{text} at once, max_num_tokens is {most}"
        for name, pages in self.pages_needed(spec).items():
            have, pages = twin.pools[name].device_pages, pages + self.reserved.get(name, 0)
            if pages > have:
                return f"request {spec.request_id} needs up to {pages} pages of pool {name!r}, which has {have}"
        return None

    def pages_needed(self, spec: RequestSpec) -> dict[str, int]:
        """Pages of each pool that a request may need at once, of those that admission counts."""
        limits, twin, drafts = self.config.limits, self.twin, self.config.drafter.drafts
        prompt, page = len_prompt(spec), limits.page_size
        # Capacity runs ahead of what is settled: K behind the context, 1 + K for each verify row in flight.
        longest = prompt + drafts + limits.extra_tokens
        if spec.max_new_tokens > 1:
            total = prompt + spec.max_new_tokens
            longest = max(longest, total + limits.extra_tokens + (2 + limits.run_ahead) * drafts - 1)
        chunk = min(longest_context(spec), limits.max_num_tokens) + drafts
        step = limits.extra_tokens + max(chunk, drafts + (1 + limits.run_ahead) * (1 + drafts))
        need: dict[str, int] = {}
        claims = prompt if self.config.policy is not PublishPolicy.NONE else 0
        for column in twin.columns:
            if column.draft and not self.rules.admission.counts_draft:
                continue  # what admission does not count it cannot refuse
            life = column.lifecycle
            pages = self.rules.admission.floor(life, longest, step, claims, page)
            if column.draft and not twin.paired and not self.rules.mirror.hint(twin.kind, 1, 0):
                # Behind a hit the mirror has no history yet: it backs all that lies below.
                pages = max(pages, cdiv(longest, page))
            need[column.pool.name] = need.get(column.pool.name, 0) + pages
        return need

    def submit(self, spec: RequestSpec) -> None:
        """Queue a request; the caller has seen that :meth:`refusal` has no objection."""
        prompt = len_prompt(spec)
        record = RequestRecord(spec.request_id, spec.conversation, prompt)
        request = Request(spec, self.take_place(), record)
        request.context_length = prompt
        self.records[spec.request_id] = record
        self.live[spec.request_id] = request
        self.scheduler.add(request)
        self.log.submitted(request, prompt)

    def take_place(self) -> int:
        """The next place in the order of arrival."""
        self._order += 1
        return self._order - 1

    def prepare(self, request: Request) -> None:
        """Make tokens and keys known when a request is first considered in its epoch."""
        if request.keys is not None:
            return
        vocabulary = self.config.vocabulary
        if request.stream is None:
            spec = request.spec

            def more(start: int, count: int) -> NDArray[np.uint32]:
                ids = stream_tokens(spec.output_seed, start, count, vocabulary)
                told = spec.output[start : start + count]
                ids[: len(told)] = told
                return ids

            request.stream = TokenStream(prompt_tokens(spec.prompt, vocabulary), more)
        request.stream.require(request.record.prompt_tokens + request.spec.max_new_tokens + self._overshoot())
        request.context_length = request.record.prompt_tokens + request.generated
        request.owner = self.new_owner()
        self.owners[request.owner] = request
        self.twin.make_keys(request)

    def _overshoot(self) -> int:
        """Tokens past the last one asked for that rows in flight may still write."""
        width = 1 + self.config.drafter.drafts
        return (self.config.limits.run_ahead + 2) * width + self.twin.kind.tag_span(self.config.drafter.chain) + 1

    def new_owner(self) -> int:
        """A number that no request epoch and no dummy has had."""
        owner = self._next_owner
        self._next_owner += 1
        return owner

    def reserve_for_pads(self) -> None:
        """Take requests only that fit beside the pad dummies of the iterations in flight."""
        self.reserved = self.dummies.estimate(PAD_TOKENS, self.config.limits.run_ahead)

    def cancel(self, request_id: int) -> bool:
        """End a request at any point; pages are dropped at once, outputs in flight are ignored."""
        request = self.live.get(request_id)
        if request is None:
            return False
        self.log.note(Kind.CANCEL, request_id)
        self.totals.cancelled += 1
        self.end(request, CANCELLED)
        return True

    def suspend(self, request_id: int) -> bool:
        """Take the locks of a started request from outside (a disturbance)."""
        request = self.live.get(request_id)
        if request is None or not request.started or request.pinned:
            return False
        if not any(sequence.status is ACTIVE for sequence in self.twin.sequences(request)):
            return False
        self.twin.suspend_all(request)
        self.scheduler.note_suspended(request)
        return True

    def end(self, request: Request, state: State, keep_pages: bool = False) -> None:
        """Forget a request that finished, was cancelled or sent; its pages are dropped unless they are in use."""
        request.state = state
        request.record.state = state.value
        if keep_pages:
            self.lent.add(request.owner)
        else:
            self.twin.free(request, ended=True)
        self.scheduler.remove(request)
        if request.owner >= 0:
            self.binder.unbind(request.owner, request.request_id)
            self.owners.pop(request.owner, None)
            self.recorder.records.append((Record.END, request.owner))
            if not keep_pages:
                self.log.note(Kind.RELEASE, request.owner)
        del self.live[request.request_id]

    # -- dispatch ------------------------------------------------------------------------------------------------

    def dispatch(self, skip: str = "") -> StepPlan | None:
        """Schedule one iteration and hand out its plan; ``None`` when there is nothing to run.

        ``skip`` "gate": the batch cannot be queued, all growth is undone. "forward": its forward fails, the slots are
        restored too. Raises :class:`Stalled` when the deadlock detector fires.
        """
        taken = self.schedule()
        if taken is None:
            return None
        if skip:
            self.withdraw(taken, failed=skip == "forward")
            return None
        return self.launch(taken)

    def schedule(self) -> Scheduled | None:
        """Run one pass: what it took and grew waits for :meth:`launch` or :meth:`withdraw`; ``None`` if nothing."""
        if len(self.plans) > self.config.limits.run_ahead:
            return None
        owners = {request.request_id: request.owner for request in self.scheduler.active if request.owner >= 0}
        taken = self.scheduler.run(self.prepare, len(self.plans))
        self.last_pass = taken
        self._close_epochs(owners)
        if taken.empty():
            self._count_stall(taken)
            return None
        self.stalled_passes = 0
        return taken

    def launch(self, taken: Scheduled, pads: tuple[int, ...] = ()) -> StepPlan:
        """Queue what a pass took: rows get their slots, the plan goes out, contexts move on. ``pads`` are the owners
        of dummies that run along."""
        self.binder.bind_rows(taken.generation, [request for request, _, _ in taken.chunks])
        rows = self.dummies.bind(pads) if pads else ()
        plan = self.launcher.plan(taken)
        plan.dummies = rows
        self.plans.append(plan)
        self.log.evicted(self.twin.pools.values())
        self.log.planned(plan)
        if self.on_planned is not None:
            self.on_planned(plan)
        self.launcher.advance(taken)
        return plan

    def withdraw(self, taken: Scheduled, failed: bool, gate: bool = False) -> None:
        """What a pass took does not run: every growth is undone. ``failed``: its forward was queued and failed, so
        that slots had been bound and are restored. ``gate``: the benchmark gate of a fleet was shut."""
        if gate and not self.rules.admission.reverts_at_gate:
            return
        if failed:
            saved, mark = self.slots.snapshot(), len(self.recorder.records)
            self.binder.bind_rows(taken.generation, [request for request, _, _ in taken.chunks])
            self.withdrawn = self.recorder.records[mark:]
            del self.recorder.records[mark:]  # bindings that never ran leave the stream
            self.binder.roll_back(saved)
        self._revert(taken, failed)

    def _close_epochs(self, owners: dict[int, int]) -> None:
        """Forget the owners of requests that were preempted in this pass."""
        for request_id, owner in owners.items():
            request = self.live.get(request_id)
            if request is not None and request.owner != owner:
                self.binder.unbind(owner)
                if self.rules.epoch.refuses_late:
                    self.owners.pop(owner, None)
                self.recorder.records.append((Record.END, owner))

    def _count_stall(self, taken: Scheduled) -> None:
        if not self.live or self.plans or taken.evicted or taken.deferred or self.awaits():
            self.stalled_passes = 0
            return
        self.stalled_passes += 1
        if self.stalled_passes >= self.config.limits.stall_passes:
            waiting = ", ".join(str(request_id) for request_id in list(self.live)[:8])
            raise Stalled(f"{self.stalled_passes} passes in a row scheduled nothing; requests {waiting} wait")

    def _revert(self, taken: Scheduled, failed: bool) -> None:
        """Undo every growth of a pass whose forward did not run."""
        for request in taken.generation:
            self.twin.revert_generation(request)
        for (request, _, _), before in zip(taken.chunks, taken.before, strict=True):
            if request.started:
                self.twin.revert_context(request, before)
            else:
                self.scheduler.abandon(request)
                self.scheduler.forget(request)
        self.totals.skipped_forwards += not failed
        self.totals.failed_forwards += failed
        self.log.note(Kind.SKIP, self.iteration, failed)

    # -- settle --------------------------------------------------------------------------------------------------

    def settle(self, accepted: tuple[int, ...]) -> list[SettledRow]:
        """Apply the result of the oldest plan: ``accepted[i]`` tokens (1 .. 1 + K) for its generation row ``i``."""
        dummies = self.plans[0].dummies
        settled = self._settler.settle(accepted)
        if dummies:
            self.dummies.end(dummies)
        return settled

    # -- copies --------------------------------------------------------------------------------------------------

    def copy_refusal(self, number: int) -> str:
        """Why copy ``number`` cannot end now, in one sentence; empty if it can."""
        if self.book is None:
            return "copies between the tiers are done at once here"
        return self.book.refusal(number, self.plans[0].iteration if self.plans else None)

    def land(self, number: int) -> Copy:
        """A copy arrived; the caller has seen that :meth:`copy_refusal` has no objection."""
        assert self.book is not None
        copy = self.book.end(number)
        self.totals.stores += copy.store
        self.totals.loads += not copy.store
        self.log.note(Kind.LAND, number)
        return copy

    def lose(self, number: int) -> tuple[Copy, list[int]]:
        """A copy failed: what hangs on it is dropped. Returns it and the owners whose rows are void."""
        assert self.book is not None
        copy = self.book.open[number]
        self.log.note(Kind.LOSE, number)
        self.totals.lost_copies += 1
        return copy, Losses(self).lose(copy)

    def queued(self) -> list[tuple]:
        """The oldest records that no settled plan carried: those of the oldest plan in flight, or the next one's."""
        return self.plans[0].records if self.plans else self.recorder.records

    # -- views ---------------------------------------------------------------------------------------------------

    def occupancy(self) -> list[PoolUse]:
        """Pages of every pool by state."""
        return [pool.use() for pool in self.twin.pools.values()]
