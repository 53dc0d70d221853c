"""The JSON values of a log, one after another with their lines, without holding the file.

Two shapes are read, plain or gzip by content: JSON lines, and one or several arrays of objects or arrays, however they
are broken into lines; such arrays are told element by element. A file that begins with ``[`` and a number is JSON
lines: a batch of vLLM's that was encoded as an array begins with its time.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO, Any, NoReturn

import pydantic_core

from scenarios.errors import InputError

_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20  # characters of an array that are read at once
_ELEMENTS = re.compile(r"\s*\[\s*[\[{\]n]")  # an array whose elements are told one by one
_SPACE = re.compile(r"\s*")
_decode = json.JSONDecoder().raw_decode


def values(path: Path) -> Generator[tuple[int, Any], None, None]:
    """``(line, value)`` for every value of the log at ``path``, lines counted from 1.

    Raises :class:`InputError` that names the file and, where there is one, the line: no such file, no UTF-8, no JSON,
    no value at all.
    """
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            if packed:
                with gzip.open(raw) as unpacked:
                    yield from _values(path, unpacked)  # pyright: ignore[reportArgumentType]
            else:
                yield from _values(path, raw)
    except UnicodeDecodeError as error:
        raise InputError(str(path), 0, "", "expected UTF-8, found other bytes") from error
    except OSError as error:
        raise InputError(str(path), 0, "", f"expected a log, found: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise InputError(str(path), 0, "", f"expected a whole gzip file, found: {error}") from error


def _values(path: Path, stream: IO[bytes]) -> Iterator[tuple[int, Any]]:
    head = stream.read(4096)
    stream.seek(0)
    if not head.strip():
        head = stream.read()
        stream.seek(0)
        if not head.strip():
            raise InputError(str(path), 0, "", "expected at least one event, found none")
    if _ELEMENTS.match(head.decode("utf-8-sig", errors="replace")):
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        try:
            yield from _elements(path, text)
        finally:
            text.detach()  # whoever opened the stream closes it
        return
    for line, text in enumerate(stream, start=1):
        if text.isspace():
            continue
        try:
            value = pydantic_core.from_json(text.removeprefix(codecs.BOM_UTF8), allow_inf_nan=False)
        except ValueError as error:
            found = str(error).replace(" at line 1 column ", " at column ")
            raise InputError(str(path), line, "", f"expected one JSON value on a line, found: {found}") from error
        yield line, value


def _elements(path: Path, text: io.TextIOWrapper) -> Iterator[tuple[int, Any]]:
    """Elements of the top-level arrays of ``text``; values beside arrays are told as they are."""
    reader = _Buffer(path, text)
    while reader.more():
        if reader.next() != "[":
            yield reader.value()
            continue
        reader.skip()
        first = True
        while True:
            if not reader.more():
                reader.fail("expected ] at the end of the array, found the end of the file")
            mark = reader.next()
            if mark == "]":
                reader.skip()
                break
            if not first:
                if mark != ",":
                    reader.fail(f"expected , or ] between the elements of an array, found {mark!r}")
                reader.skip()
                reader.more()
            yield reader.value()
            first = False


class _Buffer:
    """A window of a text that moves on; ``line`` is the line of the next character."""

    def __init__(self, path: Path, text: io.TextIOWrapper) -> None:
        self.path, self.text = path, text
        self.held, self.place, self.line, self.wanted = "", 0, 1, _CHUNK

    def more(self) -> bool:
        """Pass white space; whether anything is left."""
        while True:
            found = _SPACE.match(self.held, self.place)
            assert found is not None
            self._pass(found.end())
            if self.place < len(self.held):
                return True
            if not self._read():
                return False

    def next(self) -> str:
        """The next character."""
        return self.held[self.place : self.place + 1]

    def skip(self) -> None:
        """Pass one character."""
        self.place += 1

    def value(self) -> tuple[int, Any]:
        """The next JSON value and its line."""
        while True:
            try:
                value, end = _decode(self.held, self.place)
            except (ValueError, RecursionError) as error:
                if self._read():
                    continue
                place = getattr(error, "pos", self.place)
                self.line += self.held.count("\n", self.place, place)
                self.fail(f"expected JSON, found: {getattr(error, 'msg', error)}")
            if end == len(self.held) and self._read():
                continue  # a number may go on
            self.wanted = _CHUNK
            line = self.line
            self._pass(end)
            return line, value

    def fail(self, problem: str) -> NoReturn:
        """Raise the :class:`InputError` about this line."""
        raise InputError(str(self.path), self.line, "", problem)

    def _pass(self, end: int) -> None:
        self.line += self.held.count("\n", self.place, end)
        self.place = end

    def _read(self) -> bool:
        """Read on, twice as far each time that one value needs more; whether anything came."""
        found = self.text.read(self.wanted)
        self.wanted *= 2
        self.held, self.place = self.held[self.place :] + found, 0
        return bool(found)
