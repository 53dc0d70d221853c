"""Kinds of drafters measured side by side, a process each, which says how far it is and in the end what it found."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType

from gpu_backend.al.order import BAD_INPUT, CRASHED, Failure, Order, Told
from scenarios.errors import InputError
from sim.orphans import end_with_parent

Progress = Callable[[int, int], None]  # runs done, in all
Work = Callable[[Order, Progress], Told]
LOOK_S = 0.2  # seconds between two looks at Ctrl-C
LEAVE_S = 30.0  # that a process has to end in once it has answered, or is stopped
_Answer = Told | InputError | Failure | KeyboardInterrupt


@dataclass(slots=True)
class _Child:
    """A process, what it said last of its runs, and in the end its answer."""

    kind: str
    process: BaseProcess
    hears: Connection
    done: int = 0
    wanted: int = 0
    answer: _Answer | None = None

    def hear(self) -> None:
        """Take in all that it has said. Its end shows by itself: a process that it left may hold the pipe open."""
        gone = not self.process.is_alive()  # ahead of the pipe, which then holds all that there will be
        try:
            while self.answer is None and self.hears.poll():
                told = self.hears.recv()
                if isinstance(told, tuple):
                    self.done, self.wanted = told
                else:
                    self.answer = told
        except (EOFError, OSError):
            gone = True
        if gone and self.answer is None:
            self.process.join()
            self.answer = Failure(f"its process ended with exit code {self.process.exitcode}", CRASHED)

    def interrupt(self) -> None:
        """Ctrl-C, unless it came from the terminal already."""
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGINT)

    def end(self) -> None:
        """Its process is gone; one that has not answered is stopped where it stands, as is one that does not end."""
        if self.answer is None:
            self.process.terminate()
        self.process.join(LEAVE_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.hears.close()


def measure_apart(parts: Sequence[Order], work: Work, progress: Progress | None = None) -> Told:
    """Each of ``parts``, which have one kind of drafter, by ``work`` in a process of its own.

    Ctrl-C ends all of them with what they have; a second one gives up those that are still busy with that. A kind that
    is refused or whose process crashes leaves the others going, and stands in ``failed`` of what they found. Where no
    run of any kind is done yet, nothing is lost: then all are stopped and InputError, in one line, says why.
    """
    children: list[_Child] = []
    with _counted() as presses:
        try:
            _start(children, parts, work)
            _gather(children, presses, progress)
        finally:
            for child in children:
                child.end()
    return _joined(children, interrupted=bool(presses))


def joined(parts: Sequence[Told]) -> Told:
    """What several kinds of drafters came out as, each on its own, as one."""
    first = parts[0]
    return Told(
        first.pair,
        [row for part in parts for row in part.arms],
        [row for part in parts for row in part.hits],
        {kind: told for part in parts for kind, told in part.cold.items()},
        any(part.interrupted for part in parts),
        [note for part in parts for note in part.notes],
        {kind: told for part in parts for kind, told in part.calibrations.items()},
        {kind: told for part in parts for kind, told in part.drafters.items()},
        {kind: told for part in parts for kind, told in part.failed.items()},
    )


# -- the parent --------------------------------------------------------------------------------------------------


@contextmanager
def _counted() -> Iterator[list[int]]:
    """Ctrl-C is counted while the block runs. It raises nothing, since half a message would be lost with it."""
    presses: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    usual = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual:
        signal.signal(signal.SIGINT, lambda number, _: presses.append(number))
    try:
        yield presses
    finally:
        if usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _start(children: list[_Child], parts: Sequence[Order], work: Work) -> None:
    """Add a process for each part to ``children``. Ctrl-C waits until a child is there to take it: to import takes it
    seconds."""
    context = multiprocessing.get_context("spawn")
    resource_tracker.ensure_running()  # to start it lets Ctrl-C through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for part in parts:
            (kind,) = part.drafters or ("",)
            hears, says = context.Pipe(duplex=False)
            process = context.Process(target=_serve, args=(work, part, says))
            process.start()
            says.close()
            children.append(_Child(kind, process, hears))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _gather(children: Sequence[_Child], presses: Sequence[int], progress: Progress | None) -> None:
    """Hear what all children say until each has answered, or is given up."""
    shown, stopped = (-1, -1), False
    while busy := [child for child in children if child.answer is None]:
        if presses and not stopped:
            stopped = True
            for child in busy:
                child.interrupt()
        given_up = len(presses) > 1
        ready = wait([child.hears for child in busy], 0 if given_up else LOOK_S)
        for child in busy:
            if child.hears in ready or not child.process.is_alive():
                child.hear()
        if given_up or (_refused(children) and not any(child.done for child in children)):
            return
        now = sum(child.done for child in children), sum(child.wanted for child in children)
        if progress is not None and now[1] and now != shown and all(child.wanted or child.answer for child in children):
            shown = now
            progress(*now)


def _refused(children: Sequence[_Child]) -> InputError | None:
    return next((child.answer for child in children if isinstance(child.answer, InputError)), None)


def _joined(children: Sequence[_Child], *, interrupted: bool) -> Told:
    told = [child.answer for child in children if isinstance(child.answer, Told)]
    failed, notes = dict[str, Failure](), list[str]()
    interrupted = interrupted or any(isinstance(child.answer, KeyboardInterrupt) for child in children)
    for child in children:
        if isinstance(child.answer, InputError):
            failed[child.kind] = Failure(str(child.answer), BAD_INPUT)
        elif isinstance(child.answer, Failure):
            failed[child.kind] = child.answer
        elif child.answer is None:
            notes.append(f"{child.kind}: given up at the second Ctrl-C, so nothing of it is told")
        elif not isinstance(child.answer, Told):
            notes.append(f"{child.kind}: nothing of it was finished")
    if told:
        whole = joined(told)
        return replace(
            whole, interrupted=whole.interrupted or interrupted, failed=whole.failed | failed,
            notes=[*whole.notes, *notes],
        )  # fmt: skip
    if interrupted or not failed:
        raise KeyboardInterrupt
    refused = _refused(children)
    if refused is not None and all(failure.code == BAD_INPUT for failure in failed.values()):
        raise refused
    raise RuntimeError("; ".join(f"{kind}: {failure.line}" for kind, failure in failed.items()))


# -- a child -----------------------------------------------------------------------------------------------------


def _serve(work: Work, order: Order, says: Connection) -> None:
    answer: _Answer
    end_with_parent()
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _once)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        answer = work(order, lambda done, wanted: says.send((done, wanted)))
    except KeyboardInterrupt as error:
        answer = error
    except InputError as error:
        answer = error
    except Exception as error:
        answer = Failure(_told_of(error), CRASHED)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(BrokenPipeError):  # nobody waits for it any more
        says.send(answer)
    says.close()


def _once(number: int, frame: FrameType | None) -> None:
    """The first Ctrl-C ends the measurement; while that tells what it has, there is nothing for another one to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _told_of(error: Exception) -> str:
    from sim.crashes import crashed

    if os.environ.get("KVTWIN_TRACEBACK"):
        traceback.print_exception(error)
    return f"crashed, which is a defect of kvtwin: {crashed(error).message}"
