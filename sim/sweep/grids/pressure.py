"""Grids over what happens to pages between publisher and reader: eviction, recycling, hardly any pages, a host tier."""

from __future__ import annotations

from model.ops import Shrink, Suspend
from sim.sweep.case import Case, Drive, Step
from sim.sweep.grid import Grid
from sim.sweep.toy import Toy, ask, own, shared

TO_END = Drive()


def _eviction(kind: str, window: int | None, pool: str, left: int, common: int, rest: int, third: int) -> Case | None:
    """Cached pages are evicted until ``left`` stay; then, if ``third``, another request takes the free ones."""
    toy = Toy(kind=kind, window=window, chain=2)
    pools = ("target", "draft") if pool == "both" else (pool,)
    taken: tuple[Step, ...] = (ask(2, own(2, third), output=2), TO_END) if third else ()
    script = (ask(0, shared(common), own(0, 2)), TO_END, *(Shrink(name, left) for name in pools), *taken)
    reader = ask(1, shared(common), own(1, rest), output=4)
    return Case(toy, (*script, reader, TO_END, ask(3, shared(common), own(3, rest)), TO_END))


EVICTION = Grid(
    "eviction",
    "eviction from either pool between publisher and reader, down to every number of pages",
    ("evicted from target", "evicted from draft"),
    {
        "kind": ("dspark", "mtp"),
        "window": (6, None),
        "pool": ("target", "draft", "both"),
        "left": range(5),
        "common": (6, 12),
        "rest": (4,),
        "third": (0,),
    },
    {
        "kind": ("dspark", "mtp"),
        "window": (None, 3, 6),
        "pool": ("target", "draft", "both"),
        "left": range(6),
        "common": (6, 9, 12),
        "rest": (1, 4, 8),
        "third": (0, 9),
    },
    _eviction,
)


def _recycling(kind: str, run_ahead: int, slack: int, batch: int, common: int, third: int) -> Case | None:
    """With ``slack`` pages above what one request needs, a third one recycles pages and the row slot before the
    reader comes, and all of them run into each other at the end."""
    toy = Toy(kind=kind, run_ahead=run_ahead, batch=batch, budget=10)
    publisher, reader = ask(0, shared(common), own(0, 2)), ask(1, shared(common), own(1, 3), output=6)
    crowd = (ask(4, shared(common), own(4, 2), output=5), ask(5, own(5, third), output=6), TO_END)
    return Case(
        toy, (publisher, TO_END, ask(2, own(2, third), output=3), TO_END, reader, Drive(3), *crowd), slack=slack
    )


RECYCLING = Grid(
    "recycling",
    "hardly any pages: a third request recycles pages and row slot before the reader comes",
    ("preemptions", "refused_admissions", "evicted from target"),
    {
        "kind": ("dspark", "mtp"),
        "run_ahead": (0, 1),
        "slack": (0, 1, 2),
        "batch": (1, 3),
        "common": (5, 8),
        "third": (6, 11),
    },
    {
        "kind": ("dspark", "mtp", "pard", "draft-target-one-model"),
        "run_ahead": (0, 1),
        "slack": range(4),
        "batch": (1, 2, 3),
        "common": (4, 5, 8, 11),
        "third": (3, 6, 9, 12),
    },
    _recycling,
)


def _host(kind: str, host: int, slack: int, point: int, common: int, suspended: bool) -> Case:
    """Pages fall to the host tier under pressure and come back for the reader, which may be suspended on the way."""
    toy = Toy(kind=kind, host=host, budget=10, batch=3)
    start = (ask(0, shared(common), own(0, 2)), TO_END, ask(2, own(2, 9), output=4), TO_END)
    reader: tuple[Step, ...] = (ask(1, shared(common), own(1, 3), output=5), Drive(point))
    halt: tuple[Step, ...] = (Suspend(1),) if suspended else ()
    crowd = (ask(4, own(4, 8), output=4), Drive(4), ask(5, shared(common), own(5, 2), output=3))
    return Case(toy, (*start, *reader, *halt, *crowd, TO_END), slack=slack)


HOST = Grid(
    "host",
    "a host tier of a few pages: cached and suspended pages fall there and come back",
    ("host moves",),
    {
        "kind": ("dspark", "mtp"),
        "host": (2, 6),
        "slack": (0, 2),
        "point": (1, 4),
        "common": (5,),
        "suspended": (False, True),
    },
    {
        "kind": ("dspark", "mtp", "pard"),
        "host": (1, 3, 6),
        "slack": (0, 1, 3),
        "point": (1, 2, 4, 7),
        "common": (4, 5, 8),
        "suspended": (False, True),
    },
    _host,
)
