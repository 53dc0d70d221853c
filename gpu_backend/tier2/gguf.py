"""GGUF files, version 3: metadata, tensor infos, and tensors as float32.

Layout (the GGUF specification of ggml): magic, version, counts of tensors and of metadata; metadata as key, type,
value; for each tensor its name, dimensions with the fastest first, type and offset; then, at the next multiple of the
alignment, the tensors. All numbers are little-endian. Every :class:`InputError` names file and key or tensor.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scenarios.errors import InputError, quote

MAGIC, VERSION = b"GGUF", 3
ALIGNMENT, DEFAULT_ALIGNMENT = "general.alignment", 32
STRING, ARRAY = 8, 9  # types of metadata that are no number
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
MOST_DIMENSIONS, MOST_NAME = 4, 256

# Blocks of 32 weights: scale, minimum or none, and quantised values. Q4_1 has two values a byte: the low halves are the
# first sixteen.
Q4_1 = np.dtype([("scale", "<f2"), ("least", "<f2"), ("pairs", "u1", (16,))])
Q8_0 = np.dtype([("scale", "<f2"), ("values", "i1", (32,))])
BLOCK = 32

Floats = NDArray[np.float32]


def from_f32(stored: bytes | memoryview) -> Floats:
    """Weights as they are."""
    return np.frombuffer(stored, "<f4").astype(np.float32)


def from_q4_1(stored: bytes | memoryview) -> Floats:
    """``scale * quantised + least``, quantised in 0 to 15."""
    blocks = np.frombuffer(stored, Q4_1)
    values = np.concatenate([blocks["pairs"] & 15, blocks["pairs"] >> 4], axis=1).astype(np.float32)
    values *= blocks["scale"].astype(np.float32)[:, None]
    values += blocks["least"].astype(np.float32)[:, None]
    return values.reshape(-1)


def from_q8_0(stored: bytes | memoryview) -> Floats:
    """``scale * quantised``, quantised in -128 to 127."""
    blocks = np.frombuffer(stored, Q8_0)
    values = blocks["values"].astype(np.float32)
    values *= blocks["scale"].astype(np.float32)[:, None]
    return values.reshape(-1)


@dataclass(frozen=True, slots=True)
class Kind:
    """How weights are stored: ``block`` of them in ``size`` bytes, which ``read`` gives back."""

    name: str
    block: int
    size: int
    read: Callable[[bytes | memoryview], Floats]


KINDS = {
    0: Kind("F32", 1, 4, from_f32),
    3: Kind("Q4_1", BLOCK, Q4_1.itemsize, from_q4_1),
    8: Kind("Q8_0", BLOCK, Q8_0.itemsize, from_q8_0),
}


@dataclass(frozen=True, slots=True)
class Info:
    """A tensor: its ``shape``, rows first, and where in the file it lies."""

    shape: tuple[int, ...]
    kind: Kind
    first: int
    size: int


@dataclass(slots=True)
class Gguf:
    """An open file: ``metadata`` by key, ``infos`` by tensor."""

    file: str
    content: memoryview
    metadata: dict[str, Any] = field(default_factory=dict)
    infos: dict[str, Info] = field(default_factory=dict)

    def tensor(self, name: str) -> Floats:
        """The tensor ``name`` in its shape; all of its weights are finite."""
        info = self.infos[name]
        with np.errstate(invalid="ignore", over="ignore"):
            found = info.kind.read(self.content[info.first : info.first + info.size]).reshape(info.shape)
        if not np.isfinite(found).all():
            raise InputError(self.file, 0, name, "expected finite weights")
        return found


def read_gguf(file: str, content: bytes) -> Gguf:
    """The file ``content``, whose name ``file`` is for messages; tensors are read when they are asked for."""
    if content[:4] != MAGIC:
        raise InputError(file, 0, "magic", f"expected {quote(MAGIC)}, found {quote(content[:4])}")
    reader = _Reader(file, memoryview(content), 4)
    version = reader.number("I", "version")
    if version != VERSION:
        raise InputError(file, 0, "version", f"expected {VERSION}, found {version}")
    tensors, keys = reader.count("tensors"), reader.count("metadata")
    found = Gguf(file, reader.content)
    for _ in range(keys):
        key = reader.name("metadata")
        found.metadata[key] = reader.value(reader.number("I", key), key)
    stored = [_stored(reader) for _ in range(tensors)]
    alignment = found.metadata.get(ALIGNMENT, DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise InputError(file, 0, ALIGNMENT, f"expected a positive number, found {quote(alignment)}")
    begin = -(-reader.at // alignment) * alignment
    for name, shape, kind, offset in stored:
        if name in found.infos:
            raise InputError(file, 0, name, "expected each tensor once, found it twice")
        info = Info(shape, kind, begin + offset, math.prod(shape) // kind.block * kind.size)
        if info.first + info.size > len(content):
            problem = f"expected {info.size} bytes from byte {info.first} on, found a file of {len(content)}"
            raise InputError(file, 0, name, problem)
        found.infos[name] = info
    return found


def _stored(reader: _Reader) -> tuple[str, tuple[int, ...], Kind, int]:
    """Name, shape, type and offset of the next tensor."""
    name = reader.name("tensors")
    dimensions = reader.number("I", name)
    if not 1 <= dimensions <= MOST_DIMENSIONS:
        raise InputError(reader.file, 0, name, f"expected 1 to {MOST_DIMENSIONS} dimensions, found {dimensions}")
    shape = tuple(reader.number("Q", name) for _ in range(dimensions))[::-1]
    number = reader.number("I", name)
    if number not in KINDS:
        known = ", ".join(f"{kind.name} ({one})" for one, kind in KINDS.items())
        raise InputError(reader.file, 0, name, f"expected weights stored as one of {known}, found type {number}")
    kind = KINDS[number]
    if 0 in shape or shape[-1] % kind.block:
        problem = f"expected rows of a multiple of {kind.block} weights, as {kind.name} has, found {list(shape)}"
        raise InputError(reader.file, 0, name, problem)
    return name, shape, kind, reader.number("Q", name)


class _Reader:
    """Reads on from ``at``; what would lie behind the end of the file is an error."""

    def __init__(self, file: str, content: memoryview, at: int) -> None:
        self.file, self.content, self.at = file, content, at

    def take(self, size: int, what: str) -> memoryview:
        """The next ``size`` bytes."""
        left = len(self.content) - self.at
        if size > left:
            problem = f"expected {size} more bytes from byte {self.at} on, found {left}: the file is cut short"
            raise InputError(self.file, 0, what, problem)
        self.at += size
        return self.content[self.at - size : self.at]

    def number(self, code: str, what: str) -> Any:
        """A number, as `struct` names it."""
        return struct.unpack(f"<{code}", self.take(struct.calcsize(code), what))[0]

    def count(self, what: str) -> int:
        """A number of things of one byte at least, as many as the rest of the file has room for."""
        found = self.number("Q", what)
        if found > len(self.content) - self.at:
            problem = f"expected no more than the {len(self.content) - self.at} bytes behind it hold, found {found}"
            raise InputError(self.file, 0, what, problem)
        return found

    def string(self, what: str) -> str:
        """A text."""
        stored = bytes(self.take(self.number("Q", what), what))
        try:
            return stored.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(self.file, 0, what, f"expected UTF-8, found {quote(stored)}") from error

    def name(self, what: str) -> str:
        """A short text that every error about what it names begins with."""
        found = self.string(what)
        if not 0 < len(found) <= MOST_NAME or not found.isprintable():
            problem = f"expected a name of 1 to {MOST_NAME} characters that can be printed, found {quote(found)}"
            raise InputError(self.file, 0, what, problem)
        return found

    def value(self, kind: int, key: str) -> Any:
        """A value of metadata; arrays hold values of one type, no arrays."""
        if kind == STRING:
            return self.string(key)
        if kind == ARRAY:
            inner, count = self.number("I", key), self.count(key)
            if inner in NUMBERS:
                code = f"{count}{NUMBERS[inner]}"
                return list(struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}"), key)))
            if inner == STRING:
                return [self.string(key) for _ in range(count)]
            raise InputError(self.file, 0, key, f"expected an array of numbers or texts, found type {inner}")
        if kind in NUMBERS:
            return self.number(NUMBERS[kind], key)
        raise InputError(self.file, 0, key, f"expected a known type of metadata, found {kind}")
