"""A limit on the wall time of an example: a rule that loops for ever is a failure like another one."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from sim.crashes import Hang

EXAMPLE_S = 30.0  # of wall time that an example may take; the longest ones take a second
AGAIN_S = 1.0  # after which it is interrupted again, where what it runs went on


@contextmanager
def patience(seconds: float | None = None) -> Iterator[None]:
    """Raise :class:`Hang` in the body after so many seconds of wall time, by default those of an example.

    The main thread of a process is interrupted wherever it is; another one, as a worker of a cluster has it, between
    two steps of Python code, so that a call that sleeps comes to its end first. One limit at a time is kept.
    """
    limit = EXAMPLE_S if seconds is None else seconds
    if threading.current_thread() is not threading.main_thread():
        with _watched(limit):
            yield
        return

    def stop(_: int, frame: FrameType | None) -> None:
        raise Hang(_words(limit, frame))

    usual = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, usual)


@contextmanager
def _watched(limit: float) -> Iterator[None]:
    """The limit for a thread that no signal reaches: another thread looks at the clock."""
    watcher = _Watcher(limit)
    watcher.start()
    try:
        yield
    finally:
        while not watcher.over:
            with suppress(Hang):  # one that comes just now is too late
                watcher.end()


class _Watcher(threading.Thread):
    """Raises :class:`Hang` in the thread that made it, once ``limit`` seconds have passed and each second from then on.

    What the interpreter raises in another thread is a class, so the message goes into one of its own.
    """

    def __init__(self, limit: float) -> None:
        super().__init__(name="patience", daemon=True)
        self.over = False
        self._limit, self._thread = limit, threading.get_ident()
        self._lock, self._ended = threading.Lock(), threading.Event()

    def end(self) -> None:
        """Raise nothing any more."""
        self._ended.set()
        with self._lock:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), None)  # one on its way
            self.over = True

    def run(self) -> None:
        """Wait, then interrupt."""
        seconds = self._limit
        while not self._ended.wait(seconds):
            seconds = AGAIN_S
            words = _words(self._limit, sys._current_frames().get(self._thread))

            class Late(Hang):
                def __init__(self, *told: object, words: str = words) -> None:
                    super().__init__(*(told or (words,)))

            with self._lock:
                if not self.over:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(Late))


def _words(limit: float, frame: FrameType | None) -> str:
    return f"expected an example to end within {limit:g} s, found it in {_place(frame)}"


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
