"""From the workload part of a scenario file to sessions, and the checks that every request can be served.

Ids come from named seeds, so that every world sees the same prompts. A run of fresh tokens starts with an id of its
own, so that prompts branch exactly where the file says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from model.config import Scope
from model.tokens import Segment, named_seed, stream_tokens
from scenarios.engine_build import unknown
from scenarios.errors import FieldError
from scenarios.fit import Fit
from scenarios.workload import Session, Turn, Workload, prompt_lengths
from scenarios.workload_schema import PrefixSpec, ScopeSpec, SessionSpec, Tokens, WorkloadSpec

Location = tuple[str | int, ...]
_MOST = 2_000_000  # requests of one workload


def scope_of(spec: ScopeSpec) -> Scope:
    """The scope that a file spells out."""
    return Scope(spec.adapter, spec.salt, spec.target_weights, spec.draft_weights)


@dataclass(slots=True)
class Prompts:
    """Turns the token runs of a file into segments."""

    prefixes: dict[str, PrefixSpec]
    seed: int
    vocabulary: int
    defined: str = "workload.prefixes"
    _firsts: count[int] = field(default_factory=lambda: count(1))

    def segments(self, prompt: list[Tokens], owner: tuple[object, ...], location: Location) -> tuple[Segment, ...]:
        """Segments of ``prompt``; ``owner`` names the fresh runs in it, ``location`` is for messages."""
        found: list[Segment] = []
        for place, tokens in enumerate(prompt):
            found.append(self._segment(tokens, (*owner, place), (*location, place), found))
        return tuple(found)

    def _segment(self, part: Tokens, owner: tuple[object, ...], location: Location, before: list[Segment]) -> Segment:
        if part.ids is not None:
            return self._literal(part.ids, location)
        if part.prefix is not None:
            return self._prefix(part.prefix, part.tokens, location)
        if part.stream is not None:
            return Segment(
                part.stream, part.tokens or 0, -1 if part.first is None else self._checked(part.first, location)
            )
        seed = named_seed("fresh", self.seed, *owner)
        first = self._fresh_first(before) if part.first is None else self._checked(part.first, location)
        return Segment(seed, part.fresh or 0, first)

    def _fresh_first(self, before: list[Segment]) -> int:
        """An id that no other run of fresh tokens starts with, nor the shared stream that the prompt leaves here."""
        first = next(self._firsts) % self.vocabulary
        if before and not before[-1].literal:
            last = before[-1]
            if int(stream_tokens(last.seed, last.length, 1, self.vocabulary)[0]) == first:
                first = next(self._firsts) % self.vocabulary
        return first

    def _prefix(self, name: str, tokens: int | None, location: Location) -> Segment:
        spec = self.prefixes.get(name)
        if spec is None:
            raise FieldError(location, unknown("a shared prefix", name, self.prefixes))
        if spec.ids is not None:
            whole = self._literal(spec.ids, (*self.defined.split("."), name, "ids"))
        else:
            whole = Segment(named_seed("prefix", self.seed, name), spec.tokens or 0)
        if tokens is None:
            return whole
        if tokens > whole.length:
            raise FieldError(location, f"expected at most the {whole.length} tokens of {name!r}, found {tokens}")
        return Segment.of(whole.literal[:tokens]) if whole.literal else Segment(whole.seed, tokens)

    def _literal(self, ids: list[int], location: Location) -> Segment:
        for token in ids:
            self._checked(token, location)
        return Segment.of(tuple(ids))

    def _checked(self, token: int, location: Location) -> int:
        if token >= self.vocabulary:
            raise FieldError(location, f"expected token ids below the vocabulary of {self.vocabulary}, found {token}")
        return token


def build_sessions(spec: WorkloadSpec, seed: int, vocabulary: int) -> tuple[list[Session], list[list[Location]]]:
    """Sessions written out in a file, and the location of each turn of each of them."""
    prompts = Prompts(spec.prefixes, seed, vocabulary)
    sessions: list[Session] = []
    places: list[list[Location]] = []
    names: set[str] = set()
    requests = 0
    for place, session in enumerate(spec.sessions or ()):
        location = ("workload", "sessions", place)
        base = session.name or f"s{place}"
        requests += session.copies * sum(turn.repeat for turn in session.turns or [])
        if requests > _MOST:
            raise FieldError(location, f"expected at most {_MOST:,} requests, found {requests:,}")
        for copy in range(session.copies):
            name = base if session.copies == 1 else f"{base}-{copy}"
            if name in names:
                raise FieldError((*location, "name"), f"expected a new session name, found {name!r} again")
            names.add(name)
            turns, turn_places = _turns(session, name, prompts, location)
            sessions.append(_session(session, name, turns, session.arrival_s + copy * session.every_s, seed))
            places.append(turn_places)
    _check_parents(sessions, places)
    return sessions, places


def _session(spec: SessionSpec, name: str, turns: list[Turn], arrival_s: float, seed: int) -> Session:
    parent = None if spec.parent is None else (spec.parent.session, spec.parent.turn)
    return Session(name, tuple(turns), arrival_s, parent, spec.inherit, scope_of(spec.scope), spec.drafts, spec.worker)


def _turns(session: SessionSpec, name: str, prompts: Prompts, location: Location) -> tuple[list[Turn], list[Location]]:
    if session.prompt is not None:
        segments = prompts.segments(session.prompt, (name, 0), (*location, "prompt"))
        return [Turn(segments, session.output or 0)], [location]
    turns: list[Turn] = []
    places: list[Location] = []
    for place, spec in enumerate(session.turns or ()):
        here = (*location, "turns", place)
        for _ in range(spec.repeat):
            key = "append" if spec.prompt is None else "prompt"
            parts = spec.append if spec.prompt is None else spec.prompt
            segments = prompts.segments(parts or [], (name, len(turns)), (*here, key))
            whole = spec.prompt is not None and bool(turns)
            turns.append(Turn(segments, spec.output, spec.think_s, whole, spec.at_s))
            places.append(here)
    return turns, places


def _check_parents(sessions: list[Session], places: list[list[Location]]) -> None:
    """Parents exist, have the turn that is named, and stand before their children."""
    seen: dict[str, Session] = {}
    for session, location in zip(sessions, places, strict=True):
        where = (*location[0][:3], "parent")
        if session.parent is not None:
            name, turn = session.parent
            if name not in seen:
                raise FieldError(where, unknown("a session", name, seen).replace("a session of", "a session above it,"))
            if turn >= len(seen[name].turns):
                raise FieldError(where, f"expected a turn below {len(seen[name].turns)}, found {turn}")
        elif session.inherit:
            raise FieldError((*location[0][:3], "inherit"), "expected inherit only beside parent, found it without")
        seen[session.name] = session


def check_fit(workload: Workload, fit: Fit, places: list[list[Location]] | None, fallback: Location) -> None:
    """Refuse a request that can never run.

    ``places`` gives the location of each turn; where it is ``None`` messages point at ``fallback``.
    """
    ends: dict[tuple[str, int], int] = {}
    for index, session in enumerate(workload.sessions):
        inherited = ends[session.parent] if session.parent and session.inherit else 0
        for turn, length in enumerate(prompt_lengths(session, inherited)):
            output = session.turns[turn].max_new_tokens
            ends[session.name, turn] = length + output
            problem = fit.problem(length, output)
            if problem:
                where = places[index][turn] if places is not None else fallback
                raise FieldError(where, f"{problem} (session {session.name}, turn {turn})")
