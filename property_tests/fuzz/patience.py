"""A limit on the wall time of an example: a rule that loops for ever is a failure like another one."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from types import FrameType
from typing import Any

from sim.crashes import Hang

EXAMPLE_S = 30.0  # of wall time that an example may take; the longest ones take a second
AGAIN_S = 1.0  # after which it is interrupted again, where what it runs went on
TIMES = 20  # that it is interrupted at most


class patience:
    """Raise :class:`Hang` in the body after so many seconds of wall time, by default those of an example.

    The main thread of a process is interrupted wherever it is; another one, as a worker of a cluster has it, between
    two steps of Python code, so that a call that sleeps comes to its end first. One limit of a thread is kept at a
    time: another one ends it.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = EXAMPLE_S if seconds is None else seconds

    def __enter__(self) -> None:
        calm()
        kind = _Alarm if threading.current_thread() is threading.main_thread() else _Watcher
        try:
            _KEPT[threading.get_ident()] = kept = kind(self._seconds)
            kept.start()
        except BaseException:
            calm()
            raise

    def __exit__(self, *raised: object) -> None:
        calm()


def calm() -> None:
    """End the limit of this thread, if there is one. A Hang that comes just now is too late.

    One that comes before this has begun leaves the limit to the next call: of the next example, or behind its shard.
    """
    while True:
        try:
            kept = _KEPT.get(threading.get_ident())
            if kept is not None:
                kept.end()
            return
        except Hang:
            pass


class _Alarm:
    """A limit of the main thread: a signal raises :class:`Hang` in it."""

    def __init__(self, limit: float) -> None:
        self._limit, self._thread, self._times = limit, threading.get_ident(), 0
        self._usual: Any = signal.SIG_DFL

    def start(self) -> None:
        """Look at the clock from now on."""
        self._usual = signal.signal(signal.SIGALRM, self._stop)
        signal.setitimer(signal.ITIMER_REAL, self._limit, AGAIN_S)

    def end(self) -> None:
        """Raise nothing any more."""
        if _KEPT.get(self._thread) is self:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._usual)
            del _KEPT[self._thread]

    def _stop(self, _: int, frame: FrameType | None) -> None:
        self._times += 1
        if self._times >= TIMES:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        raise Hang(_words(self._limit, frame))


class _Watcher(threading.Thread):
    """A limit of a thread that no signal reaches: this one looks at the clock and raises :class:`Hang` in it.

    What the interpreter raises in another thread is a class, so the message goes into one of its own.
    """

    def __init__(self, limit: float) -> None:
        super().__init__(name="patience", daemon=True)
        self.over = False
        self._limit, self._watched = limit, threading.get_ident()
        self._lock, self._going_on = threading.Lock(), threading.Lock()  # an Event is none to be interrupted in
        self._going_on.acquire()

    def end(self) -> None:
        """Raise nothing any more."""
        if self._going_on.locked():
            self._going_on.release()
        with self._lock:
            if not self.over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._watched), None)  # one on its way
            self.over = True
        if _KEPT.get(self._watched) is self:
            del _KEPT[self._watched]

    def run(self) -> None:
        """Wait, then interrupt."""
        seconds = self._limit
        for _ in range(TIMES):
            if self._going_on.acquire(timeout=seconds):
                return
            seconds = AGAIN_S
            words = _words(self._limit, sys._current_frames().get(self._watched))

            class Late(Hang):
                def __init__(self, *told: object, words: str = words) -> None:
                    super().__init__(*(told or (words,)))

            with self._lock:
                if self.over:
                    return
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._watched), ctypes.py_object(Late))


_KEPT: dict[int, _Alarm | _Watcher] = {}  # limits by the thread that has them


def _words(limit: float, frame: FrameType | None) -> str:
    return f"expected an example to end within {limit:g} s, found it in {_place(frame)}"


def _place(frame: FrameType | None) -> str:
    """Where ``frame`` is: in the rule that the model called, if it is in one of the user's, else in the function."""
    last = frame
    while frame is not None:
        below = frame.f_back  # once: a frame of another thread may come to its end meanwhile
        if below is not None and _room(frame) != "model" and _room(below) == "model":
            return _name(frame)
        frame = below
    return _name(last) if last is not None else "no function"


def _room(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _name(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"
