"""A command that is killed leaves no process behind: its workers end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEFT_S = 20.0  # within which all of them are gone; without an end of their own they would stay for good


def members(session: int) -> set[int]:
    """The processes of a session that run: a dead one that nobody waits for is none of them."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, of, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it just ended
            continue
        if int(of) == session and state != "Z":
            found.add(int(folder.name))
    return found


@pytest.mark.parametrize(
    "command",
    [
        ("fuzz", "--minutes", "5", "--out", "kept"),
        ("sweep", "--full"),
        ("drill", "--blind", "--budget", "100000"),
    ],
    ids=lambda command: command[0],
)
def test_workers_of_a_killed_command_end(tmp_path: Path, command: tuple[str, ...]) -> None:
    line = [sys.executable, "-m", "kvtwin", *command, "--workers", "2"]
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(line, cwd=tmp_path, env=path, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        until = time.monotonic() + 60.0
        while len(members(process.pid)) < 4:  # itself, two workers, and the tracker that the pool has
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.05)
        time.sleep(1.0)  # they are at work
        process.kill()
        process.wait()
        until = time.monotonic() + LEFT_S
        while members(process.pid):
            assert time.monotonic() < until, "its workers are still there"
            time.sleep(0.05)
    finally:
        for left in members(process.pid):
            os.kill(left, signal.SIGKILL)
