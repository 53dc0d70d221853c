"""A generator of agent warm-ups: long contexts, and prefill-only requests that branch off inside them (seed 003)."""

from __future__ import annotations

from model.tokens import Segment, named_seed
from scenarios.errors import FieldError
from scenarios.generate import generator, lengths
from scenarios.workload import Session, Turn, Workload
from scenarios.workload_schema import BranchesSpec


def branches_workload(spec: BranchesSpec, seed: int, vocabulary: int, concurrency: int | None) -> Workload:
    """Every agent's opening and its context, then its sub-agents: the context up to a branch point, and a task.

    The requests of ``open`` agents take turns, so that the cache has to keep as many contexts at once. Requests are
    dealt out evenly; each has one output token.
    """
    own = 2 if spec.opening else 1  # requests of the agent itself
    if spec.requests < own * spec.agents:
        problem = f"expected at least {own} for each of {spec.agents} agents, found {spec.requests}"
        raise FieldError(("workload", "branches", "requests"), problem)
    random = generator(seed, "branches")
    system = (Segment(named_seed("system", seed), spec.system),) if spec.system else ()
    contexts = lengths(random, spec.context, spec.agents)
    shares = [len(range(agent, spec.requests, spec.agents)) for agent in range(spec.agents)]
    tasks = iter(lengths(random, spec.task, spec.requests))
    points = iter(random.uniform(spec.depth, 1.0, spec.requests).tolist())
    sessions: list[list[Session]] = []
    for agent, (length, share) in enumerate(zip(contexts, shares, strict=True)):
        stream, first = named_seed("context", seed, agent), agent % vocabulary
        openings = [spec.opening, length][2 - own :]
        found = [_request(f"a{agent:03d}", (*system, Segment(stream, min(part, length), first))) for part in openings]
        for place in range(own, share):
            shared = Segment(stream, max(1, round(length * next(points))), first)
            task = Segment(named_seed("task", seed, agent, place), next(tasks), place % vocabulary)
            found.append(_request(f"a{agent:03d}-{place}", (*system, shared, task)))
        sessions.append(found)
    return Workload(tuple(_dealt(sessions, spec.open)), concurrency)


def _request(name: str, prompt: tuple[Segment, ...]) -> Session:
    return Session(name, (Turn(prompt, 1),))


def _dealt(sessions: list[list[Session]], together: int) -> list[Session]:
    """Sessions in order: those of ``together`` agents take turns, and a new agent starts when one is through."""
    waiting, hands, order = list(reversed(sessions)), [], []
    while waiting or hands:
        while waiting and len(hands) < together:
            hands.append(list(reversed(waiting.pop())))
        order += [hand.pop() for hand in hands]
        hands = [hand for hand in hands if hand]
    return order
