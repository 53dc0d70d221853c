"""An event log of a run as tables, one for each kind of event: JSON lines into Parquet, or CSV.

A block of lines is sorted by kind and each kind is read at once, by pyarrow and its own schema; only where that fails
are lines looked at one by one, to name the first that is wrong.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from model.events import FIELDS, Kind
from reports.document import dump
from reports.folder import stamp
from reports.run_folder import EVENTS
from scenarios.errors import InputError, quote, reason_of

BLOCK_BYTES = 32 << 20
ABOUT = "tables.json"
_MARK, _WORKER = b'"event":"', b'"worker":'
_KINDS = {kind.name.lower().encode(): kind for kind in Kind}


class _UnfitError(Exception):
    """Lines that are not all events of their kinds."""


@dataclass(slots=True)
class Tables:
    """What was written: rows of each kind of event, and the ending of the files."""

    rows: dict[str, int] = field(default_factory=dict)
    ending: str = "parquet"

    def document(self) -> dict[str, Any]:
        """What was written, as plain values."""
        return {"format": self.ending, "events": sum(self.rows.values()), "rows": self.rows}


def columns_of(kind: Kind, workers: bool) -> dict[str, pa.DataType]:
    """Columns of the table of one kind: the line in the log, worker (where there are several) and iteration, then the
    fields of the event; content tags are hexadecimal text, what an event has several of is a list."""
    columns: dict[str, pa.DataType] = {"line": pa.int64()}
    if workers:
        columns["worker"] = pa.int64()
    columns["iteration"] = pa.int64()
    for name in FIELDS[kind]:
        if name.endswith(".."):
            tags = name.endswith("tag..")
            columns["tags" if tags else name[:-2]] = pa.list_(pa.string() if tags else pa.int64())
        elif name != "iteration":
            columns[name] = pa.string() if name in ("pool", "tag") else pa.int64()
    return columns


def write_tables(log: Path, folder: Path, csv: bool = False) -> Tables:
    """Fill ``folder`` with a table for each kind of event in ``log`` (a file of events, or the folder of a run).

    Raises :class:`InputError` for a log that cannot be read, naming the first line that is no event.
    """
    path = log / EVENTS if log.is_dir() else log
    done = Tables(ending="csv" if csv else "parquet")
    with ExitStack() as stack:
        writers: dict[Kind, _Writer] = {}
        for kind, table in _tables(path):
            name = kind.name.lower()
            if kind not in writers:
                writers[kind] = stack.enter_context(_Writer(folder / f"{name}.{done.ending}", table.schema, csv))
            writers[kind].write(table)
            done.rows[name] = done.rows.get(name, 0) + len(table)
    if not done.rows:
        raise InputError(str(path), 0, "", "expected a log of events, found an empty file")
    done.rows = dict(sorted(done.rows.items()))
    (folder / ABOUT).write_text(dump({"log": str(log), **done.document()}), encoding="utf-8")
    stamp(folder, "tables")
    return done


def _tables(path: Path) -> Iterator[tuple[Kind, pa.Table]]:
    """A table for each kind of event in each block of a log."""
    workers = None
    for first, lines in _blocks(path):
        if workers is None:
            workers = _WORKER in lines[0]
        try:
            tables = [
                (kind, _parsed(kind, workers, numbers, chosen))
                for kind, (numbers, chosen) in _by_kind(first, lines).items()
            ]
        except (pa.ArrowException, _UnfitError) as error:
            raise _first_wrong(path, workers, first, lines, str(error)) from error
        yield from tables


class _Writer:
    """Writes one table, a part for each block of the log."""

    def __init__(self, path: Path, schema: pa.Schema, csv: bool) -> None:
        self._csv = csv
        if csv:
            schema = pa.schema([(name, _flat(schema.field(name).type)) for name in schema.names])
            self._writer: Any = pa_csv.CSVWriter(path, schema)
        else:
            self._writer = pq.ParquetWriter(path, schema)

    def write(self, table: pa.Table) -> None:
        """Append ``table``; in CSV a list is its values with spaces between them."""
        if self._csv:
            columns = [_joined(column) if pa.types.is_list(column.type) else column for column in table.columns]
            table = pa.Table.from_arrays(columns, names=table.column_names)
        self._writer.write_table(table)

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()


def _flat(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_list(kind) else kind


def _joined(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.call_function("binary_join", [column.cast(pa.list_(pa.string())), pa.scalar(" ")])


def _blocks(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """Whole lines of a file, some megabytes at a time, each time with the number of the first."""
    number, rest = 1, b""
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                lines = (rest + block).splitlines(keepends=True)
                rest = b"" if lines[-1].endswith(b"\n") else lines.pop()
                if lines:
                    yield number, lines
                number += len(lines)
    except OSError as error:
        raise InputError(str(path), 0, "", f"expected a log of events: {reason_of(error)}") from error
    if rest:
        yield number, [rest]


def _by_kind(first: int, lines: list[bytes]) -> dict[Kind, tuple[list[int], list[bytes]]]:
    """Lines of each kind with their numbers."""
    found: dict[bytes, tuple[list[int], list[bytes]]] = {}
    skip = len(_MARK)
    for number, line in enumerate(lines, first):
        begin = line.find(_MARK) + skip
        name = line[begin : line.find(b'"', begin)]
        if name not in found:
            found[name] = [], []
        numbers, chosen = found[name]
        numbers.append(number)
        chosen.append(line)
    if not found.keys() <= _KINDS.keys():
        raise _UnfitError("a kind of event that kvtwin does not know")
    return {_KINDS[name]: found[name] for name in found}


@cache
def _options(kind: Kind, workers: bool) -> tuple[pa_json.ParseOptions, tuple[str, ...]]:
    columns = columns_of(kind, workers)
    del columns["line"]
    schema = pa.schema([*columns.items(), ("event", pa.string())])
    return pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"), tuple(columns)


def _parsed(kind: Kind, workers: bool, numbers: list[int], lines: list[bytes]) -> pa.Table:
    """Lines of one kind as a table."""
    parse, names = _options(kind, workers)
    read = pa_json.ReadOptions(block_size=max(1 << 20, 2 * max(map(len, lines))))
    table = pa_json.read_json(io.BytesIO(b"".join(lines)), read_options=read, parse_options=parse).select(list(names))
    lists = [pc.call_function("list_flatten", [column]) for column in table.columns if pa.types.is_list(column.type)]
    if len(table) != len(lines) or any(column.null_count for column in (*table.columns, *lists)):
        raise _UnfitError("fields that are missing, or no event a line")
    return table.add_column(0, "line", pa.array(numbers, type=pa.int64()))


def _first_wrong(path: Path, workers: bool, first: int, lines: list[bytes], otherwise: str) -> InputError:
    """The first of ``lines`` that is no event; ``otherwise`` is why they could not be read."""
    for number, line in enumerate(lines, first):
        try:
            event = json.loads(line)
        except ValueError as error:
            return InputError(str(path), number, "", f"expected an event as JSON, found: {error}")
        name = event.get("event") if isinstance(event, dict) else None
        kind = _KINDS.get(name.encode()) if isinstance(name, str) else None
        if kind is None or _MARK not in line:
            found = quote(line.decode().strip())
            return InputError(str(path), number, "event", f"expected a line of an event log of kvtwin, found {found}")
        columns = columns_of(kind, workers)
        del columns["line"]
        for column, wanted in columns.items():
            if not _fits(event.get(column), wanted):
                found = quote(event[column]) if column in event else "none"
                return InputError(str(path), number, column, f"expected {_words(wanted)}, found {found}")
        foreign = event.keys() - columns.keys() - {"event"}
        if foreign:
            return InputError(str(path), number, min(foreign), f"expected no such field in an event of kind {name}")
    return InputError(str(path), first, "", f"expected events of kvtwin, found {otherwise}")


def _fits(value: object, wanted: pa.DataType) -> bool:
    if isinstance(wanted, pa.ListType):
        return isinstance(value, list) and all(_fits(one, wanted.value_type) for one in value)
    if pa.types.is_string(wanted):
        return isinstance(value, str)
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def _words(wanted: pa.DataType) -> str:
    if isinstance(wanted, pa.ListType):
        return "a list of texts" if pa.types.is_string(wanted.value_type) else "a list of whole numbers"
    return "a text" if pa.types.is_string(wanted) else "a whole number"
