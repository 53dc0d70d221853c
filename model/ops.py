"""The op alphabet and its total interpreter: one language for every driver of the model.

An op is an input from outside the engine. ``World.apply`` accepts any op at any time: what is illegal now is a
skip that says why, so every part of a trace is a trace.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from model import warmup
from model.builds import Build
from model.config import EngineConfig, RequestSpec
from model.engine import Engine, Stalled
from model.events import EventLog
from model.follower import Follower
from model.invariants.base import Docket, Violation
from model.invariants.watch import Watch
from model.linkops import Abort, Arrive, LinkOp, Send
from model.plan import SettledRow, StepPlan
from model.pool_use import PoolUse
from model.request import RequestRecord, Totals


class Submit(NamedTuple):
    """A client sends a request."""

    spec: RequestSpec


class Dispatch(NamedTuple):
    """The engine schedules an iteration; ``skip``: it cannot be queued and all growth is undone."""

    skip: bool = False


class Settle(NamedTuple):
    """The oldest iteration in flight ends: tokens committed (1 .. 1 + K) for each of its generation rows, in order."""

    accepted: tuple[int, ...]


class Cancel(NamedTuple):
    """A client gives a request up."""

    request_id: int


class Suspend(NamedTuple):
    """Both pools of a request give up their locks."""

    request_id: int


class Fail(NamedTuple):
    """An iteration is scheduled and its forward fails: slots and growth are restored."""


class Shrink(NamedTuple):
    """Cached pages of a pool are evicted until at most ``pages`` stay."""

    pool: str
    pages: int


class At(NamedTuple):
    """An op for one worker of several; a single one is worker 0."""

    worker: int
    op: Op


class Land(NamedTuple):
    """A copy between the tiers arrives; copies are numbered in the order in which they began."""

    copy: int


class Lose(NamedTuple):
    """A copy between the tiers fails: its target holds nothing of worth."""

    copy: int


class Warmup(NamedTuple):
    """Before any request a batch of dummies of ``tokens`` runs once, for all graphs to be captured."""

    batch: int
    tokens: int


Op = Submit | Dispatch | Settle | Cancel | Suspend | Fail | Shrink | Land | Lose | Warmup | LinkOp


@dataclass(slots=True)
class Outcome:
    """What an op did: not ``applied`` is a skip and ``why`` says so in one sentence."""

    applied: bool
    why: str = ""
    plan: StepPlan | None = None
    settled: list[SettledRow] = field(default_factory=list)
    plans: tuple[StepPlan | None, ...] = ()  # of a fleet, rank by rank


CHECKS = ("off", "incremental", "exhaustive")


class World:
    """An engine with its tagged memory and its judges. ``check`` is one of :data:`CHECKS`.

    ``docket`` collects what its laws find; the workers of one cluster each bring their own.
    """

    def __init__(
        self,
        config: EngineConfig,
        build: Build,
        *,
        check: str = "incremental",
        keep_events: bool = False,
        record_ops: bool = False,
        docket: Docket | None = None,
    ) -> None:
        if check not in CHECKS:
            raise ValueError(f"check is {check!r}, expected one of {', '.join(CHECKS)}")
        self.config = config
        self.build = build
        self.log = EventLog(keep_events)
        self.engine = Engine(config, build.rules, self.log)
        self.docket = docket or Docket()
        self.check = check
        self.watch = Watch(self.engine, self.docket, self.log, check) if check != "off" else None
        self.ops: list[Op] | None = [] if record_ops else None
        self.skips = 0
        self.follower: Follower | None = None  # a second memory that carries out the same stream

    @property
    def violations(self) -> list[Violation]:
        """Broken laws, in order of discovery."""
        return self.docket.violations

    def apply(self, op: At | Op) -> Outcome:
        """Carry out one op, or skip it."""
        if isinstance(op, At):
            return self.apply(op.op) if op.worker == 0 else Outcome(False, f"there is no worker {op.worker}")
        if self.ops is not None:
            self.ops.append(op)
        outcome = _APPLY[type(op)](self, op)
        if not outcome.applied:
            self.skips += 1
        return outcome

    def interleave(self) -> None:
        """Let the memory carry out what was recorded since the last plan, behind that plan and ahead of the next."""
        engine = self.engine
        records = engine.recorder.take()
        engine.log.evicted(engine.twin.pools.values())
        engine.log.recorded(records)
        if self.watch is not None:
            self.watch.interleave(records)
        if self.follower is not None:
            self.follower.interleaved(records)

    def drain(self) -> None:
        """Judge the end of a run: unfinished work, pages still held, books that do not balance.

        Copies under way are waited for: they land now.
        """
        book = self.engine.book
        for number in () if book is None else tuple(book.open):
            self._land(Land(number))
        records = self.engine.recorder.take()
        if self.watch is not None:
            self.watch.drained(records)
        if self.follower is not None:
            self.follower.drained(records)
        if self.log.journal is not None:
            self.log.journal.close(self.engine.iteration)

    def follow(self, plan: StepPlan | None) -> None:
        """Tell the follower what a pass sent out, or which bindings a failed forward took back."""
        withdrawn, self.engine.withdrawn = self.engine.withdrawn, []
        if self.follower is not None and plan is not None:
            self.follower.dispatched(plan)
        elif self.follower is not None and withdrawn:
            self.follower.failed(withdrawn)

    # -- views (those of a cluster of workers too) ----------------------------------------------------------------

    @property
    def workers(self) -> tuple[World, ...]:
        """This one."""
        return (self,)

    @property
    def in_flight(self) -> int:
        """Plans that were dispatched and not settled."""
        return len(self.engine.plans)

    def has_work(self) -> bool:
        """Whether any request has not ended, or a step is in flight."""
        return self.engine.has_work()

    def refusal(self, spec: RequestSpec) -> str | None:
        """Why a request can never be served, in one sentence; ``None`` if it can."""
        return self.engine.refusal(spec)

    def records(self) -> dict[int, RequestRecord]:
        """Records of all requests by id."""
        return self.engine.records

    def totals(self) -> Totals:
        """The engine's counters."""
        return self.engine.totals

    def occupancy(self) -> list[PoolUse]:
        """Pages of every pool by state."""
        return self.engine.occupancy()

    def evaluations(self) -> Counter[str]:
        """How often each law was evaluated."""
        return self.docket.evaluations

    def unfinished(self) -> dict[int, str]:
        """Requests that have not ended, by id, and the state of each."""
        return {request_id: request.state.value for request_id, request in self.engine.live.items()}

    @property
    def notes(self) -> list[str]:
        """What a reader of the results must know."""
        note = self.engine.twin.unpaired_note
        return [note] if note else []

    def coverage(self, request_id: int) -> float:
        """Share of the drafter's window that was valid in its last pass; 1 without a drafter pool or before it."""
        request = self.engine.live.get(request_id)
        if self.watch is None or request is None:
            return 1.0
        return self.watch.shadow.coverage(request.owner)

    def decision_digest(self) -> str:
        """SHA-256 over what the engine decided."""
        return self.log.decisions.digest()

    def memory_digest(self) -> str:
        """SHA-256 over what the memory did, or a word that it was not computed."""
        return self.log.memory.digest() if self.watch is not None else "not computed"

    # -- interpreters --------------------------------------------------------------------------------------------

    def _submit(self, op: Submit) -> Outcome:
        why = self.engine.refusal(op.spec)
        if why is not None:
            return Outcome(False, why)
        self.engine.submit(op.spec)
        if self.watch is not None:
            self.watch.submitted(op.spec.request_id)
        return Outcome(True)

    def _dispatch(self, op: Dispatch) -> Outcome:
        return self._run_pass("gate" if op.skip else "")

    def _fail(self, op: Fail) -> Outcome:
        return self._run_pass("forward")

    def _run_pass(self, skip: str) -> Outcome:
        engine, watch = self.engine, self.watch
        if engine.in_flight > self.config.limits.run_ahead:
            return Outcome(False, "the oldest iteration has to settle first")
        if not engine.live:
            return Outcome(False, "no request is live")
        if watch is not None:
            watch.before_pass(skip)
        try:
            plan = engine.dispatch(skip)
        except Stalled as stall:
            if watch is not None:
                watch.stalled(str(stall))
            return Outcome(False, str(stall))
        if watch is not None:
            watch.after_pass(skip, plan)
        self.follow(plan)
        if plan is None and engine.last_pass.empty():
            return Outcome(False, "nothing could be scheduled")
        return Outcome(True, plan=plan)

    def _settle(self, op: Settle) -> Outcome:
        engine = self.engine
        if not engine.plans:
            return Outcome(False, "no iteration is in flight")
        plan = engine.plans[0]
        accepted = op.accepted
        for number in plan.waits:
            if engine.book is not None and number in engine.book.open:
                return Outcome(False, f"the step waits for copy {number}")
        if len(accepted) != len(plan.generation):
            return Outcome(False, f"{len(plan.generation)} rows were dispatched, {len(accepted)} counts came")
        accepted = plan.committed(accepted)
        current = self.watch.before_settle(plan, accepted) if self.watch is not None else {}
        settled = engine.settle(accepted)
        if self.watch is not None:
            self.watch.after_settle(plan, accepted, current, settled)
        if self.follower is not None:
            self.follower.settled(plan, accepted)
        return Outcome(True, settled=settled)

    def _cancel(self, op: Cancel) -> Outcome:
        if not self.engine.cancel(op.request_id):
            return Outcome(False, f"request {op.request_id} is not live")
        if self.watch is not None:
            self.watch.cancelled(op.request_id)
        return Outcome(True)

    def _suspend(self, op: Suspend) -> Outcome:
        if not self.engine.suspend(op.request_id):
            return Outcome(False, f"request {op.request_id} holds no locks")
        if self.watch is not None:
            self.watch.disturbed()
        return Outcome(True)

    def _shrink(self, op: Shrink) -> Outcome:
        pool = self.engine.twin.pools.get(op.pool)
        if pool is None:
            return Outcome(False, f"there is no pool {op.pool!r}")
        if not pool.evict_down_to(max(0, op.pages)):
            return Outcome(False, "nothing to evict")
        self.log.evicted(self.engine.twin.pools.values())
        if self.watch is not None:
            self.watch.disturbed()
        return Outcome(True)

    def _no_link(self, op: LinkOp) -> Outcome:
        return Outcome(False, f"{type(op).__name__.lower()} is for a pair of workers with a link")

    def _land(self, op: Land) -> Outcome:
        why = self.engine.copy_refusal(op.copy)
        if why:
            return Outcome(False, why)
        copy = self.engine.land(op.copy)
        if self.watch is not None:
            self.watch.landed(copy)
        if self.follower is not None:
            self.follower.landed(copy, self.engine.queued())
        return Outcome(True)

    def _lose(self, op: Lose) -> Outcome:
        why = self.engine.copy_refusal(op.copy)
        if why:
            return Outcome(False, why)
        copy, void = self.engine.lose(op.copy)
        if self.watch is not None:
            self.watch.lost(copy, void)
        if self.follower is not None:
            self.follower.lost(copy, void, self.engine.queued())
        return Outcome(True)

    def _warmup(self, op: Warmup) -> Outcome:
        engine, watch = self.engine, self.watch
        limits = self.config.limits
        if engine.has_work() or engine.records:
            return Outcome(False, "a warm-up comes before all requests")
        if not (0 < op.batch <= limits.max_batch and 0 < op.tokens <= limits.max_seq_len):
            return Outcome(False, f"a warm-up has up to {limits.max_batch} rows of up to {limits.max_seq_len} tokens")
        if watch is not None:
            watch.before_warmup()
        warmed = warmup.begin(engine, op.batch, op.tokens)
        if watch is not None:
            watch.warmed(warmed)
        if warmed.plan is None:
            return Outcome(False, warmed.why)
        if self.follower is not None:
            self.follower.warmed(warmed.plan)
        warmup.end(engine, warmed.plan)
        if watch is not None:
            watch.after_warmup()
        return Outcome(True, plan=warmed.plan)


_APPLY = {
    Submit: World._submit,
    Dispatch: World._dispatch,
    Settle: World._settle,
    Cancel: World._cancel,
    Suspend: World._suspend,
    Fail: World._fail,
    Shrink: World._shrink,
    Land: World._land,
    Lose: World._lose,
    Send: World._no_link,
    Arrive: World._no_link,
    Abort: World._no_link,
    Warmup: World._warmup,
}
