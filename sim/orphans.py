"""Processes that end with the one that started them, however that ended: a killed command leaves nobody behind."""

from __future__ import annotations

import os
from multiprocessing import connection, parent_process
from threading import Thread

ORPHANED = 1  # the exit code of such a process, which nobody reads


def end_with_parent() -> None:
    """End this process, a worker, once its parent is gone: in the midst of things, since nobody takes its results."""
    parent = parent_process()
    if parent is None:
        return

    def watch(sentinel: int = parent.sentinel) -> None:
        connection.wait([sentinel])
        os._exit(ORPHANED)

    Thread(target=watch, name="parent", daemon=True).start()
