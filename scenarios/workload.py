"""What clients send: sessions of turns, as plain values that the sim and the GPU replay share.

The prompt of turn ``t`` is the prompt of turn ``t - 1``, the tokens that the turn really produced, and ``append``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from model.config import Scope
from model.tokens import Segment


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a session: ``append`` is added after the previous prompt and output.

    With ``whole`` it is the whole prompt instead. ``think_s`` is the pause (seconds) after the end of the previous
    turn; ``at_s``, where given, is an absolute arrival (seconds from the start) and replaces the pause.
    """

    append: tuple[Segment, ...]
    max_new_tokens: int
    think_s: float = 0.0
    whole: bool = False
    at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation: its turns run one after the other, each a request of one conversation.

    ``arrival_s`` is when its first turn comes in an open loop (a closed loop starts sessions in order instead). With
    ``parent`` (name of a session, index of a turn) it starts when that turn ends, and takes over that turn's prompt
    as its own beginning if ``inherit``. With ``drafts`` off its requests run without the drafter.
    """

    name: str
    turns: tuple[Turn, ...]
    arrival_s: float = 0.0
    parent: tuple[str, int] | None = None
    inherit: bool = False
    scope: Scope = field(default_factory=Scope)
    drafts: bool = True
    worker: int | None = None  # which of several ranks serves it; in turn where it names none


@dataclass(frozen=True, slots=True)
class Workload:
    """All sessions of a run; ``concurrency`` sessions in flight at once, or ``None`` for arrivals by time."""

    sessions: tuple[Session, ...]
    concurrency: int | None = None

    @property
    def requests(self) -> int:
        """Number of requests: the turns of all sessions."""
        return sum(len(session.turns) for session in self.sessions)


def segments_length(segments: tuple[Segment, ...]) -> int:
    """Number of tokens in ``segments``."""
    return sum(segment.length for segment in segments)


def prompt_lengths(session: Session, inherited: int = 0) -> list[int]:
    """Prompt length of every turn in tokens if each produces all its tokens; ``inherited`` comes from a parent."""
    lengths: list[int] = []
    length = inherited
    for turn in session.turns:
        added = segments_length(turn.append)
        length = added if turn.whole else length + added
        lengths.append(length)
        length += turn.max_new_tokens
    return lengths
