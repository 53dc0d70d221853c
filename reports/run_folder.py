"""The folder of one run: what is in it, and reading it back."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from model.config import EngineConfig
from model.topology import Topology
from reports.course import course_of
from reports.course_files import COURSE, write_course
from reports.document import dump, request_rows, run_document
from reports.events import event_lines
from reports.folder import stamp
from reports.perfetto import TRACE, write_trace
from scenarios.errors import InputError
from sim.files import write_lines
from sim.optrace import Trace, save_trace
from sim.result import RunResult
from sim.summary import speculation_record

RESULT, REQUESTS, SPECULATION, VIOLATIONS, OPS, EVENTS = (
    "result.json",
    "requests.csv",
    "speculation.jsonl",
    "violations.json",
    "ops.jsonl",
    "events.jsonl",
)
REPLAY = "replay.json"


def write_run(
    folder: Path, result: RunResult, config: EngineConfig, workers: Topology | None = None, perfetto: bool = False
) -> None:
    """Fill ``folder``: result, requests, verify steps, violations, the ops that repeat the run; if the event log was
    kept, also that, the course of the run as tables, and a ``perfetto`` trace of it if wanted.

    ``config`` and ``workers`` are what the run was given.
    """
    document = run_document(result)
    (folder / RESULT).write_text(dump(document))
    (folder / VIOLATIONS).write_text(dump(document["violations"]))
    write_requests(folder, result)
    trace = Trace(
        scenario=result.scenario,
        build=result.build,
        seed=result.seed,
        check=result.check,
        config=config,
        ops=tuple(result.ops),
        decision_digest=result.decision_digest,
        memory_digest=result.memory_digest,
        workers=workers,
    )
    save_trace(folder / OPS, trace)
    if result.logs and result.logs[0].decisions.keep:
        pools = dict.fromkeys(pool.name.partition("@")[0] for pool in result.occupancy)
        write_lines(folder / EVENTS, event_lines(result.logs, list(pools)))
        course = course_of(result)
        assert course is not None
        write_course(folder / COURSE, course)
        if perfetto:
            write_trace(folder / TRACE, course, f"{result.scenario} on {result.build}")
    stamp(folder, "run")


def write_requests(folder: Path, result: RunResult) -> None:
    """A row a request, and its verify steps as AIPerf records them: an engine-neutral record a line."""
    rows = request_rows(result)
    with (folder / REQUESTS).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["request_id"], restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    records = (speculation_record(timing, result.drafts) for timing in result.timings)
    write_lines(folder / SPECULATION, (json.dumps(record, separators=(",", ":")) for record in records))


def read_json(folder: Path, name: str) -> Any:
    """A JSON file of a run folder; :class:`InputError` if the folder is not one, or the file is broken."""
    path = folder / name
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            str(folder), 0, "", f"expected a folder that kvtwin run --out wrote, found no {name}"
        ) from error
    except ValueError as error:
        raise InputError(str(path), 0, "", f"expected JSON, found: {error}") from error
