"""Check one log: read it, choose the judge of its format, and say what the format leaves open."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from model.invariants.base import INVARIANTS
from scenarios.errors import InputError, quote
from sim.logs import runlog, trtllm, vllm
from sim.logs.documents import values
from sim.logs.findings import LogReport
from sim.logs.run_reports import EVENTS

FORMATS = (runlog.FORMAT, trtllm.FORMAT, vllm.FORMAT)

_NO_REQUESTS = "the events tell of blocks, not of requests, steps or claims"
_OF_A_RUN = {
    "INIT": "the log has digests of what was read and written, not cell by cell",
    "WINDOW": "no event tells which pages leave a window",
    "ROLLBACK": "a pass that did not run leaves one event, not its growth",
    "ADMIT": "no event tells how many pages a pool has",
    "REUSE": "no event tells the tokens of a prompt",
    "AL": "it takes the drafter's window, which is in the memory",
    "LOSSLESS": "no event tells of outputs",
}
_OPEN = {
    "OWN": "no event tells who reads or writes a block",
    "INIT": "no event tells what was written",
    "KEY": "",
    "FRONT": "no event tells how far a request is",
    "PUB": "",
    "WINDOW": "no event tells what a request will read",
    "SHAPE": "",
    "REF": "",
    "ROLLBACK": "no event tells of a step that failed",
    "ADMIT": _NO_REQUESTS,
    "PROGRESS": _NO_REQUESTS,
    "FLIGHT": "a move is told when it is done, not when it begins",
    "STATE": _NO_REQUESTS,
    "MAP": "no event tells of block tables",
    "METRIC": "",
    "RANK": "ranks of attention data parallelism serve other requests; those of one model are told as one",
    "REUSE": _NO_REQUESTS,
    "AL": "no event tells of accepted drafts",
    "LOSSLESS": "no event tells of outputs",
}


class Judge(Protocol):
    """Who judges the values of a log."""

    def feed(self, line: int, value: Any) -> None:
        """Judge the next value."""
        ...

    def end(self) -> LogReport:
        """The verdict."""
        ...


_JUDGES: dict[str, Callable[[Path, bool, bool], Judge]] = {
    runlog.FORMAT: runlog.RunLog,
    trtllm.FORMAT: trtllm.TrtllmLog,
    vllm.FORMAT: vllm.VllmLog,
}


def check_log(path: Path, format: str | None = None, partial: bool = False, windowed: bool = False) -> LogReport:
    """The verdict on the log at ``path``; ``format`` is guessed from its first value if not given.

    A run folder of kvtwin is its event log, which the other files in it are then held to.

    ``partial``: the log begins in mid-run, so what it does not tell of may still be stored. ``windowed``: no pool has
    full attention. :class:`InputError` names the file, the line and the field of a log that cannot be read.
    """
    folder = path if path.is_dir() else None
    if folder is not None:
        path = folder / EVENTS
        if not path.exists():
            problem = f"expected a folder that kvtwin run --out wrote, found no {EVENTS}"
            raise InputError(str(folder), 0, "", problem)
    judge: Judge | None = None
    with closing(values(path)) as told:
        for line, value in told:
            if judge is None:
                name = format or _guess(path, line, value)
                if name is None:
                    continue
                judge = _JUDGES[name](path, partial, windowed)
            judge.feed(line, value)
    if judge is None:
        raise InputError(str(path), 0, "", "expected at least one event, found none")
    if folder is not None and isinstance(judge, runlog.RunLog):
        judge.compare(folder)
    report = judge.end()
    checked = {law.code for law in report.laws if law.evaluations}
    for code in (*INVARIANTS, "LOSSLESS"):
        if code not in checked:
            wanted = [f"{law.needs} ({law.name})" for law in report.laws if law.code == code]
            reasons = _OF_A_RUN if report.format == runlog.FORMAT else _OPEN
            report.open[code] = f"the log has no {'; no '.join(wanted)}" if wanted else reasons[code]
    return report


def _guess(path: Path, line: int, value: Any) -> str | None:
    """The format of a log by its first value; ``None`` for a value that says nothing, such as an empty poll."""
    first = value
    while isinstance(first, list) and first and not isinstance(first[0], str):
        if isinstance(first[0], int | float) and len(first) > 1:
            return vllm.FORMAT
        first = first[0]
    if not first:
        return None
    if isinstance(first, dict):
        if "event" in first and "iteration" in first:
            return runlog.FORMAT
        if "event_id" in first:
            return trtllm.FORMAT
        if "events" in first or first.get("type") in ("BlockStored", "BlockRemoved", "AllBlocksCleared"):
            return vllm.FORMAT
    elif isinstance(first, list):
        return vllm.FORMAT
    expected = f"an event of {', '.join(FORMATS)} (--format says which)"
    raise InputError(str(path), line, "", f"expected {expected}, found {quote(value)}")
