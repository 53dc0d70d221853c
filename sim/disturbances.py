"""What goes wrong on purpose: ops before an iteration or at a time, forward passes that are skipped or fail."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from simpy import Environment, Event

from model.ops import At, Outcome, Shrink
from scenarios.behaviour_schema import Disturbance
from sim.cost import ns_from_seconds
from sim.server import Forward, Server

_FORWARD = {"skip": Forward.SKIP, "fail": Forward.FAIL}


class Disturbances:
    """Applies ``items`` to a server; :meth:`attach` first, then :meth:`before` ahead of every dispatch.

    One that repeats hits so many iterations in a row, from its iteration or from the one that is next at its time.
    ``notes`` says in one line each what could not be applied, so that a disturbance never silently does nothing.
    """

    def __init__(self, items: Iterable[Disturbance]) -> None:
        self.notes: list[str] = []
        self._ops: dict[int, list[Disturbance]] = {}
        self._forward: dict[int, Forward] = {}
        self._timed: list[Disturbance] = []
        self._server: Server | None = None
        for item in items:
            if item.at_iteration is None:
                self._timed.append(item)
            else:
                self._plan(item, item.at_iteration, item.times)

    def attach(self, env: Environment, server: Server) -> None:
        """Disturb ``server``; starts a process for each disturbance at a time."""
        self._server = server
        for item in self._timed:
            env.process(self._at_time(env, server, item))

    def before(self, iteration: int) -> Forward:
        """Apply what is due ahead of ``iteration`` and say how its forward pass goes; idempotent."""
        if self._ops and self._server is not None:
            for item in self._ops.pop(iteration, ()):
                self._apply(self._server, item)
        return self._forward.get(iteration, Forward.RUN) if self._forward else Forward.RUN

    def close(self, iterations: int) -> None:
        """Note what never came to pass in a run of ``iterations``."""
        for iteration, items in sorted(self._ops.items()):
            self.notes.extend(f"{_name(item)}: the run ended before iteration {iteration}" for item in items)
        for iteration, forward in sorted(self._forward.items()):
            if iteration >= iterations:
                self.notes.append(f"{forward.value}: the run ended before iteration {iteration}")

    def _plan(self, item: Disturbance, iteration: int, times: int) -> None:
        for ahead in range(iteration, iteration + times):
            if item.action in _FORWARD:
                self._forward[ahead] = _FORWARD[item.action]
            else:
                self._ops.setdefault(ahead, []).append(item)

    def _at_time(self, env: Environment, server: Server, item: Disturbance) -> Generator[Event, object, None]:
        yield env.timeout(ns_from_seconds(item.at_s or 0.0))
        if item.action in _FORWARD:
            self._plan(item, server.iteration, item.times)
        else:
            self._apply(server, item)
            self._plan(item, server.iteration + 1, item.times - 1)

    def _apply(self, server: Server, item: Disturbance) -> None:
        outcome = self._outcome(server, item)
        if not outcome.applied:
            self.notes.append(f"{_name(item)} before iteration {server.iteration}: not applied, {outcome.why}")

    @staticmethod
    def _outcome(server: Server, item: Disturbance) -> Outcome:
        if item.action == "cancel":
            return server.cancel(item.request or 0)
        if item.action == "suspend":
            return server.suspend(item.request or 0)
        if item.action == "lose":
            if server.host_link is None:
                return Outcome(False, "copies between the tiers are done at once here")
            server.host_link.doomed[item.copies == "stores"] += 1
            return Outcome(True)
        shrink = Shrink(item.pool or "", item.pages or 0)
        return server.apply(shrink if item.worker is None else At(item.worker, shrink))


def _name(item: Disturbance) -> str:
    """The disturbance in a few words."""
    if item.action == "lose":
        return f"lose one of the {item.copies}"
    return f"shrink {item.pool} to {item.pages}" if item.action == "shrink" else f"{item.action} request {item.request}"
