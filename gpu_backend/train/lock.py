"""One training at a time in a folder."""

from __future__ import annotations

import contextlib
import fcntl
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
        except BlockingIOError as error:
            raise InputError(str(folder), 0, "", "expected a free folder, found a training that runs in it") from error
        except OSError as error:
            raise InputError(str(path), 0, "", f"cannot be locked: {reason_of(error)}") from error
        try:
            yield
        finally:
            if new and [*folder.iterdir()] == [path]:
                path.unlink()
                folder.rmdir()
