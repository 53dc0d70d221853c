"""Who runs the shards of a campaign: an executor, here or on a cluster, that can be had anew when it broke."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import redirect_stdout, suppress
from multiprocessing import get_context
from threading import current_thread, main_thread
from types import TracebackType
from typing import Any, Protocol

from sim.crashes import Hang
from sim.orphans import end_with_parent

FATE_S = 2.0  # within which the exit code of a process that died is known


class Crew(Protocol):
    """An executor and how many calls it runs at a time."""

    @property
    def executor(self) -> Executor:
        """Where calls are submitted; another one after :meth:`renew`."""
        ...

    @property
    def here(self) -> bool:
        """Whether it runs on this machine, whose processes share a clock."""
        ...

    @property
    def lanes(self) -> int:
        """Calls that run at the same time; it may change under way."""
        ...

    @property
    def deserted(self) -> bool:
        """Whether nobody is there to run anything, for the time being."""
        ...

    @property
    def unreachable(self) -> bool:
        """Whether nobody can be asked any more."""
        ...

    @property
    def fate(self) -> str:
        """How the process died whose loss the last :meth:`renew` made up for; empty where nobody knows."""
        ...

    def drop(self, futures: Iterable[Future[Any]]) -> None:
        """Let calls that have not begun come to nothing: their futures are cancelled, or end soon."""
        ...

    def kill(self) -> None:
        """End what runs, which breaks the executor, where that can be done."""
        ...

    def renew(self) -> None:
        """Replace an executor that broke; OSError where that is no longer possible."""
        ...

    def leave(self, at_once: bool) -> None:
        """Give the workers back: when what they run has ended, or at once."""
        ...


class Inline(Executor):
    """An executor that runs a call where it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``fn`` now; the future has ended."""
        future: Future[Any] = Future()
        try:
            with redirect_stdout(sys.stderr):  # what a rule prints is none of the results
                future.set_result(fn(*args, **kwargs))
        except (Exception, Hang) as error:
            future.set_exception(error)
        return future


class Alone:
    """A crew of one, this process itself."""

    def __init__(self) -> None:
        self.executor: Executor = Inline()
        self.lanes = 1
        self.here = True
        self.deserted = self.unreachable = False
        self.fate = ""

    def drop(self, futures: Iterable[Future[Any]]) -> None:
        """All of them have ended."""

    def kill(self) -> None:
        """Nobody else is here."""

    def renew(self) -> None:
        """Nothing in it breaks."""

    def leave(self, at_once: bool) -> None:
        """Nobody else is here."""


class Processes:
    """Processes on this machine."""

    def __init__(self, workers: int) -> None:
        if current_thread() is main_thread():
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a worker that died is a broken pool, not our end
        self.lanes = workers
        self.here = True
        self.deserted = self.unreachable = False
        self.fate = ""
        self._context = get_context("spawn")
        self._dropped = self._context.RawValue("b", 0)  # without a lock, which a killed process could take with it
        self._pool = self._open()

    @property
    def executor(self) -> Executor:
        """The pool of processes."""
        return self._pool

    def drop(self, futures: Iterable[Future[Any]]) -> None:
        """Calls ask for it (:func:`dropped`): a pool that loses a process fails over futures that were cancelled."""
        self._dropped.value = 1

    def kill(self) -> None:
        """Kill the processes; the pool notes it and breaks."""
        for process in list((getattr(self._pool, "_processes", None) or {}).values()):
            process.kill()

    def renew(self) -> None:
        """A new pool in place of one that lost a process; the pool ends the others by SIGTERM."""
        self.fate = _fate(list((getattr(self._pool, "_processes", None) or {}).values()))
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = self._open()

    def leave(self, at_once: bool) -> None:
        """End the processes; what they run comes to its end first, unless ``at_once``."""
        processes = list((getattr(self._pool, "_processes", None) or {}).values())
        self._pool.shutdown(wait=not at_once, cancel_futures=True)
        if at_once:
            for process in processes:
                process.kill()

    def _open(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.lanes, self._context, _begin, (self._dropped,))


def _fate(processes: list[Any]) -> str:
    """How one of ``processes`` died; the pool is about to end the others and to take in the codes of all."""
    until = time.monotonic() + FATE_S
    while time.monotonic() < until:
        for code in (process.exitcode for process in processes):
            if code not in (None, -signal.SIGTERM):
                return f"exit code {code}" if code >= 0 else f"signal {-code}"
        time.sleep(FATE_S / 100)
    return ""


_flag: Any = None  # of the process pool that this process belongs to


def _begin(flag: Any) -> None:
    """A process begins; Ctrl-C is for the one that gathers the results, standard output for what it makes of them."""
    global _flag
    _flag = flag
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    sys.stdout = sys.stderr


def dropped() -> bool:
    """Whether calls that have not begun are to come to nothing, where this is called."""
    return _flag is not None and bool(_flag.value)


def local(workers: int | None) -> Crew:
    """A crew of so many processes, one for each core unless told; one alone is this process."""
    count = workers or os.cpu_count() or 1
    return Processes(count) if count > 1 else Alone()


class Interrupt:
    """A context in which the first Ctrl-C is noted, so that what runs can end, and the second one raises.

    ``note`` is called at the first one, in the handler of the signal: what runs may take a while to end.
    """

    def __init__(self, note: Callable[[], None] | None = None) -> None:
        self.seen = False
        self._told = note

    def __enter__(self) -> Interrupt:
        self._usual = signal.getsignal(signal.SIGINT)
        if self._usual is signal.default_int_handler:  # it is not where the caller ignores Ctrl-C
            signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, *_: object) -> None:
        if self.seen:
            raise KeyboardInterrupt
        self.seen = True
        if self._told is not None:
            with suppress(RuntimeError, OSError):  # the stream was being written just now, or is gone
                self._told()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._usual is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._usual)
