"""What the scripts of a page read: requests, timeline and page changes of each run, as compact JSON.

Tables are stored by column, long columns of integers as :func:`packed` text. Times are microseconds of the simulated
clock; what grows from row to row is stored as the distance to the row before.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from reports.page.changes import changes_of
from reports.page.frames import Ints, coded, ints, rows, texts
from reports.page_history import PAGE_STATES, PageHistory
from reports.stories import Told

KINDS = (
    "queued",
    "chunk",
    "generation",
    "suspended",
    "preempted",
    "transfer",
    "copy",
    "claim",
    "publication",
    "finished",
)
US = 1000  # nanoseconds


def script_json(value: Any) -> str:
    """JSON that may stand inside a script element: nothing in it ends the element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e").replace("\u2028", "\\u2028")


def columns(frame: pd.DataFrame, names: Sequence[str], digits: Mapping[str, int]) -> dict[str, Any]:
    """Columns of a frame, with ``None`` where a value is missing, and 3 decimals unless ``digits`` says how many."""
    return {name: _plain(frame[name].tolist(), digits.get(name, 3)) for name in names}


def _plain(values: list[Any], digits: int) -> list[Any]:
    return [_number(value, digits) if isinstance(value, float) else value for value in values]


def _number(value: float, digits: int) -> float | int | None:
    if value != value:
        return None
    rounded = round(value, digits)
    return int(rounded) if rounded == int(rounded) else rounded


def timeline(spans: pd.DataFrame) -> dict[str, Any]:
    """Spans of all requests, each with the place of its request in ``requests``, which are in the order of their begin.

    ``spans`` are those of a course, in order. Copies between tiers that are of no request are left out.
    """
    kinds = texts(spans, "kind")
    wanted = np.array([kind in KINDS for kind in kinds], dtype=bool) & (ints(spans, "request_id") >= 0)
    shown = rows(spans, wanted)
    begin, end = ints(shown, "begin_ns") // US, ints(shown, "end_ns") // US
    row, ids = coded(ints(shown, "request_id").tolist())
    first = rows(shown, ~shown["request_id"].duplicated())
    pool, pools = _named(texts(shown, "pool"))
    note, notes = _named(texts(shown, "note"))
    return {
        "requests": ids,
        "sessions": texts(first, "session"),
        "turns": ints(first, "turn").tolist(),
        "pools": pools,
        "notes": notes,
        "row": packed(row),
        "kind": packed(np.array([KINDS.index(kind) for kind in texts(shown, "kind")], dtype=np.int64)),
        "begin": packed(np.diff(begin, prepend=0)),
        "length": packed(end - begin),
        "iteration": packed(np.diff(ints(shown, "iteration"), prepend=0)),
        "tokens": packed(ints(shown, "tokens")),
        "pool": packed(pool),
        "note": packed(note),
    }


def packed(values: Ints) -> str:
    """Integers as base64 of variable-length bytes, seven bits each and the lowest first; the sign is the lowest bit."""
    numbers = np.asarray(values, dtype=np.int64)
    folded = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
    needed = np.ones(len(folded), dtype=np.int64)
    for place in range(1, 10):
        needed += folded >= np.uint64(1) << np.uint64(7 * place)
    starts = np.cumsum(needed) - needed
    data = np.zeros(int(needed.sum()), dtype=np.uint8)
    for place in range(int(needed.max(initial=0))):
        here = needed > place
        low = (folded[here] >> np.uint64(7 * place)) & np.uint64(127)
        data[starts[here] + place] = low.astype(np.uint8) | ((needed[here] > place + 1).astype(np.uint8) << 7)
    return b64encode(data.tobytes()).decode("ascii")


def _named(names: list[str]) -> tuple[Ints, list[str]]:
    """For each text its place among the different ones that are not empty (-1: it is), and these."""
    places, different = coded([name for name in names if name])
    found = np.full(len(names), -1, dtype=np.int64)
    found[np.array([bool(name) for name in names], dtype=bool)] = places
    return found, different


def page_map(pages: Sequence[PageHistory], occupancy: pd.DataFrame) -> dict[str, Any]:
    """How the pages of every pool change, worker by worker, and when each iteration went out.

    A run of pages that change alike in one iteration is one row: ``kind`` is the pool times the number of states plus
    the state, then the ``first`` page, the ``count`` of pages, and blocks counting up from ``block`` (-1: none is
    known); ``first`` and ``block`` are the distances to the last page and block of the row before.
    """
    looks = [rows(occupancy, occupancy["worker"] == history.worker) for history in pages]
    return {
        "states": PAGE_STATES,
        "workers": [_worker(history, look) for history, look in zip(pages, looks, strict=True) if len(look)],
    }


def _worker(history: PageHistory, occupancy: pd.DataFrame) -> dict[str, Any]:
    looks, first = np.unique(ints(occupancy, "iteration"), return_index=True)
    iteration, pool, state, request, block, page = changes_of(history, int(looks[-1]))
    table = np.stack([iteration, pool * len(PAGE_STATES) + state, request, page, block])
    return {
        "worker": history.worker,
        "pools": [{"name": name, "pages": pages} for name, pages in history.pools.items()],
        "iteration": packed(np.diff(looks, prepend=0)),
        "sent": packed(np.diff(ints(occupancy, "time_ns")[first] // US, prepend=0)),
        "changes": _runs(table),
    }


def _runs(table: Ints) -> dict[str, str]:
    """Columns in a row that differ only by counting pages (and blocks) up, as one; all but ``kind`` as distances.

    ``table``: iteration, kind, request, page and block of each change, int64 ``[5, changes]``.
    """
    iteration, kind, request, page, block = table
    same = (np.diff(table[:3], axis=1) == 0).all(axis=0) & (np.diff(page) == 1)
    same &= (np.diff(block) == 1) | ((block[1:] == -1) & (block[:-1] == -1))
    starts = np.flatnonzero(np.append(True, ~same)[: len(page)])
    count = np.diff(np.append(starts, len(page)))
    last = starts + count - 1
    return {
        "iteration": packed(np.diff(iteration[starts], prepend=0)),
        "kind": packed(kind[starts]),
        "request": packed(np.diff(request[starts], prepend=0)),
        "first": packed(page[starts] - np.append(0, page[last])[:-1]),
        "count": packed(count),
        "block": packed(block[starts] - np.append(0, block[last])[:-1]),
    }


def violations(found: Sequence[Mapping[str, Any]], told: Sequence[Told]) -> dict[str, Any]:
    """Violations by field, and the law's sentence, headline and lines of those whose story is told."""
    fields = ("code", "request", "pool", "page", "position", "step", "worker", "message", "expected", "found")
    return {
        **{field: [one[field] for one in found] for field in fields},
        "headlines": [one.headline for one in told],
        "stories": ["\n".join(one.lines) for one in told],
        "laws": {one.code: one.law for one in told},
    }
