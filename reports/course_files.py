"""The course of a run as files: Parquet tables in a folder of their own, and reading them back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from reports.course import Course
from reports.document import dump
from reports.folder import stamp
from reports.page_history import NOTE_COLUMNS, PAGE_STATES, PageHistory
from scenarios.errors import InputError, reason_of

COURSE = "course"  # its folder in that of a run
SCHEMA = 1
ABOUT = "course.json"
TABLES = ("spans", "occupancy", "iterations")
_NOTES, _CHANGES = "page_notes", "page_changes"


def write_course(folder: Path, course: Course) -> None:
    """Fill the new ``folder``: a Parquet file for each table of ``course``, and what its pages went through."""
    folder.mkdir()
    pools = [
        {"worker": history.worker, "pool": name, "pages": pages}
        for history in course.pages
        for name, pages in history.pools.items()
    ]
    (folder / ABOUT).write_text(dump({"schema": SCHEMA, "clocked": course.clocked, "pools": pools}))
    for name in TABLES:
        _write(folder, name, getattr(course, name))
    columns = ("page", *NOTE_COLUMNS)
    _write(folder, _NOTES, pd.concat([_table(one, one.notes, columns) for one in course.pages], ignore_index=True))
    changes = pd.concat([_table(one, one.changes, ("page", "state", "cached")) for one in course.pages])
    changes["state"] = pd.Categorical.from_codes(changes["state"].astype("int8"), categories=list(PAGE_STATES))
    _write(folder, _CHANGES, changes.astype({"cached": bool}))
    stamp(folder, "course")


def read_course(folder: Path) -> Course | None:
    """The course that :func:`write_course` left in ``folder``; ``None`` where there is no such folder.

    Raises :class:`InputError` for files that are broken or of another version.
    """
    if not folder.exists():
        return None
    about = _about(folder / ABOUT)
    try:
        if about["schema"] != SCHEMA:
            raise InputError(
                str(folder / ABOUT), 0, "schema", f"expected {SCHEMA}, found {about['schema']}; run it again"
            )
        tables = {name: _read(folder, name) for name in (*TABLES, _NOTES, _CHANGES)}
        workers = list(dict.fromkeys(pool["worker"] for pool in about["pools"]))
        pages = tuple(_history(worker, about["pools"], tables[_NOTES], tables[_CHANGES]) for worker in workers)
        spans, occupancy, iterations = (tables[name] for name in TABLES)
        return Course(bool(about["clocked"]), spans, occupancy, iterations, pages)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        problem = f"expected the files of this version of kvtwin, found no {error} in them; run it again"
        raise InputError(str(folder), 0, "", problem) from error


def _about(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(path), 0, "", f"expected the course of a run: {reason_of(error)}") from error
    except ValueError as error:
        raise InputError(str(path), 0, "", f"expected JSON, found: {error}") from error


def _table(history: PageHistory, rows: np.ndarray, columns: tuple[str, ...]) -> pd.DataFrame:
    """Rows of a history, its pools by name."""
    names = np.array(list(history.pools), dtype=object)
    named = {"iteration": rows[:, 0], "worker": history.worker, "pool": names[rows[:, 1]]}
    return pd.DataFrame(named | {name: rows[:, 2 + place] for place, name in enumerate(columns)})


def _history(worker: int, pools: list[Mapping[str, Any]], notes: pd.DataFrame, changes: pd.DataFrame) -> PageHistory:
    mine = {str(pool["pool"]): int(pool["pages"]) for pool in pools if pool["worker"] == worker}
    changes = changes.assign(state=_places(changes["state"], list(PAGE_STATES)))
    return PageHistory(
        worker,
        mine,
        _rows(notes, worker, list(mine), ("page", *NOTE_COLUMNS)),
        _rows(changes, worker, list(mine), ("page", "state", "cached")),
    )


def _rows(table: pd.DataFrame, worker: int, pools: list[str], columns: tuple[str, ...]) -> np.ndarray:
    mine = table[table["worker"] == worker]
    return np.stack(
        [mine["iteration"], _places(mine["pool"], pools), *(mine[name].astype("int64") for name in columns)], axis=1
    )


def _places(names: Iterable[str], known: list[str]) -> np.ndarray:
    """Where each name stands in ``known``; ValueError for one that does not."""
    coded = pd.Categorical(names)
    return np.array([known.index(name) for name in coded.categories], dtype=np.int64)[coded.codes]


def _write(folder: Path, name: str, table: pd.DataFrame) -> None:
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), folder / f"{name}.parquet")


def _read(folder: Path, name: str) -> pd.DataFrame:
    path = folder / f"{name}.parquet"
    try:
        table = pq.read_table(path, read_dictionary=["pool", "state"] if name in (_NOTES, _CHANGES) else None)
        return table.to_pandas()
    except FileNotFoundError as error:
        raise InputError(str(path), 0, "", "expected a table of the course of a run, found none") from error
    except (OSError, pa.ArrowException) as error:
        raise InputError(str(path), 0, "", f"expected a Parquet file, found: {error}") from error
