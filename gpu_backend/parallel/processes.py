"""The processes of a tensor-parallel run: starting them, and how each tells rank 0 what it found."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta

from torch._C._distributed_c10d import TCPStore

from gpu_backend.parallel.meeting import GRACE, Meeting
from gpu_backend.parallel.report import RankReport

HOST = "127.0.0.1"


def started(ranks: int, arguments: Sequence[str], patience: float) -> int:
    """Start ``ranks`` processes of this command on this machine; the largest exit code, crashes (4) first.

    The store that they meet by is kept here, so that it outlives any of them. Once one has ended, the others get some
    time to say so and are ended.
    """
    store = TCPStore(HOST, 0, None, True, timedelta(seconds=max(60.0, patience)), wait_for_workers=False)
    places = {"MASTER_ADDR": HOST, "MASTER_PORT": str(store.port), "WORLD_SIZE": str(ranks)}
    kept = {"TORCHELASTIC_USE_AGENT_STORE": "True", "NCCL_NVLS_ENABLE": "0"}
    command = [sys.executable, "-m", "gpu_backend.parallel", *arguments]
    running = [
        subprocess.Popen(command, env={**os.environ, **kept, **places, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(ranks)
    ]
    try:
        until = float("inf")
        while any(process.poll() is None for process in running) and time.monotonic() < until:
            time.sleep(0.05)
            if until == float("inf") and any(process.poll() is not None for process in running):
                until = time.monotonic() + 3 * patience + 10
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
    codes = [process.wait() for process in running]
    return max(code if 0 <= code <= 4 else 1 for code in codes)


def exchanged(meeting: Meeting, own: RankReport) -> list[RankReport | None] | None:
    """Hand in ``own``. The lowest rank that is still there gets all reports, ``None`` for whoever has none.

    Nobody leaves before these are read, since a launcher may end all processes once one ends in failure. Where the
    ranks have parted, the others had their time already.
    """
    store, ranks = meeting.store, meeting.ranks
    store.set(f"report/{meeting.rank}", own.encoded())
    until = time.monotonic() + 2 * GRACE + (0 if own.stopped else meeting.patience)
    while time.monotonic() < until:
        here = [rank for rank in range(ranks) if store.check([f"report/{rank}"])]
        if len(here) == ranks or store.check(["told"]):
            break
        time.sleep(0.02)
    else:
        here = [rank for rank in range(ranks) if store.check([f"report/{rank}"])]
    if meeting.rank == min(here):
        return [RankReport.decoded(store.get(f"report/{rank}")) if rank in here else None for rank in range(ranks)]
    while time.monotonic() < until + GRACE and not store.check(["told"]):
        time.sleep(0.02)
    return None
