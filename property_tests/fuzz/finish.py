"""The drain of a program: disturbances stop, and a plain server brings everything to its end.

It decides nothing at random, so that what is left of a shortened program can be finished the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from model.cluster import Cluster
from model.config import RequestSpec
from model.fleet import Fleet
from model.linkops import Arrive, Send
from model.ops import At, Dispatch, Land, Op, Outcome, Settle, Submit, World
from model.pair import Pair
from model.tokens import Segment

PATIENCE = 400  # rounds within which every toy program ends
SHUT = "the benchmark gate is shut"
Feed = Callable[[At | Op], Outcome]


def finish(world: World | Cluster, feed: Feed, patience: int = PATIENCE) -> None:
    """Serve what is left through ``feed``, settle all that is in flight and judge the end, unless a law breaks first.

    What has not ended within ``patience`` rounds is PROGRESS's to report.
    """
    for _ in range(patience):
        if world.violations:
            return
        if not has_work(world):
            break
        serve(world, feed)
    for place, worker in enumerate(world.workers):
        for _ in range(worker.in_flight):
            if not world.violations and worker.engine.plans:
                land_all(worker, feed)
                feed(settle_all(world, place))
    if not world.violations:
        world.drain()


def digests(world: World | Cluster) -> tuple[str, str]:
    """Digests of decisions and memory at the end of the run, where a program that broke a law ended before it.

    A run of the same ops is judged at its end whatever broke before: copies land, and the memory takes in what was
    recorded last. A rule may raise at that as anywhere; then the digests stand as they are.
    """
    if world.violations:
        with suppress(Exception, SystemExit):
            world.drain()
    return world.decision_digest(), world.memory_digest()


def has_work(world: World | Cluster) -> bool:
    """Whether anything has not ended: requests, steps, transfers or copies."""
    return world.has_work() or any(worker.engine.book for worker in world.workers)


def serve(world: World | Cluster, feed: Feed) -> None:
    """One round of a busy server."""
    if isinstance(world, Pair):
        for request_id in list(world.transfers):
            feed(Arrive(request_id))
        for request_id in world.ready():
            feed(Send(request_id))
        for place, worker in enumerate(world.workers):
            if worker.has_work():
                step(world, place, feed)
        return
    for worker in world.workers:
        land_all(worker, feed)
    if isinstance(world, Fleet):
        serve_fleet(world, feed)
    else:
        step(world, 0, feed)


def step(world: World | Cluster, place: int, feed: Feed) -> None:
    """One worker dispatches if it may and finds something, otherwise it settles."""
    worker = world.workers[place]
    dispatch = At(place, Dispatch()) if isinstance(world, Pair) else Dispatch()
    if worker.in_flight <= worker.config.limits.run_ahead and feed(dispatch).applied:
        return
    if worker.in_flight:
        feed(settle_all(world, place))


def serve_fleet(fleet: Fleet, feed: Feed) -> None:
    """All ranks dispatch, or those that hold the fleet up settle. A shut gate is opened by one more request."""
    flying = [place for place, worker in enumerate(fleet.workers) if worker.in_flight]
    if fleet.in_flight <= fleet.config.limits.run_ahead:
        outcome = feed(Dispatch())
        if outcome.applied:
            return
        if outcome.why == SHUT and not flying:
            fewest = min(range(len(fleet.workers)), key=lambda place: len(fleet.workers[place].engine.live))
            feed(At(fewest, Submit(filler(fleet))))
            return
    for place in flying:
        feed(settle_all(fleet, place))


def filler(world: Cluster) -> RequestSpec:
    """A request of one token that is nobody else's."""
    number = 1 + max(world.records(), default=0)
    return RequestSpec(number, (Segment(10 + number, 1),), 1, 1000 + number)


def settle_all(world: World | Cluster, place: int) -> At | Op:
    """The settle of the oldest plan of a worker, every draft accepted."""
    rows = world.workers[place].engine.plans[0].generation
    settle = Settle(tuple(row.width for row in rows))
    return At(place, settle) if isinstance(world, Fleet | Pair) else settle


def land_all(worker: World, feed: Feed) -> None:
    """All copies that may land do, in the order in which they began."""
    engine = worker.engine
    for number in list(engine.book.open) if engine.book is not None else ():
        if not engine.copy_refusal(number):
            feed(Land(number))
