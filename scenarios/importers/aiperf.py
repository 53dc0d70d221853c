"""AIPerf's multi-turn format: one session a line, its turns by length or by hash ids."""

from __future__ import annotations

from pathlib import Path

from scenarios.importers.rows import Row, TraceContext, rows
from scenarios.workload import Session, Turn

KNOWN = frozenset(("session_id", "turns", "extra"))
KNOWN_TURN = frozenset(("input_length", "output_length", "hash_ids", "timestamp", "delay", "role", "extra"))
_TEXT = "input_length (text needs a tokenizer, and there is none here)"
_MEDIA = "input_length (media have no tokens here)"
REFUSED_TURN = {
    **dict.fromkeys(("text", "texts", "text_input", "messages", "content", "payload"), _TEXT),
    **dict.fromkeys(("image", "images", "audio", "audios", "video", "videos"), _MEDIA),
}
ROLES = ("user", "system", "tool")


def read_aiperf(path: Path, context: TraceContext) -> tuple[Session, ...]:
    """Sessions of the file at ``path`` in its order; ``InputError`` at a broken line.

    A turn adds its tokens to the previous prompt and output. Times are milliseconds: ``timestamp`` from the start,
    ``delay`` after the previous turn. ``extra`` is ignored.
    """
    sessions: dict[str, Session] = {}
    for row in rows(path, context.limit):
        row.allow(KNOWN, {})
        name = row.text("session_id") or f"line-{row.line}"
        if name in sessions:
            row.fail("session_id", f"expected a new session, found {name!r} again")
        turns = row.values.get("turns")
        if not isinstance(turns, list) or not turns:
            row.fail("turns", "expected a list of turns, found none")
        sessions[name] = _session(row, name, turns, context)
    return tuple(sessions.values())


def _session(row: Row, name: str, turns: list[object], context: TraceContext) -> Session:
    found: list[Turn] = []
    arrival_s, reached = 0.0, 0
    for place, values in enumerate(turns):
        turn = Row(row.file, row.line, values, f"turns[{place}].")
        turn.allow(KNOWN_TURN, REFUSED_TURN)
        role = turn.values.get("role", "user")
        if role not in ROLES:
            turn.fail("role", f"expected one of {', '.join(ROLES)} (outputs are generated), found {role!r}")
        length, output = turn.integer("input_length", 1), turn.integer("output_length", 1)
        ids = turn.hash_ids("hash_ids", length, context.block)
        segments = context.unshared(length, name, place) if ids is None else context.prompt(ids, length)
        timestamp, delay = turn.seconds("timestamp", context.time_scale), turn.seconds("delay", context.time_scale)
        if timestamp is not None and delay is not None:
            turn.fail("delay", "expected timestamp or delay, found both")
        reached += length
        problem = context.fit(reached, output) if context.fit else None
        if problem:
            turn.fail("input_length", problem)
        reached += output
        if not place:
            arrival_s = timestamp or 0.0
        found.append(Turn(segments, output, delay or 0.0, False, timestamp if place else None))
    return Session(name, tuple(found), arrival_s)
