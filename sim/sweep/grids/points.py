"""Grids over when something happens: suspension, a failed or skipped forward, a cancellation, at every op of a run."""

from __future__ import annotations

from model.ops import Cancel, Dispatch, Fail, Op, Shrink, Suspend
from sim.sweep.case import Case, Drive, Step
from sim.sweep.grid import Grid
from sim.sweep.toy import Toy, ask, own, shared

TO_END = Drive()
COMMON = 9  # tokens that the requests below share: two pages and one token
READER = 1


def _pair(rest: int, output: int = 4) -> tuple[Step, ...]:
    """A publisher that has ended, and a reader that is about to claim."""
    publisher = ask(0, shared(COMMON), own(0, 2), output=2)
    return (publisher, TO_END, ask(READER, shared(COMMON), own(READER, rest), output=output))


def _after(op: Op) -> tuple[Step, ...]:
    """What the next reader of the same prefix finds after ``op``."""
    return (op, TO_END, ask(2, shared(COMMON), own(2, 3)), TO_END)


def _suspend(kind: str, run_ahead: int, rest: int, point: int, role: str, gap: int, absent: bool) -> Case | None:
    """The reader is suspended after ``point`` ops; then the pool of ``role`` is shrunk, and ``gap`` ops pass in which
    another request takes a row. ``absent``: an older request keeps its pool so full that the reader cannot resume."""
    if absent and (gap or role):
        return None
    pressure = (Shrink(role, 0),) if role else ()
    crowd = (ask(3, own(3, 6), output=3), Drive(gap)) if gap else ()
    steps = (Drive(point), Suspend(READER), *pressure, *crowd, *_after(Suspend(READER)))
    publisher, ended, reader = _pair(rest)
    if not absent:
        return Case(Toy(kind=kind, run_ahead=run_ahead, budget=7, batch=2), (publisher, ended, reader, *steps))
    toy = Toy(kind=kind, run_ahead=run_ahead, budget=14, gate=0.25, batch=3)
    older = (ask(4, own(4, 7), output=12), Drive(4))
    return Case(toy, (publisher, ended, *older, reader, *steps), accepts=(1, 2), slack=12)


SUSPEND = Grid(
    "suspend",
    "a suspension at every op of a request, with eviction from either pool and another request in between",
    ("suspensions",),
    {
        "kind": ("dspark", "mtp"),
        "run_ahead": (1,),
        "rest": (7,),
        "point": range(1, 11),
        "role": ("", "target", "draft"),
        "gap": (0, 3),
        "absent": (False, True),
    },
    {
        "kind": ("dspark", "mtp", "draft-target-one-model"),
        "run_ahead": (0, 1),
        "rest": (1, 7),
        "point": range(1, 16),
        "role": ("", "target", "draft"),
        "gap": (0, 1, 4),
        "absent": (False, True),
    },
    _suspend,
)


def _forwards(kind: str, run_ahead: int, which: str, first: int, again: int, rest: int) -> Case:
    """The pass after ``first`` ops does not run, nor does the one ``again`` ops later (0: only once)."""
    toy = Toy(kind=kind, run_ahead=run_ahead, budget=7, batch=3)
    lost: Op = Fail() if which == "fail" else Dispatch(skip=True)
    twice: tuple[Step, ...] = (Drive(again), lost) if again else ()
    beside = ask(3, shared(4), own(3, 5), output=3)
    return Case(toy, (*_pair(rest), beside, Drive(first), lost, *twice, *_after(lost)))


FORWARDS = Grid(
    "forwards",
    "a forward that fails, or a batch that cannot be queued, at every op and twice",
    ("failed_forwards", "skipped_forwards"),
    {
        "kind": ("dspark", "mtp"),
        "run_ahead": (1,),
        "which": ("fail", "skip"),
        "first": range(12),
        "again": (0, 2),
        "rest": (5,),
    },
    {
        "kind": ("dspark", "mtp", "draft-target-one-model"),
        "run_ahead": (0, 1),
        "which": ("fail", "skip"),
        "first": range(16),
        "again": range(4),
        "rest": (1, 5),
    },
    _forwards,
)


def _cancels(kind: str, run_ahead: int, who: int, point: int, gap: int, again: bool) -> Case:
    """A request is given up after ``point`` ops; its id may come back ``gap`` ops later with another prompt."""
    toy = Toy(kind=kind, run_ahead=run_ahead, budget=7, batch=3)
    start = (ask(0, shared(COMMON), own(0, 4), output=3), Drive(2), ask(READER, shared(COMMON), own(READER, 5)))
    back: tuple[Step, ...] = (Drive(gap), ask(who, shared(6), own(4, 5), output=3)) if again else (Drive(gap),)
    return Case(toy, (*start, Drive(point), Cancel(who), *back, *_after(Cancel(9))))


CANCELS = Grid(
    "cancels",
    "a cancellation at every op, in flight too, and its id used again by another prompt",
    ("cancelled", "late_outputs"),
    {
        "kind": ("dspark", "mtp"),
        "run_ahead": (1,),
        "who": (0, READER),
        "point": range(12),
        "gap": (1,),
        "again": (False, True),
    },
    {
        "kind": ("dspark", "mtp", "pard", "eagle3"),
        "run_ahead": (0, 1),
        "who": (0, READER),
        "point": range(20),
        "gap": (0, 1, 3),
        "again": (False, True),
    },
    _cancels,
)
