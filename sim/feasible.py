"""Whether every request of a workload could ever be served, asked before anything runs."""

from __future__ import annotations

from model.cluster import Cluster
from model.config import RequestSpec
from model.ops import World
from model.tokens import Segment
from scenarios.errors import FieldError
from scenarios.workload import Session, Workload, prompt_lengths


def refuse_impossible(world: World | Cluster, workload: Workload) -> None:
    """FieldError for the first request that some worker could never serve, if every turn produces all its tokens."""
    lengths: dict[str, list[int]] = {}
    for session in _parents_first(workload):
        inherited = 0
        if session.parent is not None and session.inherit:
            parent, turn = session.parent
            inherited = lengths[parent][turn]
        lengths[session.name] = prompt_lengths(session, inherited)
        for index, (turn, length) in enumerate(zip(session.turns, lengths[session.name], strict=True)):
            why = world.refusal(RequestSpec(-1, (Segment(0, length),), turn.max_new_tokens, 0))
            if why is not None:
                why = why.replace("request -1", "it")
                raise FieldError(("workload",), f"session {session.name}, turn {index} can never be served: {why}")


def _parents_first(workload: Workload) -> list[Session]:
    """The sessions so that each comes after its parent, in their order otherwise."""
    waiting = list(workload.sessions)
    known: set[str] = set()
    ordered: list[Session] = []
    while waiting:
        ready = [session for session in waiting if session.parent is None or session.parent[0] in known]
        if not ready:
            raise FieldError(("workload",), f"session {waiting[0].name}: expected a parent that ever runs")
        ordered += ready
        known.update(session.name for session in ready)
        waiting = [session for session in waiting if session.name not in known]
    return ordered
