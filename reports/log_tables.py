"""``kvtwin tables`` and ``kvtwin pages``: what a run left, read again."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from reports import terminal
from reports.course_files import COURSE, read_course
from reports.document import dump, plural
from reports.event_tables import Tables, write_tables
from reports.folder import Output
from reports.page_history import PAGE_STATES
from scenarios.errors import InputError

_OF_A_PAGE = ("worker", "pool", "page", "state", "owner", "request", "block", "column", "coverage")


@dataclass(frozen=True, slots=True)
class PagesSeen:
    """The pages of a run at one step: a row a page, as :meth:`reports.course.Course.page_map` has them."""

    run: str
    iteration: int
    last: int
    rows: pd.DataFrame


def tables(log: Path, out: Path, csv: bool) -> Tables:
    """Write the tables of a log to the folder ``out``, whole or not at all. Raises ``InputError``."""
    with Output(out, several=False, sources=(log,)) as output:
        return write_tables(log, output.folder(""), csv)


def show_tables(done: Tables, out: Path, json: bool) -> None:
    """Print what was written."""
    if json:
        sys.stdout.write(dump({**done.document(), "folder": str(out)}))
        return
    screen = terminal.console()
    rows = [
        {"name": name, "rows": count, "file": f"{name}.{done.ending}"}
        for name, count in done.document()["rows"].items()
    ]
    terminal.show_rows(screen, rows, {"name": "event", "rows": "rows", "file": "table"})
    screen.print(f"{plural(sum(done.rows.values()), 'event')}, written: {out}", soft_wrap=True, highlight=False)


def pages(run: Path, at: int | None) -> PagesSeen:
    """The pages of the run in a folder when iteration ``at`` went out, or at its end. Raises ``InputError``."""
    course = read_course(run / COURSE)
    if course is None:
        problem = f"expected a folder that kvtwin run --out wrote with its events, found no {COURSE} in it"
        raise InputError(str(run), 0, "", problem)
    end = max(course.occupancy["iteration"].tolist(), default=0)
    if at is not None and at > end:
        raise InputError("--at", 0, "", f"expected an iteration up to {end}, the end of the run, found {at}")
    wanted = end if at is None else at
    return PagesSeen(str(run), wanted, end, course.page_map(wanted))


def show_pages(seen: PagesSeen, json: bool) -> None:
    """Print pages by pool and state, then whom they were granted to; as JSON every page that is not free."""
    listed = [dict(zip(_OF_A_PAGE, row, strict=True)) for row in _plain(seen.rows)]
    pools: dict[tuple[int, str], dict[str, Any]] = {}
    parts: dict[tuple[int, int, str, str], list[int]] = {}
    for row in listed:
        place = row["worker"], row["pool"]
        pool = pools.setdefault(place, {"name": row["pool"], "worker": row["worker"], **dict.fromkeys(PAGE_STATES, 0)})
        pool[row["state"]] += 1
        if row["state"] != "free":
            parts.setdefault((row["worker"], row["request"], row["pool"], row["state"]), []).append(row["block"])
    if json:
        document = {"name": seen.run, "iteration": seen.iteration, "last": seen.last, "pools": list(pools.values())}
        sys.stdout.write(dump(document | {"pages": [row for row in listed if row["state"] != "free"]}))
        return
    out = terminal.console()
    when = "at the end" if seen.iteration == seen.last else f"when iteration {seen.iteration} of {seen.last} went out"
    out.print(f"Pages of {seen.run} {when}", style="bold", soft_wrap=True, highlight=False)
    terminal.show_rows(out, list(pools.values()), {"name": "pool", "worker": "worker", **{s: s for s in PAGE_STATES}})
    rows = [
        {"name": pool, "worker": worker, "request": request, "state": state, "pages": len(blocks)}
        | {"blocks": _ranges(blocks)}
        for (worker, request, pool, state), blocks in sorted(parts.items())
    ]
    headings = {"name": "pool", "worker": "worker", "request": "granted to request", "state": "state"}
    terminal.show_rows(out, rows, {**headings, "pages": "pages", "blocks": "blocks"})


def _plain(table: pd.DataFrame) -> Iterable[tuple[Any, ...]]:
    return zip(*(table[name].tolist() for name in _OF_A_PAGE), strict=True)


def _ranges(blocks: list[int]) -> str:
    """Blocks as ranges: ``0-4, 7``."""
    ranges: list[list[int]] = []
    for block in sorted(set(blocks)):
        if ranges and block == ranges[-1][1] + 1:
            ranges[-1][1] = block
        else:
            ranges.append([block, block])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
