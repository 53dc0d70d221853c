"""A trace run again to its first broken law: its ops, then the drain of a plain server, as a program ends.

Ops of a shortened trace are repaired to what the world can take now, so that what is left of it still runs: a settle
gets as many counts as there are rows, and lands what its step waits for; a copy that is not there is another one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from model.builds import Build
from model.cluster import Cluster
from model.invariants import Violation
from model.ops import At, Dispatch, Land, Lose, Op, Outcome, Settle, World
from property_tests.fuzz.finish import PATIENCE, Feed, digests, finish, land_all
from property_tests.fuzz.swarm import STIRRING, consulted, first_violation
from sim.crashes import ENDS
from sim.optrace import Trace


@dataclass(frozen=True, slots=True)
class Rerun:
    """What became of a trace: the first broken law, if any, and the ops up to it without those that did nothing."""

    violation: Violation | None
    ops: tuple[At | Op, ...]
    world: World | Cluster

    def trace(self, like: Trace) -> Trace:
        """The ops that were run, as a trace of their own with the digests of this run."""
        decisions, memory = digests(self.world)
        return replace(like, ops=self.ops, decision_digest=decisions, memory_digest=memory)


def rerun(trace: Trace, build: Build, patience: int = PATIENCE, *, consult: bool = False) -> Rerun:
    """Apply the ops of ``trace`` on ``build``; where none of them breaks a law, finish what is left.

    With ``consult`` the oracle is heard where every law was silent to the end. Raises what the model raises for a
    configuration that it cannot run.
    """
    if trace.workers is None:
        world: World | Cluster = World(trace.config, build, check="exhaustive")
    else:
        world = trace.workers.open(build, check="exhaustive")
    kept: list[At | Op] = []
    oracle = consulted(world, build) if consult else None

    last: At | Op = Dispatch()

    def feed(op: At | Op) -> Outcome:
        nonlocal last
        last = op
        known = len(world.violations)
        outcome = world.apply(op)
        if oracle is not None:
            oracle.look()
        stirred = outcome.applied or len(world.violations) > known
        if stirred or isinstance(op.op if isinstance(op, At) else op, STIRRING):
            kept.append(op)
        return outcome

    crash = None
    try:
        for op in trace.ops:
            if world.violations:
                break
            feed(fitted(world, op, feed))
        if not world.violations:
            finish(world, feed, patience)
    except ENDS as error:
        crash = error
        kept.append(last)
    return Rerun(first_violation(world, crash, oracle), tuple(kept), world)


def fitted(world: World | Cluster, op: At | Op, feed: Feed) -> At | Op:
    """``op`` as ``world`` can take it now; what its step waits for lands first."""
    place, inner = (op.worker, op.op) if isinstance(op, At) else (0, op)
    if not isinstance(inner, Settle | Land | Lose) or place >= len(world.workers):
        return op
    worker = world.workers[place]
    if isinstance(inner, Settle):
        land_waited(worker, feed)
    inner = repaired(worker, inner)
    return At(place, inner) if isinstance(op, At) else inner


def land_waited(worker: World, feed: Feed) -> None:
    """Land what the oldest step of ``worker`` waits for."""
    engine = worker.engine
    if engine.book and engine.plans and not engine.book.open.keys().isdisjoint(engine.plans[0].waits):
        land_all(worker, feed)


def repaired(worker: World, op: Settle | Land | Lose) -> Settle | Land | Lose:
    """``op`` as the worker can take it now: as many counts as rows, a copy that may end."""
    engine = worker.engine
    if isinstance(op, Settle):
        rows = len(engine.plans[0].generation) if engine.plans else 0
        if len(op.accepted) == rows:
            return op
        return Settle((op.accepted + (1,) * rows)[:rows])
    if engine.book is None or not engine.copy_refusal(op.copy):
        return op
    other = next((number for number in engine.book.open if not engine.copy_refusal(number)), op.copy)
    return type(op)(other)
