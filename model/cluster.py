"""Several workers under one op language: what they have in common, whatever joins them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from model.builds import Build
from model.config import EngineConfig
from model.invariants.base import Docket, Violation
from model.ops import Op, Outcome, World


class At(NamedTuple):
    """An op for one worker."""

    worker: int
    op: Op


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
        self.build, self.check = build, check
        self.violations: list[Violation] = []
        self.docket = Docket(violations=self.violations)  # of the laws that hold between workers
        self.workers = tuple(
            World(config, build, check=check, keep_events=keep_events, docket=Docket(place, self.violations))
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

    def has_work(self) -> bool:
        """Whether any worker has a request that has not ended, or a step in flight."""
        return any(world.engine.has_work() for world in self.workers)

    def decision_digest(self) -> str:
        """SHA-256 over the workers' decision digests, in order."""
        return _joined([world.decision_digest() for world in self.workers])

    def memory_digest(self) -> str:
        """SHA-256 over the workers' memory digests, in order, or a word that they were not computed."""
        digests = [world.memory_digest() for world in self.workers]
        return digests[0] if self.check == "off" else _joined(digests)


def _joined(digests: list[str]) -> str:
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()
