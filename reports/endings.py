"""How kvtwin ends when no room foresaw it: one line about a disk or a stream that takes no more, or about a defect."""

from __future__ import annotations

import errno
import os
import sys
import traceback

from reports.terminal import complain
from scenarios.user_rules import IMPORTED

TRACEBACK = "KVTWIN_TRACEBACK"
WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EPIPE, errno.EBADF)


def crashed(error: BaseException) -> None:
    """Tell of an error in one line on standard error."""
    if os.environ.get(TRACEBACK):
        traceback.print_exc()
    if isinstance(error, OSError) and error.errno in WRITING:
        complain(f"cannot write {error.filename or 'to standard output'}: {error.strerror}")
        _drop_output()
        return
    line = " ".join(f"{type(error).__name__}: {error}".split())
    own = "".join(f" or of {name}" for name in sorted(IMPORTED & _modules(error)))
    complain(f"crashed, which is a defect of kvtwin{own}: {line} (set {TRACEBACK}=1 to see where)")


def _modules(error: BaseException | None) -> set[str]:
    """Names of the modules that an error came through; the clock raises a copy of what happens in a process."""
    names: set[str] = set()
    while error is not None:
        names |= {str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)}
        error = error.__cause__
    return names


def _drop_output() -> None:
    """Let the interpreter flush what is left of standard output into nothing, or it would complain again at its end."""
    if sys.stdout is sys.__stdout__ and sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
