"""Who sends the requests: sessions of turns, in a closed loop or by arrival, with think times and branch-offs.

A session is one process that sleeps while its request runs, so a running request costs no events of the clock.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from simpy import Environment, Event

from model.config import RequestSpec
from model.tokens import Segment, named_seed
from scenarios.workload import Session, Turn, Workload
from sim.cost import ns_from_seconds
from sim.prefixes import SentPrompts
from sim.server import Server

Process = Generator[Event, object, None]


class Clients:
    """Runs ``workload`` against ``server``; ``seed`` names the output tokens of the run.

    Closed loop: ``concurrency`` lanes take the sessions in order, each session to its last turn. Open loop: each
    session starts at its arrival. A session with a parent starts when that turn ends, beside the lanes, in either
    loop. A turn that is cancelled or refused ends like any other: the session goes on with what it produced.
    """

    def __init__(self, env: Environment, server: Server, workload: Workload, seed: int) -> None:
        self.env = env
        self.server = server
        self.seed = seed
        self._branches: dict[tuple[str, int], list[Session]] = {}
        self._conversations = {session.name: index for index, session in enumerate(workload.sessions)}
        self._next_request = 0
        self._sent = SentPrompts()
        roots = []
        for session in workload.sessions:
            if session.parent is None:
                roots.append(session)
            else:
                self._branches.setdefault(session.parent, []).append(session)
        if workload.concurrency is None:
            env.process(self._arrivals(sorted(roots, key=lambda session: session.arrival_s)))
        else:
            queue = iter(roots)
            for _ in range(min(workload.concurrency, len(roots))):
                env.process(self._lane(queue))

    def _lane(self, queue: Iterator[Session]) -> Process:
        """One slot of a closed loop: the next session whenever the one before is over."""
        for session in queue:
            yield from self._session(session, ())

    def _arrivals(self, sessions: list[Session]) -> Process:
        """Start ``sessions``, sorted by arrival, each at its time."""
        for session in sessions:
            wait = ns_from_seconds(session.arrival_s) - int(self.env.now)
            if wait > 0:
                yield self.env.timeout(wait)
            self.env.process(self._session(session, ()))

    def _session(self, session: Session, inherited: tuple[Segment, ...]) -> Process:
        """All turns of one session; ``inherited`` is the prompt it begins with."""
        prompt = inherited
        for index, turn in enumerate(session.turns):
            pause = self._pause(turn)
            if pause > 0:
                yield self.env.timeout(pause)
            prompt = turn.append if turn.whole else prompt + turn.append
            output_seed = named_seed("output", self.seed, session.name, index)
            ticket = self.server.submit(self._request(session, prompt, turn, output_seed), session.name, index)
            ticket.shared = self._sent.shared(prompt, session.scope)
            yield ticket.done
            for branch in self._branches.get((session.name, index), ()):
                self.env.process(self._session(branch, prompt if branch.inherit else ()))
            produced = sum(ticket.counts)
            if produced:
                prompt = (*prompt, Segment(output_seed, produced))

    def _pause(self, turn: Turn) -> int:
        """Nanoseconds until ``turn`` is sent: up to its absolute arrival where it has one, else its think time."""
        if turn.at_s is not None:
            return ns_from_seconds(turn.at_s) - int(self.env.now)
        return ns_from_seconds(turn.think_s)

    def _request(self, session: Session, prompt: tuple[Segment, ...], turn: Turn, output_seed: int) -> RequestSpec:
        request_id = self._next_request
        self._next_request += 1
        return RequestSpec(
            request_id=request_id,
            prompt=prompt,
            max_new_tokens=turn.max_new_tokens,
            output_seed=output_seed,
            conversation=self._conversations[session.name],
            scope=session.scope,
            drafts=session.drafts,
        )
