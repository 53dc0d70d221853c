"""Calls every law at its place: around passes, at settles, every so often, and at the drain."""

from __future__ import annotations

from model.copies import Copy
from model.copy_memory import CopyingShadow
from model.engine import Engine
from model.events import EventLog
from model.invariants.base import Docket
from model.invariants.index import IndexLaw
from model.invariants.ledger import Ledger
from model.invariants.memory import MemoryLaws
from model.invariants.preemption import PreemptionLaw
from model.invariants.reference import ReferenceLaw
from model.invariants.reuse import ReuseLaw
from model.invariants.sequences import SequenceLaws
from model.invariants.split import SplitLaw
from model.invariants.steps import StepLaws
from model.invariants.told_rows import ToldRows
from model.invariants.warmup import WarmupLaws
from model.pages import PagePool
from model.plan import Record, SettledRow, StepPlan
from model.request import Request
from model.sequence import ACTIVE
from model.shadow import Shadow
from model.warmup import Warmed

EVERY = 256  # steps between exhaustive checks in incremental mode
SMALL_INDEX = 256  # keys up to which exhaustive mode looks at the whole index at every step,
EVERY_INDEX = 16  # and beyond which at every so many iterations, and at the drain
EVERY_ROW = 64  # iterations between comparisons of the device's rows with the sequences, likewise
CHEAP = 8192  # pages of all pools up to which counting them costs no more than an iteration


class Watch:
    """Judges of one engine. ``check`` is "incremental" or "exhaustive"."""

    def __init__(self, engine: Engine, docket: Docket, log: EventLog, check: str) -> None:
        self.engine = engine
        self.exhaustive = check == "exhaustive"
        self.docket = docket
        laws = MemoryLaws(docket, self.exhaustive, list(engine.twin.pools.values()))
        self.copying = CopyingShadow(engine.twin, laws, log) if engine.book is not None else None
        self.shadow = self.copying or Shadow(engine.twin, laws, log)
        self.claims = self.shadow.claims = ReuseLaw(engine, docket, self.shadow)
        self.references = ReferenceLaw(engine.twin, docket, self._request_of, self.exhaustive, self._tenant)
        self.index = IndexLaw(engine.twin, docket, self._tenant)
        self.sequences = SequenceLaws(engine, docket)
        self.steps = StepLaws(engine, docket)
        self.ledger = Ledger(engine, docket)
        self.preemptions = PreemptionLaw(engine, docket)
        self.told = ToldRows(engine, docket)
        self.steps.on_stalled = self._thorough
        self._cheap = sum(pool.total for pool in engine.twin.pools.values()) <= CHEAP
        engine.on_planned = self._planned
        engine.scheduler.on_refused = self._refused
        engine.scheduler.on_starved = self.steps.starved
        self._between: list[tuple[int, list[tuple]]] = []  # records that no plan carries, and the step they precede
        self.pads = False  # a rank of a fleet: dummies come and go
        self.warmups = WarmupLaws(engine, docket)
        self._settles = 0
        self._requests: dict[int, int] = {}  # owner -> request id, ended ones too
        self._aside: set[int] = set()  # owners with a suspended sequence, as last seen
        self._suspensions = 0
        SplitLaw(engine, docket).check()

    def submitted(self, request_id: int) -> None:
        """A request was queued."""
        self.docket.submitted(request_id)
        self.ledger.submitted(request_id)
        self.preemptions.submitted(request_id)

    def before_pass(self, skip: str) -> None:
        """A pass is about to run."""
        if self._after_suspensions():
            self.steps.fruitless_passes = 0  # somebody outside took what the last passes had done
        if self.pads:
            self.references.check_owners(self._live_owners(), self.engine.iteration)
        if skip:
            self.steps.remember()
        else:
            self.preemptions.before_pass()

    def after_pass(self, skip: str, plan: StepPlan | None) -> None:
        """A pass ran: ``plan`` is what it dispatched, if anything."""
        engine, steps = self.engine, self.steps
        self._after_suspensions()
        self.claims.passed(plan)
        self.ledger.began_anew()
        taken = engine.last_pass
        if taken.refused:
            steps.refused(taken.refused)
        if taken.slotless:
            steps.slotless(taken.slotless)
        if skip:
            if not taken.evicted:
                steps.undone()
            return
        self.preemptions.after_pass()
        new = plan is not None and self.ledger.planned(plan)
        steps.passed(
            plan is not None or taken.evicted > 0 or taken.deferred > 0, new or engine.awaits() or self._held_up()
        )
        if plan is None:
            return
        steps.admitted(plan)
        fresh = self.told.rows(plan)
        for row in plan.context:
            self._requests[row.owner] = row.request_id
        self.sequences.plan_shape(plan)
        for row in plan.context:
            self.sequences.claimed(row, plan.iteration)
        chunks = [engine.owners[row.owner] for row in plan.context]
        self.sequences.shapes(chunks, plan.iteration)
        if self.exhaustive:
            self._thorough(plan.iteration)
        elif self._cheap and any(row.last for row in plan.context):
            self.references.check(plan.iteration)  # a whole prompt was published: pages may have left the index
        every = self.exhaustive or plan.iteration % EVERY_ROW == EVERY_ROW - 1
        self.sequences.row_tables(plan.generation if every else fresh, plan.iteration)

    def _held_up(self) -> bool:
        """Whether the oldest step in flight waits for a copy between the tiers: passes say nothing until it ends."""
        book, plans = self.engine.book, self.engine.plans
        return book is not None and bool(plans) and not book.open.keys().isdisjoint(plans[0].waits)

    def before_warmup(self) -> None:
        """Dummies are about to be added."""
        self.warmups.remember()

    def warmed(self, warmed: Warmed) -> None:
        """Dummies were added and wait for their forward, or were not."""
        self.warmups.began(warmed)
        self.references.check(self.engine.iteration)
        if warmed.plan is not None:
            self.shadow.run_step(warmed.plan, ())

    def after_warmup(self) -> None:
        """The warm-up is over."""
        self.warmups.ended()

    def _after_suspensions(self) -> bool:
        """Whoever was suspended, by a pass or from outside, gave up both pools; whether anybody was.

        The states of sequences tell. The count adds those whom one pass suspended and resumed.
        """
        suspensions, aside = self.engine.totals.suspensions, set[int]()
        for manager in self.engine.twin.managers:
            aside.update([owner for owner, sequence in manager.sequences.items() if sequence.status is not ACTIVE])
        more = not aside <= self._aside
        self._aside = aside
        if more or suspensions != self._suspensions:
            self._suspensions = suspensions
            self.references.check_pairs(self.engine.iteration)
            self.steps.stepped_aside()
            self.told.forget()
        return more

    def _planned(self, plan: StepPlan) -> None:
        """A plan is complete, and no window has moved on past its chunks yet."""
        self.sequences.row_tables(plan.context, plan.iteration)

    def _refused(self, request: Request, end: int, last: bool) -> None:
        """A chunk up to ``end`` found no pages."""
        self.steps.unchanged(request)
        self.steps.justified(request, end, last)

    def before_settle(self, plan: StepPlan, accepted: tuple[int, ...]) -> dict[int, int]:
        """The memory executes the step; returns which owner each live request has now."""
        self.shadow.run_step(plan, accepted)
        live = self.engine.live
        rows = (*plan.context, *plan.generation)
        return {row.request_id: live[row.request_id].owner for row in rows if row.request_id in live}

    def after_settle(
        self, plan: StepPlan, accepted: tuple[int, ...], current: dict[int, int], settled: list[SettledRow]
    ) -> None:
        """The engine applied the result."""
        if self._between:
            self._run_between()
        self.ledger.settled(plan, accepted, current, settled)
        sequences, engine = self.sequences, self.engine
        if any(row.tokens for row in settled):
            self.steps.fruitless_passes = 0
        sequences.settled(self.shadow, plan)
        self._settles += 1
        if self.exhaustive or self._settles % EVERY == 0:
            sequences.shapes(engine.scheduler.active, plan.iteration)
            self._thorough(plan.iteration)

    def granted_to(self, owner: int, request_id: int) -> None:
        """Pages were granted to a request outside of any step."""
        self._requests[owner] = request_id
        self.preemptions.submitted(request_id)

    def interleave(self, records: list[tuple]) -> None:
        """Records of the stream that no plan carries: they run once every step dispatched before them has."""
        self._between.append((self.engine.iteration, records))
        self._run_between()

    def _run_between(self) -> None:
        plans = self.engine.plans
        while self._between and (not plans or plans[0].iteration >= self._between[0][0]):
            self.shadow.run_between(self._between.pop(0)[1])

    def _request_of(self, owner: int) -> int:
        request = self.engine.owners.get(owner)
        return request.request_id if request is not None else self._requests.get(owner, -1)

    def _tenant(self, pool: PagePool, page: int) -> int:
        """Request that was granted ``page`` last; -1 where there was none."""
        if page < 0:
            return -1
        index, slot = self.shadow.pools.index(pool), pool.slot[page]
        for plan in reversed(self.engine.plans):  # what the memory is yet to hear of
            for record in reversed(plan.records):
                if record[0] == Record.GRANT and record[1] == index and slot in record[2]:
                    return self._request_of(record[3])
        return self._request_of(self.shadow.owner[index][slot])

    def _cached_blocks(self) -> int:
        """Keys of all prefix trees: what one look at the whole index costs."""
        return sum(len(manager.tree.index) for manager in self.engine.twin.managers)

    def _thorough(self, step: int) -> None:
        self.references.check_owners(self._live_owners(), step)
        self.references.check(step)
        if self.exhaustive and (self._cached_blocks() <= SMALL_INDEX or not step % EVERY_INDEX):
            self.index.check(step)
        self.references.check_pairs(step)

    def _live_owners(self) -> set[int]:
        flying = {row.owner for plan in self.engine.plans for row in plan.dummies}
        return flying | {request.owner for request in self.engine.live.values()} | self.engine.lent

    def cancelled(self, request_id: int) -> None:
        """A client gave a request up."""
        self.ledger.check(request_id, self.engine.iteration)
        self.disturbed()

    def disturbed(self) -> None:
        """Pages changed hands outside of passes and steps."""
        if self.exhaustive:
            self._thorough(self.engine.iteration)

    def landed(self, copy: Copy) -> None:
        """A copy between the tiers arrived."""
        assert self.copying is not None
        self.copying.land(copy, self.engine.queued(), self.engine.plans)
        self.disturbed()

    def lost(self, copy: Copy, void: list[int]) -> None:
        """A copy failed, and the rows of ``void`` owners with it."""
        assert self.copying is not None
        self.copying.lose(copy, self.engine.queued(), void)
        self.ledger.lost(void)
        self.disturbed()

    def stalled(self, why: str) -> None:
        """The engine's own detector spoke."""
        self.steps.stalled(why)

    def drained(self, last: list[tuple]) -> None:
        """The run is over; ``last`` are the records behind its last plan."""
        engine = self.engine
        for _, records in self._between:
            self.shadow.run_between(records)
        self._between.clear()
        self.shadow.run_records(last)
        if engine.live and not engine.plans:
            self.steps.stalled("the run ended with requests that never finished")
        self.references.check_owners(self._live_owners(), engine.iteration)
        self.references.check(engine.iteration, drained=not engine.live and not engine.plans)
        self.index.check(engine.iteration)
        self.ledger.totals(engine.iteration)
        if self.copying is not None and engine.book is not None and not engine.plans:
            self.copying.flight.drained(list(engine.book.open))
