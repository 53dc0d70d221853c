"""Rows of a JSON-lines trace: read line by line, checked field by field, every problem with file and line."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from model.tokens import Segment, mix64, named_seed
from scenarios.errors import InputError, quote

_GZIP = b"\x1f\x8b"
_MS = 1000.0


@dataclass(slots=True)
class TraceContext:
    """What an importer is told beside the file, and the segments of the blocks seen so far.

    ``block`` counts tokens per hash id. ``fit`` gives the problem with a request of so many prompt and output tokens,
    or ``None``. A hash id names all tokens of its block, the first one being the id itself (modulo the vocabulary):
    equal ids give equal tokens and two different next blocks differ at their first token.
    """

    seed: int
    vocabulary: int
    block: int = 512
    limit: int | None = None
    time_scale: float = 1.0
    fit: Callable[[int, int], str | None] | None = None
    _blocks: dict[int, Segment] = field(default_factory=dict)
    _base: int = -1

    def prompt(self, hash_ids: list[int], length: int) -> tuple[Segment, ...]:
        """Segments of a prompt of ``length`` tokens in blocks; the last block may be partial."""
        blocks = self._blocks
        found = []
        for hash_id in hash_ids:
            segment = blocks.get(hash_id)
            found.append(self._block(hash_id) if segment is None else segment)
        rest = length - self.block * (len(hash_ids) - 1)
        if rest != self.block:
            found[-1] = found[-1]._replace(length=rest)
        return tuple(found)

    def unshared(self, length: int, *name: object) -> tuple[Segment, ...]:
        """One segment of ``length`` tokens that nothing else in the trace has."""
        return (Segment(named_seed("trace", self.seed, *name), length),)

    def _block(self, hash_id: int) -> Segment:
        if self._base < 0:
            self._base = named_seed("block", self.seed)
        segment = Segment(mix64(self._base ^ hash_id), self.block, hash_id % self.vocabulary)
        self._blocks[hash_id] = segment
        return segment


class Row:
    """One JSON object of a trace with its place in the file."""

    __slots__ = ("file", "line", "path", "values")

    def __init__(self, file: str, line: int, values: Any, path: str = "") -> None:
        self.file = file
        self.line = line
        self.path = path
        if not isinstance(values, dict):
            self.fail("", f"expected an object, found {quote(values)}")
        self.values: dict[str, Any] = values

    def fail(self, name: str, problem: str) -> NoReturn:
        """Raise the ``InputError`` about a field of this row."""
        raise InputError(self.file, self.line, f"{self.path}{name}" if name else self.path.rstrip("."), problem)

    def allow(self, known: frozenset[str], refused: dict[str, str]) -> None:
        """Stop at a field that is not ``known``: a field that is dropped would change what the trace means."""
        for name in sorted(self.values.keys() - known):
            if name in refused:
                self.fail(name, f"expected {refused[name]}, found {name!r}")
            self.fail(name, f"expected only {', '.join(sorted(known))}, found unknown {name!r}")

    def integer(self, name: str, least: int, default: int | None = None) -> int:
        """An integer field of at least ``least``; ``default`` stands for a missing one, if given."""
        value = self.values.get(name, default)
        if type(value) is not int or value < least:
            self.fail(name, f"expected an integer of at least {least}, found {self._found(name)}")
        return value

    def seconds(self, name: str, scale: float) -> float | None:
        """A time in milliseconds as seconds times ``scale``; ``None`` if missing."""
        value = self.values.get(name)
        if value is None:
            return None
        if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
            self.fail(name, f"expected milliseconds of at least 0, found {quote(value)}")
        return value / _MS * scale

    def text(self, name: str) -> str | None:
        """A text or integer field as text; ``None`` if missing."""
        value = self.values.get(name)
        if value is None:
            return None
        if type(value) not in (str, int) or value == "":
            self.fail(name, f"expected a name, found {quote(value)}")
        return str(value)

    def hash_ids(self, name: str, length: int, block: int) -> list[int] | None:
        """Ids of the blocks of ``length`` tokens; ``None`` if missing."""
        value = self.values.get(name)
        if value is None:
            return None
        if type(value) is not list or not all(type(item) is int and item >= 0 for item in value):
            self.fail(name, f"expected a list of integers of at least 0, found {quote(value)}")
        blocks = -(-length // block)
        if len(value) != blocks:
            self.fail(name, f"expected {blocks} blocks of {block} for {length} tokens, found {len(value)}")
        return value

    def _found(self, name: str) -> str:
        return quote(self.values[name]) if name in self.values else "none"


def rows(path: Path, limit: int | None) -> Iterator[Row]:
    """Rows of the JSON-lines file at ``path``, plain or gzip by content; blank lines are passed over."""
    file, count = str(path), 0
    with closing(_lines(path)) as lines:
        for number, line in enumerate(lines, start=1):
            if line.isspace():
                continue
            if limit is not None and count >= limit:
                return
            count += 1
            yield Row(file, number, _parse(file, number, line))
    if not count:
        raise InputError(file, 0, "", "expected at least one row, found none")


def _parse(file: str, number: int, line: bytes) -> Any:
    try:
        return json.loads(line, object_pairs_hook=_unique, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise InputError(file, number, "", "expected UTF-8, found other bytes") from error
    except (ValueError, RecursionError) as error:
        raise InputError(file, number, "", f"expected a JSON object, found: {error}") from error


def _lines(path: Path) -> Generator[bytes, None, None]:
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            if packed:
                with gzip.open(raw) as unpacked:
                    yield from unpacked
            else:
                yield from raw
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(str(path), 0, "", f"expected a trace file, found: {reason}") from error
    except (EOFError, zlib.error) as error:
        raise InputError(str(path), 0, "", f"expected a whole gzip file, found: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field {next(name for name in names if names.count(name) > 1)!r} twice")
    return values


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name}, which is not JSON")
