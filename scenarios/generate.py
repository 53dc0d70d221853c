"""Generators of workloads: requests in groups, a replay of coding agents, agents on layered prefixes.

All randomness comes from one generator made from the scenario's seed; equal specifications give equal workloads.
"""

from __future__ import annotations

import math
from itertools import count

import numpy as np
from numpy.typing import NDArray

from model.tokens import Segment, named_seed
from scenarios.errors import FieldError
from scenarios.workload import Session, Turn, Workload
from scenarios.workload_schema import AgenticSpec, GroupsSpec, LayersSpec, Lognormal

Random = np.random.Generator


def generator(seed: int, purpose: str) -> Random:
    """A generator of its own for ``purpose``, so that two purposes never share draws."""
    return np.random.Generator(np.random.PCG64(named_seed(purpose, seed)))


def lognormal(random: Random, shape: Lognormal, size: int) -> NDArray[np.float64]:
    """``size`` draws of a lognormal given by its median and mean, cut at ``shape.max``.

    ``mean = median * exp(sigma**2 / 2)``, so a mean below the median is read as no spread.
    """
    sigma = math.sqrt(max(0.0, 2.0 * math.log(shape.mean / shape.median)))
    draws = random.lognormal(math.log(shape.median), sigma, size)
    return draws if shape.max is None else np.minimum(draws, shape.max)


def lengths(random: Random, shape: Lognormal, size: int) -> list[int]:
    """Lognormal lengths in tokens, at least one each."""
    return np.maximum(1, np.rint(lognormal(random, shape, size))).astype(np.int64).tolist()


def apportion(total: int, weights: NDArray[np.float64], least: int = 1) -> list[int]:
    """Whole numbers of at least ``least`` that sum to ``total``, about in proportion to ``weights``.

    Largest remainders, ties by position. ``ValueError`` if ``total`` is less than ``least`` for everybody.
    """
    spare = total - least * len(weights)
    if spare < 0:
        raise ValueError(f"{total} cannot give {least} to each of {len(weights)}")
    shares = weights / weights.sum() * spare
    whole = np.floor(shares).astype(np.int64)
    order = np.argsort(-(shares - whole), kind="stable")
    whole[order[: spare - int(whole.sum())]] += 1
    return (whole + least).tolist()


def arrivals(random: Random, rate: float | None, size: int) -> list[float]:
    """Poisson arrivals at ``rate`` a second, in seconds; all at 0 without a rate."""
    return [0.0] * size if rate is None else np.cumsum(random.exponential(1.0 / rate, size)).tolist()


# -- the common workload -----------------------------------------------------------------------------------------


def groups_workload(spec: GroupsSpec, seed: int, vocabulary: int, concurrency: int | None) -> Workload:
    """Single requests that share a prefix within their group; the first private tokens of a group are all different."""
    random = generator(seed, "groups")
    times = arrivals(random, spec.rate, spec.requests)
    if spec.order == "random":
        groups = random.integers(0, spec.groups, spec.requests).tolist()
    else:
        groups = [request % spec.groups for request in range(spec.requests)]
    seen = [0] * spec.groups
    sessions = []
    for request, group in enumerate(groups):
        if seen[group] >= vocabulary:
            problem = f"expected at most {vocabulary} requests a group (first private tokens differ), found more"
            raise FieldError(("workload", "groups", "requests"), problem)
        shared = Segment(named_seed("group", seed, group), spec.shared)
        private = Segment(named_seed("private", seed, request), spec.private, seen[group])
        seen[group] += 1
        turn = Turn((shared, private), spec.output)
        sessions.append(Session(f"r{request}", (turn,), times[request]))
    return Workload(tuple(sessions), concurrency)


# -- a replay of coding agents -----------------------------------------------------------------------------------


def agentic_workload(spec: AgenticSpec, seed: int, vocabulary: int, concurrency: int | None) -> Workload:
    """Conversations that replay coding agents, most of them on one system prompt (shape of seeds 000 and 003).

    The sum of new prompt tokens is exact by construction: the system prompt once, the private part of every first
    turn, and for every later turn the previous output and what is appended (outputs are not committed, so they are
    computed again). What is appended is apportioned so that the sum is ``new_tokens``. The first conversation is the
    longest at its first turn and publishes the system prompt, the second is the first to branch off it.
    """
    random = generator(seed, "agentic")
    _check_agentic(spec)
    plain = spec.sessions - spec.system_sessions
    system_turns = _turn_counts(random, spec.system_requests, spec.system_sessions, spec.turns_sigma)
    other_turns = _turn_counts(random, spec.requests - spec.system_requests, plain, spec.turns_sigma)
    private = lengths(random, spec.private, spec.system_sessions)
    private[:2] = [spec.publisher_private, spec.branch_private][: len(private)]
    other = lengths(random, spec.other, plain)
    shapes = [(True, length, turns) for length, turns in zip(private, system_turns, strict=True)]
    rest = shapes[2:] + [(False, length, turns) for length, turns in zip(other, other_turns, strict=True)]
    shapes = shapes[:2] + [rest[place] for place in random.permutation(len(rest))]

    outputs = [lengths(random, spec.output, turns) for _, _, turns in shapes]
    later = spec.requests - spec.sessions
    repeated = sum(sum(of_session[:-1]) for of_session in outputs)
    budget = spec.new_tokens - spec.system - sum(private) - sum(other) - repeated
    try:
        appended = iter(apportion(budget, random.lognormal(0.0, 0.8, later)))
    except ValueError:
        least = spec.new_tokens - budget + later
        problem = f"expected at least {least} (first turns, and outputs computed again), found {spec.new_tokens}"
        raise FieldError(("workload", "agentic", "new_tokens"), problem) from None
    delays = iter(lognormal(random, spec.delay_s, later).tolist())

    system = Segment(named_seed("system", seed), spec.system)
    firsts = count(1)
    sessions = []
    for place, (shared, length, turns) in enumerate(shapes):
        name = f"c{place:02d}"
        own = Segment(named_seed("agent", seed, place, 0), length, next(firsts) % vocabulary)
        found = [Turn((system, own) if shared else (own,), outputs[place][0])]
        for turn in range(1, turns):
            added = Segment(named_seed("agent", seed, place, turn), next(appended), next(firsts) % vocabulary)
            found.append(Turn((added,), outputs[place][turn], round(next(delays), 3)))
        sessions.append(Session(name, tuple(found)))
    return Workload(tuple(sessions), concurrency)


def _check_agentic(spec: AgenticSpec) -> None:
    where = ("workload", "agentic")
    plain = spec.sessions - spec.system_sessions
    if plain < 0:
        problem = f"expected at most sessions = {spec.sessions}, found {spec.system_sessions}"
        raise FieldError((*where, "system_sessions"), problem)
    least, most = spec.system_sessions, spec.requests - plain
    if not least <= spec.system_requests <= most or (not plain and spec.system_requests != spec.requests):
        problem = f"expected {least} to {most} (a request for every conversation), found {spec.system_requests}"
        raise FieldError((*where, "system_requests"), problem)


def _turn_counts(random: Random, requests: int, sessions: int, sigma: float) -> list[int]:
    return apportion(requests, random.lognormal(0.0, sigma, sessions)) if sessions else []


# -- agents on layered prefixes ----------------------------------------------------------------------------------


class _Layered:
    """One run of the layered generator: what is shared between sessions, and the draws."""

    def __init__(self, spec: LayersSpec, seed: int) -> None:
        self.spec = spec
        self.seed = seed
        self.random = generator(seed, "layers")
        ranks = np.arange(1, spec.layers.groups + 1, dtype=np.float64)
        weights = ranks**-spec.layers.zipf
        self.groups = weights / weights.sum()
        self.fresh = count()

    def segment(self, length: int) -> Segment:
        """Tokens that no other run of the workload has, not even the first one."""
        place = next(self.fresh)
        return Segment(named_seed("fresh", self.seed, place), length, place)

    def prefix(self) -> tuple[Segment, ...]:
        """The layers in front of a session: shared by all, by a group, by the session."""
        layers = self.spec.layers
        group = int(self.random.choice(layers.groups, p=self.groups))
        found = []
        if layers.shared:
            found.append(Segment(named_seed("layer", self.seed), layers.shared))
        if layers.group:
            found.append(Segment(named_seed("layer", self.seed, group), layers.group, group))
        return (*found, self.segment(self.length(layers.session)))

    def length(self, shape: Lognormal) -> int:
        """One length in tokens."""
        return lengths(self.random, shape, 1)[0]

    def delay(self) -> float:
        """One pause in seconds: a tool's or a person's."""
        delay = self.spec.delay
        shape = delay.tool if self.random.random() < delay.agentic else delay.person
        return round(min(delay.max_s, float(lognormal(self.random, shape, 1)[0])), 3)

    def compacts(self, context: int) -> bool:
        """Whether the context is compacted before the next turn: more often the fuller it is."""
        reset = self.spec.reset
        chance = reset.probability * (1.0 + (reset.scale - 1.0) * context / self.spec.max_context)
        return bool(self.random.random() < chance)

    def turns(self, prefix: tuple[Segment, ...], most: int) -> tuple[Turn, ...]:
        """Up to ``most`` turns on ``prefix``, until a prompt and its output would pass the longest context."""
        spec, found = self.spec, []
        base = sum(segment.length for segment in prefix)
        context = 0
        for _ in range(most):
            added, output = self.length(spec.new_tokens), self.length(spec.output)
            think = self.delay() if found else 0.0
            reset = bool(found) and self.compacts(context)
            if reset or not found:
                summary = (self.segment(self.length(spec.reset.summary)),) if reset else ()
                prompt = (*prefix, *summary, self.segment(added))
                length = sum(segment.length for segment in prompt)
            else:
                prompt = (self.segment(added),)
                length = context + added
            if length + output > spec.max_context:
                if not found:
                    raise FieldError(
                        ("workload", "layers", "max_context"),
                        f"expected room for the first turn of a session ({length + output} tokens, {base} of them in "
                        f"its prefix layers), found {spec.max_context}",
                    )
                break
            found.append(Turn(prompt, output, think, whole=reset))
            context = length + output
        return tuple(found)


def layers_workload(spec: LayersSpec, seed: int, concurrency: int | None) -> Workload:
    """Agent sessions on layered prefixes, with the parameters of AIPerf's generator (peers: ``agentic-code``).

    A reset sends the prefix layers again with a summary in place of the conversation. A restart is a second session
    on the same prefix layers that begins when the first one is given up.
    """
    layered = _Layered(spec, seed)
    times = arrivals(layered.random, spec.rate, spec.sessions)
    sessions: list[Session] = []
    for place in range(spec.sessions):
        prefix = layered.prefix()
        restarts = layered.random.random() < spec.restart.share
        cut = int(layered.random.integers(spec.restart.first, max(spec.restart.first, spec.restart.last) + 1))
        turns = layered.turns(prefix, min(spec.max_turns, cut) if restarts else spec.max_turns)
        name = f"a{place:03d}"
        sessions.append(Session(name, turns, times[place]))
        left = spec.max_turns - len(turns)
        if restarts and left > 0:
            again = layered.turns(prefix, left)
            sessions.append(Session(f"{name}-again", again, times[place], parent=(name, len(turns) - 1)))
    return Workload(tuple(sessions), concurrency)
