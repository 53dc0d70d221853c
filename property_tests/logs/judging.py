"""Events as logs on disk and back as verdicts."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sim.logs.check import check_log
from sim.logs.findings import LogReport


def lines(events: Iterable[Any]) -> str:
    """Events as JSON lines."""
    return "".join(json.dumps(event) + "\n" for event in events)


def judged(events: Iterable[Any], format: str | None = None, **options: bool) -> LogReport:
    """The verdict on a log of these values."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        path.write_text(lines(events), encoding="utf-8")
        return check_log(path, format, **options)


def broken(report: LogReport) -> set[str]:
    """The laws that were broken, by name."""
    return {law.name for law in report.laws if law.broken}


def evaluated(report: LogReport) -> set[str]:
    """The laws that were evaluated, by name."""
    return {law.name for law in report.laws if law.evaluations}
