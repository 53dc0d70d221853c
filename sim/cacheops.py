"""Ops of the cache layer alone, and programs of them on file: one engine's managers without its scheduler.

A program is JSON lines like a trace of ops (``sim.optrace``): a header, the ops in order, an end line that counts them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from model.config import EngineConfig, RequestSpec
from model.ops import Submit
from scenarios.errors import FieldError, InputError, field_name, quote, reason_of
from sim.files import write_lines
from sim.opcodec import decode_config, decode_op, encode_config, encode_op
from sim.opconfig import check_config

SCHEMA = 1
FORMAT = "kvtwin-cache-ops"


class Create(NamedTuple):
    """A request is known: its tokens, keys and scope."""

    spec: RequestSpec


class Claim(NamedTuple):
    """The request's sequences are made with what both pools hold of its prompt; its cursor goes there."""

    request_id: int


class Resume(NamedTuple):
    """The request locks its pages in both pools."""

    request_id: int


class Chunk(NamedTuple):
    """Both pools back the next ``tokens`` of the context."""

    request_id: int
    tokens: int


class Row(NamedTuple):
    """Both pools back one more verify row."""

    request_id: int


class Revert(NamedTuple):
    """The newest growth shrinks back: its forward did not run."""

    request_id: int


class Commit(NamedTuple):
    """What was grown first is computed: a chunk is written and published, or a row accepts ``tokens`` (1 .. 1 + K)."""

    request_id: int
    tokens: int = 1


class Suspend(NamedTuple):
    """Both pools of a request give up their locks."""

    request_id: int


class Close(NamedTuple):
    """The request drops every page that it refers to."""

    request_id: int


class Evict(NamedTuple):
    """Cached pages of a pool go until at most ``pages`` stay on the device."""

    pool: str
    pages: int


class Offload(NamedTuple):
    """Room for ``pages`` is made on the device of a pool with a host tier, and given back."""

    pool: str
    pages: int


class Load(NamedTuple):
    """A suspended request whose pages lie in the host tier, in part or all, gets them back and locks them."""

    request_id: int


CacheOp = Create | Claim | Resume | Chunk | Row | Revert | Commit | Suspend | Close | Evict | Offload | Load
KINDS: dict[str, type[CacheOp]] = {
    kind.__name__.lower(): kind
    for kind in (Create, Claim, Resume, Chunk, Row, Revert, Commit, Suspend, Close, Evict, Offload, Load)
}


@dataclass(frozen=True, slots=True)
class CacheProgram:
    """Ops of the cache layer with the engine and the build that they run on; ``seed`` is the example's."""

    build: str
    seed: int
    config: EngineConfig
    ops: tuple[CacheOp, ...]


def encode_cache_op(op: CacheOp) -> dict[str, Any]:
    """``op`` as a JSON object; its kind stands under ``op``."""
    kind = type(op).__name__.lower()
    if isinstance(op, Create):
        return {**encode_op(Submit(op.spec)), "op": kind}
    values = {"request" if name == "request_id" else name: value for name, value in op._asdict().items()}
    return {"op": kind, **values}


def decode_cache_op(line: Any) -> CacheOp:
    """The op of one JSON object; ValueError says what was expected."""
    if not isinstance(line, dict) or line.get("op") not in KINDS:
        raise ValueError(f"expected op to be one of {', '.join(KINDS)}, found {quote(line)}")
    kind = KINDS[line["op"]]
    if kind is Create:
        submit = decode_op({**line, "op": "submit"})
        assert isinstance(submit, Submit)
        return Create(submit.spec)
    fields = {"request" if name == "request_id" else name for name in kind._fields}
    if set(line) != {"op", *fields}:
        raise ValueError(f"expected {', '.join(sorted(fields))} in a {line['op']}, found {', '.join(sorted(line))}")
    values = {}
    for name in kind._fields:
        value = line["request" if name == "request_id" else name]
        if name == "pool":
            if not isinstance(value, str) or not value:
                raise ValueError(f"expected pool to be a name, found {value!r}")
        elif isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"expected {name} to be a whole number from 0, found {value!r}")
        values[name] = value
    return kind(**values)


def save_program(path: Path, program: CacheProgram) -> None:
    """Write ``program`` to ``path``, whole or not at all."""
    header = {"format": FORMAT, "schema": SCHEMA, "build": program.build, "seed": program.seed}
    lines = [{**header, "config": encode_config(program.config)}, *map(encode_cache_op, program.ops)]
    write_lines(path, (json.dumps(line, separators=(",", ":")) for line in (*lines, {"end": len(program.ops)})))


def is_program(path: Path) -> bool:
    """Whether the file at ``path`` says in its header that it is a program of the cache layer."""
    try:
        with path.open(encoding="utf-8") as lines:
            header = json.loads(lines.readline(1 << 20))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(header, dict) and header.get("format") == FORMAT


def load_program(path: Path) -> CacheProgram:
    """Read a program. Raises InputError with one line that names the file, the line and what was expected there."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), 0, "", f"expected a readable program, found: {reason_of(error)}") from error
    values = []
    for number, line in enumerate(lines, 1):
        try:
            values.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise InputError(str(path), number, "", f"expected a line of JSON, found {quote(line)}") from error
    header = values[0] if values else None
    if not isinstance(header, dict) or header.get("format") != FORMAT or header.get("schema") != SCHEMA:
        raise InputError(str(path), 1, "", f"expected the header of a {FORMAT} program of schema {SCHEMA}")
    if values[-1] != {"end": len(lines) - 2}:
        raise InputError(str(path), len(lines), "", f"expected the end line of {len(lines) - 2} ops: the file is cut")
    ops = []
    for number, value in enumerate(values[1:-1], 2):
        try:
            ops.append(decode_cache_op(value))
        except ValueError as error:
            raise InputError(str(path), number, "", str(error)) from error
    try:
        config = decode_config(header.get("config"))
        check_config(config)
        return CacheProgram(str(header["build"]), int(header["seed"]), config, tuple(ops))
    except FieldError as error:
        raise InputError(str(path), 1, field_name(error.location), error.problem) from error
    except KeyError as error:
        raise InputError(str(path), 1, "", f"expected the key {error.args[0]} in the header") from error
    except (TypeError, ValueError) as error:
        raise InputError(str(path), 1, "", f"expected a header that fits this version: {error}") from error
