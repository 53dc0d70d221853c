"""A fleet under a clock: all ranks dispatch together, and the slowest rank's step is everybody's.

Requests go to ranks session by session: to the one that the session names, otherwise in turn.
"""

from __future__ import annotations

from model.ops import At, Op
from scenarios.workload import Workload
from sim.server import Server
from sim.ticket import Ticket


class FleetServer(Server):
    """Drives a fleet (:class:`model.fleet.Fleet`). A flight is a step of all ranks; each settles its own plan of it."""

    def at(self, worker: int, op: Op) -> At | Op:
        return At(worker, op)

    def route(self, workload: Workload) -> None:
        self._ranks: dict[str, int] = {}
        ranks, turn = len(self.world.workers), 0
        for session in workload.sessions:
            if session.worker is None:
                self._ranks[session.name] = turn % ranks
                turn += 1
            else:
                self._ranks[session.name] = session.worker

    def worker_of(self, ticket: Ticket) -> int:
        return self._ranks[ticket.session]
