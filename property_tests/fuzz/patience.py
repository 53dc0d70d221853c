"""A limit on the wall time of an example: a rule that loops for ever is a failure like another one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from model.invariants import Violation
from sim.crashes import HANG

EXAMPLE_S = 30.0  # of wall time that an example may take; the longest ones take a second
AGAIN_S = 1.0  # after which it is interrupted again, where what it runs went on


class Hang(Exception):
    """An example took too long; the message says where it was."""

    @property
    def violation(self) -> Violation:
        """What stands for it among broken laws."""
        return Violation(HANG, str(self))


@contextmanager
def patience(seconds: float | None = None) -> Iterator[None]:
    """Raise :class:`Hang` in the body after so many seconds of wall time, by default those of an example.

    Only the main thread of a process can be interrupted: elsewhere, as on a worker of a cluster, nothing is limited.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    limit = EXAMPLE_S if seconds is None else seconds

    def stop(_: int, frame: FrameType | None) -> None:
        raise Hang(f"expected an example to end within {limit:g} s, found it in {_place(frame)}")

    usual = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, usual)


def _place(frame: FrameType | None) -> str:
    """Where ``frame`` is: in the rule that the model called, if it is in one of the user's, else in the function."""
    last = frame
    while frame is not None and frame.f_back is not None:
        if _room(frame) != "model" and _room(frame.f_back) == "model":
            return _name(frame)
        frame = frame.f_back
    return _name(last) if last is not None else "no function"


def _room(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _name(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"
