"""Several workers under one op language: what they have in common, whatever joins them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace

from model.builds import Build
from model.config import EngineConfig, RequestSpec
from model.invariants.base import Docket, Violation
from model.ops import At, Op, Outcome, World
from model.pool_use import PoolUse
from model.request import RequestRecord, Totals


class Cluster:
    """Workers ``0 .. n - 1`` of one build, each with an engine, a memory and judges of its own.

    A subclass joins them: it says which ops concern all of them and adds the laws that hold between them.
    """

    def __init__(
        self,
        configs: Sequence[EngineConfig],
        build: Build,
        *,
        check: str = "incremental",
        keep_events: bool = False,
        record_ops: bool = False,
    ) -> None:
        if any(config.asynchronous_copies for config in configs):
            raise ValueError("copies between the tiers take time on a single worker only")
        self.build, self.check = build, check
        self.violations: list[Violation] = []
        self.docket = Docket(violations=self.violations)  # of the laws that hold between workers
        self.workers = tuple(
            World(config, build, check=check, keep_events=keep_events, docket=self.docket.of_worker(place))
            for place, config in enumerate(configs)
        )
        self.ops: list[At | Op] | None = [] if record_ops else None
        self.skips = 0

    def apply(self, op: At | Op) -> Outcome:
        """Carry out one op, or skip it."""
        if self.ops is not None:
            self.ops.append(op)
        outcome = self.carry_out(op)
        if not outcome.applied:
            self.skips += 1
        return outcome

    def carry_out(self, op: At | Op) -> Outcome:
        """Hand an op to its worker. Subclasses take the ops that concern several workers first."""
        if not isinstance(op, At):
            return Outcome(False, f"{type(op).__name__.lower()} names no worker")
        if not 0 <= op.worker < len(self.workers):
            return Outcome(False, f"there is no worker {op.worker}")
        return self.workers[op.worker].apply(op.op)

    def drain(self) -> None:
        """Judge the end of a run on every worker."""
        for world in self.workers:
            world.drain()

    # -- views ---------------------------------------------------------------------------------------------------

    @property
    def config(self) -> EngineConfig:
        """Configuration of worker 0; the others differ in their pools at most."""
        return self.workers[0].config

    @property
    def books(self) -> tuple[World, ...]:
        """The workers whose requests and counters make up the cluster's."""
        return self.workers

    @property
    def in_flight(self) -> int:
        """Most plans in flight on one worker."""
        return max(world.in_flight for world in self.workers)

    def has_work(self) -> bool:
        """Whether any worker has a request that has not ended, or a step in flight."""
        return any(world.has_work() for world in self.workers)

    def refusal(self, spec: RequestSpec) -> str | None:
        """Why some worker could never serve a request, in one sentence; ``None`` if all could."""
        return next((why for world in self.workers if (why := world.refusal(spec)) is not None), None)

    def records(self) -> dict[int, RequestRecord]:
        """Records of all requests by id."""
        return {request_id: record for world in self.books for request_id, record in world.records().items()}

    def totals(self) -> Totals:
        """Counters of the workers, added up."""
        totals = [world.totals() for world in self.books]
        return Totals(**{entry.name: sum(getattr(one, entry.name) for one in totals) for entry in fields(Totals)})

    def occupancy(self) -> list[PoolUse]:
        """Pages of every pool of every worker; a pool is named ``POOL@WORKER``."""
        return [
            replace(use, name=f"{use.name}@{place}")
            for place, world in enumerate(self.workers)
            for use in world.occupancy()
        ]

    def evaluations(self) -> Counter[str]:
        """How often each law was evaluated, on all workers and between them."""
        return sum((world.docket.evaluations for world in self.workers), Counter(self.docket.evaluations))

    def unfinished(self) -> dict[int, str]:
        """Requests that have not ended, by id, and the state of each."""
        return {request_id: state for world in self.books for request_id, state in world.unfinished().items()}

    def coverage(self, request_id: int) -> float:
        """Share of the drafter's window that was valid in the last pass of a request, wherever it runs."""
        for world in self.books:
            if request_id in world.engine.live:
                return world.coverage(request_id)
        return 1.0

    @property
    def notes(self) -> list[str]:
        """What a reader of the results must know."""
        return self.workers[0].notes

    def decision_digest(self) -> str:
        """SHA-256 over the workers' decision digests, in order."""
        return _joined([world.decision_digest() for world in self.workers])

    def memory_digest(self) -> str:
        """SHA-256 over the workers' memory digests, in order, or a word that they were not computed."""
        digests = [world.memory_digest() for world in self.workers]
        return digests[0] if self.check == "off" else _joined(digests)


def _joined(digests: list[str]) -> str:
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()
