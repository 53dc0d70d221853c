"""One engine under a clock: dispatch, wait for the device, settle.

The timeline is that of the overlap scheduler (semantics.md section 11). With ``run_ahead`` 1 iteration i + 1 is
dispatched while the device runs iteration i, and the device executes dispatched steps back to back. The host needs
``host_ns`` for each dispatch; the device hides it as long as a step is in flight.

A step is one or two events of the clock, whatever its batch: requests are plain objects.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Generator
from typing import NamedTuple, Protocol

from simpy import Environment, Event

from model.cluster import Cluster
from model.config import RequestSpec
from model.ops import At, Cancel, Dispatch, Fail, Op, Outcome, Settle, Submit, Suspend, World
from model.plan import StepPlan
from scenarios.workload import Workload
from sim.acceptance import BLOCK, Acceptance
from sim.clock import Clock
from sim.cost import CostProfile
from sim.link import HostLink
from sim.ticket import Ticket

SAMPLE = 8  # steps between two looks at a request's window coverage, where nothing is drawn from it


class Forward(enum.Enum):
    """How the forward pass of an iteration goes."""

    RUN = "run"
    SKIP = "skip"  # allocated, then not queued
    FAIL = "fail"  # queued, then failed


OPS: dict[Forward, Op] = {Forward.RUN: Dispatch(), Forward.SKIP: Dispatch(skip=True), Forward.FAIL: Fail()}


class Measured(Protocol):
    """A device that runs every step when it goes out: what it committed, and how long it took where that counts."""

    def told(self, spec: RequestSpec) -> RequestSpec:
        """A request as it is submitted, whose prompt the device may put into words of its own."""
        ...

    def counts(self, worker: int, plan: StepPlan) -> tuple[int, ...]:
        """Tokens committed for each generation row of a plan, 1 .. its width."""
        ...

    def step_ns(self, worker: int, plan: StepPlan) -> int | None:
        """Nanoseconds that a plan took; ``None`` where the cost model says it."""
        ...


Before = Callable[[int], Forward]
Ended = Callable[[Ticket], None]


class Flight(NamedTuple):
    """A step, the plan of each worker in it, and the times at which the device starts and ends it and the host
    dispatched it."""

    plans: tuple[StepPlan | None, ...]
    start_ns: int
    finish_ns: int
    dispatch_ns: int

    @property
    def waits(self) -> tuple[int, ...]:
        """Copies between the tiers that the step waits for; only a single worker has such."""
        return self.plans[0].waits if self.plans[0] is not None else ()


class Server:
    """Drives ``world``; clients call :meth:`submit` and wait for ``Ticket.done``.

    ``before`` is called with an iteration's number ahead of its dispatch, so that disturbances may apply their ops,
    and says how its forward pass goes; it may be asked more than once for one iteration. ``ended`` is told each
    request that ended.
    """

    def __init__(
        self,
        env: Environment,
        world: World | Cluster,
        cost: CostProfile,
        acceptance: Acceptance,
        before: Before,
        ended: Ended,
    ) -> None:
        self.env = env
        self.world = world
        self.cost = cost
        self.acceptance = acceptance
        self.host_link: HostLink | None = None  # to the host tier, where copies take time
        self.measured: Measured | None = None  # then ``acceptance`` is not asked
        self.tickets: dict[int, Ticket] = {}
        self.iteration = 0
        self.clocks = [Clock() for _ in world.workers]
        self._logs = [worker.log.decisions for worker in world.workers]
        self._marked_ns = -1
        self._device_busy_ns = 0
        self._before = before
        self._ended = ended
        self._reads_coverage = acceptance.reads_coverage
        self._drafting = world.config.drafter.drafts > 0
        self._flights: deque[Flight] = deque()
        self._device_free_ns = 0
        self._idle_passes = 0
        self._wake: Event | None = None

    def submit(self, spec: RequestSpec, session: str, turn: int) -> Ticket:
        """Hand a request to the engine now. A refused one is done at once, with its reason in ``Ticket.refused``."""
        ticket = Ticket(spec.request_id, spec.output_seed, session, turn, int(self.env.now), self.env.event())
        self.tickets[spec.request_id] = ticket
        told = spec if self.measured is None else self.measured.told(spec)
        outcome = self.apply(self.at(self.worker_of(ticket), Submit(told)))
        if not outcome.applied:
            ticket.refused = outcome.why
            self._end(ticket)
        return ticket

    def cancel(self, request_id: int) -> Outcome:
        """Cancel a request now; its client is told at once."""
        outcome = self._apply_to(request_id, Cancel(request_id))
        if outcome.applied:
            self._end(self.tickets[request_id])
        return outcome

    def suspend(self, request_id: int) -> Outcome:
        """Take a request's locks now."""
        return self._apply_to(request_id, Suspend(request_id))

    def _apply_to(self, request_id: int, op: Op) -> Outcome:
        ticket = self.tickets.get(request_id)
        return self.apply(op if ticket is None else self.at(self.worker_of(ticket), op))

    def apply(self, op: At | Op) -> Outcome:
        """Apply an input that is neither a dispatch nor a settle, and wake the server if it sleeps."""
        self.mark()
        outcome = self.world.apply(op)
        if self.host_link is not None:
            self.host_link.poll()
        if self._wake is not None:
            wake, self._wake = self._wake, None
            wake.succeed()
        return outcome

    def mark(self) -> None:
        """What the workers log from here on happens now; called ahead of every op."""
        now = int(self.env.now)
        if now != self._marked_ns:
            self._marked_ns = now
            for clock, log in zip(self.clocks, self._logs, strict=True):
                clock.mark(log.count, now)

    def busy_ns(self) -> int:
        """Nanoseconds that the device has computed up to now: of a step in flight, only what is over."""
        now = int(self.env.now)
        ahead = sum(flight.finish_ns - max(flight.start_ns, now) for flight in self._flights if flight.finish_ns > now)
        return self._device_busy_ns - ahead

    def run(self) -> Generator[Event, object, None]:
        """The server's process. It sleeps where only an input can help, so a simulation that is over just ends."""
        env, world, flights = self.env, self.world, self._flights
        limits, host_ns = self.world.config.limits, self.cost.host_ns
        run_ahead = limits.run_ahead
        host_free_ns = env.now
        while True:
            if world.in_flight <= run_ahead and world.has_work() and self._dispatch():
                self._idle_passes = 0
                host_free_ns = env.now + host_ns
                if host_ns and world.in_flight <= run_ahead:
                    yield env.timeout(host_ns)
            elif flights and self.host_link is not None and self.host_link.holds_up(flights[0].waits):
                yield self.host_link.ended
                self._postpone()
            elif flights:
                wait = max(flights[0].finish_ns, host_free_ns) - env.now
                if wait > 0:
                    yield env.timeout(wait)
                flight = flights.popleft()
                for worker, plan in enumerate(flight.plans):
                    if plan is not None:
                        self._settle(worker, plan)
                        self._time(worker, plan, flight)
            elif world.has_work() and self._idle_passes <= limits.stall_passes:
                self._idle_passes += 1  # the executor's loop passes again, until the deadlock detector speaks
                yield env.timeout(max(host_ns, 1))
            else:
                self._idle_passes = 0
                self._wake = env.event()
                yield self._wake

    def _dispatch(self) -> bool:
        """Schedule one iteration; False if the engine has nothing to run."""
        forward = OPS[self._before(self.iteration)]
        self.mark()
        outcome = self.world.apply(forward)
        if not outcome.applied:
            return False
        self.iteration += 1
        if self.host_link is not None:
            self.host_link.poll()
        plans = outcome.plans or (outcome.plan,)
        if not any(plans):  # skipped or failed: the host spent its time, the device none
            return True
        cost = max(self._step_ns(worker, plan) for worker, plan in enumerate(plans) if plan is not None)
        start = max(int(self.env.now) + self.cost.host_ns, self._device_free_ns)
        self._device_free_ns = start + cost
        self._device_busy_ns += cost
        self._flights.append(Flight(plans, start, self._device_free_ns, int(self.env.now)))
        return True

    def _postpone(self) -> None:
        """A copy that the oldest step waits for ended now: the device starts no earlier."""
        free = int(self.env.now)
        for place, (plans, start, finish, dispatch) in enumerate(self._flights):
            begin = max(start, free)
            free = begin + finish - start
            self._flights[place] = Flight(plans, begin, free, dispatch)
        self._device_free_ns = free

    def _step_ns(self, worker: int, plan: StepPlan) -> int:
        """Nanoseconds that the device needs for a plan; rows without a request cost like others."""
        took = None if self.measured is None else self.measured.step_ns(worker, plan)
        if took is not None:
            return took
        return self.cost.step_ns(len(plan.generation) + len(plan.dummies) + plan.padding, plan.prefill_tokens)

    def at(self, worker: int, op: Op) -> At | Op:
        """``op`` as the world takes it for a worker."""
        return op

    def route(self, workload: Workload) -> None:
        """Decide which worker serves each session; a single one serves them all."""

    def worker_of(self, ticket: Ticket) -> int:
        """The worker that serves a request."""
        return 0

    def _settle(self, worker: int, plan: StepPlan) -> None:
        """Draw what each generation row commits, settle the step and stamp its tokens with the clock."""
        tickets, draw = self.tickets, self._draw
        if self.measured is not None:
            accepted = self.measured.counts(worker, plan)
            for row, count in zip(plan.generation, accepted, strict=True):
                tickets[row.request_id].pending = count
        elif self._drafting:
            accepted = tuple([draw(tickets[row.request_id]) if row.real_drafts else 1 for row in plan.generation])
        else:
            accepted = (1,) * len(plan.generation)
        self.mark()
        outcome = self.world.apply(self.at(worker, Settle(accepted)))
        if self.host_link is not None:
            self.host_link.settled()
        now = int(self.env.now)
        for request_id, tokens, _, finished, drafted in outcome.settled:
            ticket = tickets[request_id]
            if drafted:
                if not ticket.accepted:
                    ticket.coverage_first = ticket.coverage
                ticket.accepted.append(ticket.pending)
                ticket.coverage_sum += ticket.coverage
            if tokens:
                ticket.arrivals.append(now)
                ticket.counts.append(tokens)
            if finished:
                self._end(ticket)

    def _time(self, worker: int, plan: StepPlan, flight: Flight) -> None:
        """A plan was settled; that of ranks, which look like one worker, is every rank's."""
        clocks = self.clocks if len(flight.plans) == 1 else self.clocks[worker : worker + 1]
        times = (plan.iteration, flight.dispatch_ns, flight.start_ns, flight.finish_ns, int(self.env.now))
        for clock in clocks:
            clock.settled(times, len(plan.generation), plan.prefill_tokens)

    def _draw(self, ticket: Ticket) -> int:
        """Tokens that the next verify step of real drafts commits; 1, which is ignored, after the request ended."""
        if ticket.finish_ns >= 0:
            return 1
        step = len(ticket.accepted)
        offset = step % BLOCK
        if not offset or not ticket.block:
            ticket.block = self.acceptance.block(ticket.request_id, ticket.key, step)
        ticket.pending = ticket.block[offset]
        if self._reads_coverage:
            ticket.coverage = coverage = self.world.coverage(ticket.request_id)
            if coverage < 1.0:
                ticket.pending = self.acceptance.count(ticket.request_id, ticket.key, step, coverage)
        elif not step % SAMPLE:
            ticket.coverage = self.world.coverage(ticket.request_id)
        return ticket.pending

    def _end(self, ticket: Ticket) -> None:
        """The request ended: finished, cancelled or refused."""
        if ticket.finish_ns < 0:
            ticket.finish_ns = int(self.env.now)
            ticket.block = b""
            ticket.done.succeed()
            self._ended(ticket)
