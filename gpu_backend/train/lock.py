"""One training at a time in a folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from gpu_backend.train.files import make_folder
from scenarios.errors import InputError, reason_of

LOCK = ".lock"  # may stay: a lock is the process that has the file open, and ends with it however that ends


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """``folder``, which is made, for this process alone; ``InputError`` while another one trains in it.

    A folder that was made and in which nothing is left is removed again.
    """
    new, path = not folder.exists(), folder / LOCK
    make_folder(folder)
    try:
        file = path.open("ab")
    except OSError as error:
        raise InputError(str(folder), 0, "", f"cannot write here: {reason_of(error)}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _require_there(path, os.fstat(file.fileno()))
        except (BlockingIOError, FileNotFoundError) as error:
            raise InputError(str(folder), 0, "", "expected a free folder, found a training that runs in it") from error
        except OSError as error:
            raise InputError(str(path), 0, "", f"cannot be locked: {reason_of(error)}") from error
        try:
            yield
        finally:
            if new and [*folder.iterdir()] == [path]:
                path.unlink()
                folder.rmdir()


def _require_there(path: Path, opened: os.stat_result) -> None:
    """FileNotFoundError where the file that was ``opened`` is not the one at ``path``: a training that ended in between
    removed it, and its lock keeps nobody out any more."""
    if not os.path.samestat(opened, path.stat()):
        raise FileNotFoundError
