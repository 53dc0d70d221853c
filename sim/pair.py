"""A prefill and a decode worker under one clock, and the link between them.

Each worker has a server of its own; both share the clients' tickets. Transfers take the link one after the other for
their bytes over its bandwidth, then its latency. A lost one is found out when it should have arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator

from simpy import Environment, Event, Resource

from model.cluster import Cluster
from model.config import EngineConfig, RequestSpec
from model.linkops import Abort, Arrive, Send
from model.ops import At, Op, Outcome, World
from model.pair import DECODE, PREFILL, Pair
from model.plan import StepPlan
from model.tokens import named_seed
from scenarios.workers_schema import Link
from sim.acceptance import Acceptance
from sim.cost import CostProfile, ns_from_seconds
from sim.server import Forward, Measured, Server
from sim.ticket import Ticket

_GIB = 1 << 30


class Side(World):
    """One worker of a pair as its server sees it: ops reach it through the pair."""

    def __init__(self, pair: Pair, place: int) -> None:
        self.pair, self.place = pair, place
        self.inner = pair.workers[place]
        self.engine = self.inner.engine
        self.config: EngineConfig = self.inner.config
        self.log = self.inner.log

    def apply(self, op: At | Op) -> Outcome:
        """Hand an op for this worker to the pair."""
        return self.pair.apply(op if isinstance(op, At) else At(self.place, op))

    def coverage(self, request_id: int) -> float:
        """Share of the drafter's window that was valid in the last pass of a request of this worker."""
        return self.inner.coverage(request_id)


class Half(Server):
    """The server of one worker. ``moved`` is called after every step: pages may be free, requests may be ready."""

    moved: Callable[[], None]

    def wake(self) -> None:
        """Look again, if asleep."""
        if self._wake is not None:
            wake, self._wake = self._wake, None
            wake.succeed()

    def _dispatch(self) -> bool:
        done = super()._dispatch()
        if not done and isinstance(self.world, Side) and self.world.engine.awaits():
            self._idle_passes = self.world.config.limits.stall_passes + 1  # only the other worker can help: sleep
        return done

    def _settle(self, worker: int, plan: StepPlan) -> None:
        super()._settle(worker, plan)
        self.moved()


class OfWorker:
    """What a device behind one worker of a pair committed; its server counts that worker as the only one."""

    def __init__(self, measured: Measured, place: int) -> None:
        self.measured, self.place = measured, place

    def told(self, spec: RequestSpec) -> RequestSpec:
        """See :class:`sim.server.Measured`."""
        return self.measured.told(spec)

    def counts(self, worker: int, plan: StepPlan) -> tuple[int, ...]:
        """See :class:`sim.server.Measured`."""
        return self.measured.counts(self.place, plan)

    def step_ns(self, worker: int, plan: StepPlan) -> int | None:
        """See :class:`sim.server.Measured`."""
        return self.measured.step_ns(self.place, plan)


class PairServer(Server):
    """Serves clients with a pair; its own process moves requests from one worker to the other."""

    def __init__(
        self,
        env: Environment,
        world: World | Cluster,
        cost: CostProfile,
        acceptance: Acceptance,
        before: Callable[[int], Forward],
        ended: Callable[[Ticket], None],
    ) -> None:
        super().__init__(env, world, cost, acceptance, before, ended)
        assert isinstance(world, Pair)
        self.pair = world
        self.halves = tuple(
            Half(env, Side(world, place), cost, acceptance, self._always if place == PREFILL else before, ended)
            for place in (PREFILL, DECODE)
        )
        for half in self.halves:
            half.tickets = self.tickets
            half.moved = self._settled
        self.clocks = [clock for half in self.halves for clock in half.clocks]
        self.connect(Link(), 0)

    def connect(self, link: Link, seed: int) -> None:
        """Set the link; ``seed`` decides which transfers are lost."""
        self.link, self.seed = link, seed
        self._line = Resource(self.env, 1)
        self._tries: Counter[int] = Counter()
        self._news: Event | None = None

    def apply(self, op: At | Op) -> Outcome:
        """Apply a client's input, or a disturbance, and wake whoever sleeps."""
        self.mark()
        outcome = self.pair.apply(op)
        for half in self.halves:
            half.wake()
        self._moved()
        return outcome

    def mark(self) -> None:
        for half in self.halves:
            half.mark()

    def busy_ns(self) -> int:
        """Nanoseconds that the two devices have computed, on average."""
        return sum(half.busy_ns() for half in self.halves) // len(self.halves)

    def run(self) -> Generator[Event, object, None]:
        """Start both workers, then send what is ready, whenever something moved."""
        for place, half in enumerate(self.halves):
            half.measured = None if self.measured is None else OfWorker(self.measured, place)
            self.env.process(half.run())
        while True:
            self._send()
            self.iteration = self.halves[DECODE].iteration
            yield self._something()

    def _settled(self) -> None:
        """A step of a worker settled: what is ready is sent ahead of the next pass, which may find nothing else to do
        and take the newest of those that wait for what it cannot serve."""
        self._send()
        self._moved()

    def _send(self) -> None:
        for request_id in self.pair.ready():
            self.mark()
            if self.pair.apply(Send(request_id)).applied:
                self.env.process(self._transfer(request_id))

    def _transfer(self, request_id: int) -> Generator[Event, object, None]:
        self._tries[request_id] += 1
        size = self.pair.bytes_of(request_id)
        with self._line.request() as turn:
            yield turn
            yield self.env.timeout(round(size * 1e9 / (self.link.gib_per_s * _GIB)))
        yield self.env.timeout(ns_from_seconds(self.link.latency_s))
        lost = self._lost(request_id)
        while True:  # the write starts behind the steps that were in flight when it was granted
            end = Abort(request_id, self.link.recompute) if lost else Arrive(request_id)
            self.mark()
            outcome = self.pair.apply(end)
            if outcome.applied or request_id not in self.pair.transfers:
                break
            yield self._something()
        for half in self.halves:
            half.wake()
        self._moved()

    def _lost(self, request_id: int) -> bool:
        draw = named_seed("loss", self.seed, request_id, self._tries[request_id]) / 2.0**64
        return draw < self.link.loss

    def _something(self) -> Event:
        """An event that fires when anything has moved."""
        if self._news is None:
            self._news = self.env.event()
        return self._news

    def _moved(self) -> None:
        if self._news is not None:
            news, self._news = self._news, None
            news.succeed()

    @staticmethod
    def _always(iteration: int) -> Forward:
        """Disturbances by iteration count the decode worker's; the prefill worker runs."""
        return Forward.RUN
