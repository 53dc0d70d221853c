"""Small builders that the tests of this room share."""

from __future__ import annotations

from pathlib import Path

from scenarios.importers import TraceContext
from scenarios.loader import parse_scenario
from scenarios.schema import Scenario

TINY = """\
summary: a test
geometry: tiny
"""
ONE_REQUEST = "workload: {sessions: [{prompt: 9, output: 4}]}\n"


def parse(text: str, head: str = TINY) -> Scenario:
    """The scenario ``head`` + ``text``, as the file ``s.yaml``."""
    return parse_scenario(head + text, "s.yaml", Path())


def context(**changes: object) -> TraceContext:
    """A trace context with blocks of 4 tokens and a vocabulary of 1,000."""
    values: dict[str, object] = {"seed": 1, "vocabulary": 1000, "block": 4}
    return TraceContext(**{**values, **changes})  # pyright: ignore[reportArgumentType]


def write(path: Path, *lines: str) -> Path:
    """``lines`` as the file at ``path``."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
