"""Ctrl-C while kvtwin starts: importing takes a second, in which a KeyboardInterrupt would be a traceback."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

INTERRUPTED = 130


def leave_at_once() -> None:
    """From here on Ctrl-C ends the process with one line: for the time in which there is nothing to lose."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # it is not where the caller ignores Ctrl-C
    if usual and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _leave)


def raise_again() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt again, so that what was found can be kept."""
    if signal.getsignal(signal.SIGINT) is _leave and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"kvtwin: interrupted\n")
    os._exit(INTERRUPTED)
