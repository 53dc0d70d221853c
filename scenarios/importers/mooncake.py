"""Mooncake's JSON-lines format: one request a line, lengths and the hash ids of its prompt's blocks.

Mooncake's own files, and the sessions of the derived MLPerf agentic file, hold the *whole* prompt of every request.
AIPerf's generator writes the *new* tokens of each turn of a session. Nothing in a file says which, so the caller must.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from scenarios.importers.rows import Row, TraceContext, rows
from scenarios.workload import Session, Turn

KNOWN = frozenset(("timestamp", "delay", "input_length", "output_length", "hash_ids", "session_id", "turn", "extra"))
_TEXT = "input_length (text needs a tokenizer, and there is none here)"
REFUSED = {"text_input": _TEXT, "messages": _TEXT, "payload": _TEXT}


@dataclass(slots=True)
class _Open:
    """A session that is being read; ``context`` is its length in tokens after its last turn."""

    arrival_s: float
    turns: list[Turn] = field(default_factory=list)
    context: int = 0


def read_mooncake(path: Path, context: TraceContext, *, deltas: bool) -> tuple[Session, ...]:
    """Sessions of the file at ``path``, in the order of their first rows; ``InputError`` at a broken line.

    Rows without ``session_id`` are sessions of one turn. With ``deltas`` a row of a session holds what its turn adds
    to the previous prompt and output, otherwise the whole prompt. ``turn``, where given, must count 1, 2, 3...;
    ``extra`` is ignored, as its name says. Times are milliseconds: ``timestamp`` from the start, ``delay`` after the
    previous turn.
    """
    sessions: dict[str, _Open] = {}
    for row in rows(path, context.limit):
        row.allow(KNOWN, REFUSED)
        name = row.text("session_id")
        key = f"line-{row.line}" if name is None else name
        session = sessions.get(key)
        if session is None:
            arrival = row.seconds("timestamp", context.time_scale)
            session = sessions[key] = _Open(arrival or 0.0)
        elif name is None:
            row.fail("session_id", f"expected a name other than {key!r}, found it earlier")
        if "turn" in row.values and row.integer("turn", 1) != len(session.turns) + 1:
            row.fail("turn", f"expected {len(session.turns) + 1} in session {key!r}, found {row.values['turn']}")
        _add(row, key, session, context, deltas)
    return tuple(Session(key, tuple(item.turns), item.arrival_s) for key, item in sessions.items())


def _add(row: Row, key: str, session: _Open, context: TraceContext, deltas: bool) -> None:
    length = row.integer("input_length", 1)
    output = row.integer("output_length", 1)
    ids = row.hash_ids("hash_ids", length, context.block)
    segments = context.unshared(length, key, len(session.turns)) if ids is None else context.prompt(ids, length)
    timestamp, delay = row.seconds("timestamp", context.time_scale), row.seconds("delay", context.time_scale)
    if timestamp is not None and delay is not None:
        row.fail("delay", "expected timestamp or delay, found both")
    whole = not deltas
    prompt = length if whole else session.context + length
    problem = context.fit(prompt, output) if context.fit else None
    if problem:
        row.fail("input_length", problem)
    session.context = prompt + output
    at_s = timestamp if session.turns else None
    session.turns.append(Turn(segments, output, delay or 0.0, whole, at_s))
