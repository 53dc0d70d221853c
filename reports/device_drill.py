"""``kvtwin drill --device``: each fault, and what the device's own checks said of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict

from gpu_backend.replay.result import DeviceDrilled
from reports import terminal
from reports.document import dump
from reports.drill import CAUGHT, FALSE_ALARM, MISSED, WRONG
from reports.interrupts import INTERRUPTED


def show(rows: Sequence[DeviceDrilled], interrupted: bool, json: bool) -> None:
    """Print the table and one line that counts the verdicts."""
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in (CAUGHT, MISSED, WRONG, FALSE_ALARM)}
    documents = [asdict(row) | {"verdict": row.verdict, "first": row.found[0] if row.found else ""} for row in rows]
    if json:
        sys.stdout.write(dump({"faults": documents, "verdicts": counts, "interrupted": interrupted}))
        return
    columns = {
        "name": "fault",
        "verdict": "verdict",
        "first": "fired first",
        "where": "wrong in",
        "scenario": "scenario",
    }
    out = terminal.console()
    terminal.show_rows(out, documents, columns)
    out.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


def exit_code(rows: Sequence[DeviceDrilled], interrupted: bool) -> int:
    """0 when the device caught every fault by the right law and no sound replay raised an alarm; 130 after Ctrl-C."""
    if interrupted:
        return INTERRUPTED
    return 0 if all(row.verdict == CAUGHT for row in rows) else 1
