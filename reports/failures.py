"""A failure that fuzzing found, as a folder: how to see it again, the program as found and what is left of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from reports.folder import stamp
from sim.cacheops import CacheProgram, save_program
from sim.findings import Failure, Program
from sim.optrace import save_trace

REPRO, FOUND, MINIMAL = "repro.txt", "trace.jsonl", "minimal.jsonl"


def write(folder: Path, failure: Failure, command: str, place: Path | None = None) -> Path:
    """Write ``failure`` to a folder of its own in ``folder``, named by its cause; ``command`` found it.

    ``place`` is the folder in which it will lie in the end, for the command that repeats it.
    """
    digest = hashlib.sha256("\0".join(failure.cause).encode()).hexdigest()[:8]
    target = folder / f"{failure.law}-{digest}"
    target.mkdir(parents=True, exist_ok=True)
    path = (place or folder) / target.name / MINIMAL
    again = "" if isinstance(failure.minimal, CacheProgram) else f"kvtwin run --ops {path}\n"
    (target / REPRO).write_text(f"{again}{command}\n", encoding="utf-8")
    _save(target / FOUND, failure.trace)
    _save(target / MINIMAL, failure.minimal)
    stamp(target, "failure")
    return target


def _save(path: Path, program: Program) -> None:
    if isinstance(program, CacheProgram):
        save_program(path, program)
    else:
        save_trace(path, program)
