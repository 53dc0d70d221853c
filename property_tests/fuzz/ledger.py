"""The ledger of a campaign: what was ordered, on which code, and line by line what each shard brought.

JSON lines. A line is added in one write and is complete or not there: what a full disk or a kill leaves of one is
cut off. A campaign goes on from it, so that sessions of one order add up.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from property_tests.fuzz.causes import Causes
from property_tests.fuzz.order import Order
from scenarios.errors import InputError, quote
from sim.findings import Campaigned, Cause, Crash, ShardResult

FORMAT, SCHEMA = "kvtwin-fuzz", 1
Range = tuple[int, int]


class Ledger:
    """The sums of a campaign, kept in ``path`` if there is one.

    Raises :class:`InputError` where ``path`` holds another order, another code's examples, or no ledger, and where
    another campaign is writing it.
    """

    def __init__(self, path: Path | None, order: Order, code: str) -> None:
        self.path = path
        self.so_far = Campaigned()
        self.done: list[Range] = []  # examples [begin, end) that ran, ascending and apart
        self.causes = Causes()
        self._before = 0.0  # wall seconds of earlier sessions
        self._file = -1
        header = {"format": FORMAT, "schema": SCHEMA, "order": _order(order), "code": code}
        if path is not None:
            self._open(path, header)
        self.so_far.resumed = self.so_far.totals.examples

    def close(self) -> None:
        """Give the file free."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    # -- what came in ------------------------------------------------------------------------------------------------

    def add(self, begin: int, end: int, result: ShardResult, causes: list[Cause], wall: float) -> None:
        """Examples ``[begin, end)`` ran; ``wall`` seconds of this session have passed."""
        line = {
            "begin": begin,
            "end": end,
            "wall": round(wall, 3),
            "examples": result.examples,
            "steps": result.steps,
            "skips": result.skips,
            "seconds": round(result.seconds, 4),
            "evaluations": dict(sorted(result.evaluations.items())),
            "features": dict(sorted(result.features.items())),
            "failures": [asdict(cause) for cause in causes],
        }
        self._note(line)

    def crash(self, crash: Crash) -> None:
        """An example ended the harness; it counts as done, or a campaign could never go on behind it."""
        self._note({"crash": asdict(crash)})

    def stuck(self, error: OSError | InputError) -> None:
        """Something of the campaign cannot be written: from now on what comes in is summed up, and stands nowhere."""
        if isinstance(error, OSError):
            line = f"cannot write {error.filename or self.path}: {error.strerror or error}"
        else:
            line = str(error)
        self.so_far.unwritten = self.so_far.unwritten or line

    def _note(self, line: dict[str, Any]) -> None:
        try:
            if not self.so_far.unwritten:
                self._write(line)
        except OSError as error:
            self.stuck(error)
        self._take(line)

    # -- the file ----------------------------------------------------------------------------------------------------

    def _open(self, path: Path, header: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise InputError(
                str(path), 0, "", "expected a free folder, found a campaign that is running in it"
            ) from error
        text = path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            os.ftruncate(self._file, len(whole))  # a line that was cut off as it was written
        try:
            self._read(path, whole.decode("utf-8", "replace").splitlines(), header)
            if not whole:
                self._write(header)
            else:
                self._session()
        except BaseException:
            self.close()
            raise

    def _read(self, path: Path, lines: list[str], header: dict[str, Any]) -> None:
        for number, text in enumerate(lines, 1):
            try:
                line = json.loads(text)
                if number > 1:
                    self._take(line)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InputError(str(path), number, "", f"expected a line of a ledger, found {quote(text)}") from error
            if number == 1:
                _same(path, line, header)

    def _session(self) -> None:
        """Another session begins: what follows has its own clock."""
        self._write({"session": True})
        self._take({"session": True})

    def _take(self, line: dict[str, Any]) -> None:
        so_far = self.so_far
        if "session" in line:
            self._before = so_far.seconds
        elif "crash" in line:
            told = line["crash"]
            named = (int(told.get("seed", -1)), str(told.get("again", "")))
            crash = Crash(int(told["example"]), str(told["what"]), *named)
            so_far.crashes.append(crash)
            self._cover(crash.example, crash.example + 1)
        else:
            self._take_shard(line)

    def _take_shard(self, line: dict[str, Any]) -> None:
        examples, steps, skips = (int(line[key]) for key in ("examples", "steps", "skips"))
        laws, features = (Counter(dict(line[key])) for key in ("evaluations", "features"))
        self.so_far.totals.add(ShardResult(examples, steps, skips, float(line["seconds"]), laws, features))
        for value in line["failures"]:
            self.causes.take(Cause(**value | {"kinds": tuple(value["kinds"])}))
        self.so_far.causes, self.so_far.further = self.causes.all(), self.causes.further()
        self.so_far.seconds = max(self.so_far.seconds, self._before + float(line["wall"]))
        self._cover(int(line["begin"]), int(line["end"]))

    def _cover(self, begin: int, end: int) -> None:
        ranges: list[Range] = []
        for low, high in sorted([*self.done, (begin, end)]):
            if ranges and low <= ranges[-1][1]:
                ranges[-1] = (ranges[-1][0], max(high, ranges[-1][1]))
            else:
                ranges.append((low, high))
        self.done = ranges

    def _write(self, line: dict[str, Any]) -> None:
        """Add a line: all of it, or nothing and OSError as the file system raises it."""
        if self._file < 0:
            return
        text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        size = os.fstat(self._file).st_size
        try:
            written = 0
            while written < len(text):
                written += os.write(self._file, text[written:])
        except OSError as error:
            os.ftruncate(self._file, size)
            raise OSError(error.errno, error.strerror, str(self.path)) from error


def _order(order: Order) -> dict[str, Any]:
    """What decides the examples of an order."""
    return {key: value for key, value in asdict(order).items() if key != "database"}


def _same(path: Path, found: Any, header: dict[str, Any]) -> None:
    """Refuse a ledger of something else than ``header``."""
    if not isinstance(found, dict) or found.get("format") != FORMAT or found.get("schema") != SCHEMA:
        raise InputError(str(path), 1, "", f"expected the ledger of a campaign ({FORMAT}, schema {SCHEMA})")
    wanted, had = json.loads(json.dumps(header["order"])), found.get("order")
    had = had if isinstance(had, dict) else {}
    for name, value in wanted.items():
        if had.get(name) != value:
            problem = f"expected {_words(had.get(name))}, as the campaign in this folder has it, found {_words(value)}"
            raise InputError(str(path.parent), 0, name, problem)
    if found.get("code") != header["code"]:
        problem = f"expected the code that this folder's examples ran on, {found.get('code')}, found {header['code']}"
        raise InputError(str(path.parent), 0, "", f"{problem}; --out another folder")


def _words(value: object) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
