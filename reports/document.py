"""A run as plain values: what ``--json`` prints and ``result.json`` holds."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from model.invariants import Violation
from reports.lifecycles import lifecycle_rows
from sim.result import RunResult
from sim.ticket import RequestTiming

INTERRUPTED = 130
VERDICTS = {0: "fine", 1: "law broken", 3: "nothing checked"}


def verdict(result: RunResult) -> str:
    """The run in two words; a missed expectation and a broken law are told apart."""
    if result.interrupted:
        return "interrupted"
    if result.violations:
        return "law broken"
    return "expectation missed" if result.missed else VERDICTS[exit_code(result)]


def exit_code(result: RunResult) -> int:
    """Exit code of a run: a law that broke is 1 even where the scenario expects it to break, Ctrl-C is 130."""
    if result.violations:
        return 1
    return INTERRUPTED if result.interrupted else result.exit_code


def summary_of(result: RunResult) -> dict[str, Any]:
    """The run's summary. With the checks off no memory is kept, so the drafter's window has no coverage to report."""
    summary = result.summary()
    if result.check == "off":
        summary["drafter_window_coverage"] = dict.fromkeys(summary["drafter_window_coverage"])
    return summary


def run_document(result: RunResult) -> dict[str, Any]:
    """Everything about a run but its requests, ops and events, which have files of their own."""
    return {
        "name": result.scenario,
        "scenario": result.scenario,
        "build": result.build,
        "seed": result.seed,
        "verdict": verdict(result),
        "exit_code": exit_code(result),
        "requests": len(result.records),
        "acceptance": {"mode": result.acceptance_mode, "model": result.acceptance, "drafts": result.drafts},
        "totals": asdict(result.totals),
        "summary": summary_of(result),
        "pools": [asdict(pool) for pool in result.occupancy],
        "lifecycles": lifecycle_rows(result),
        "violations": [violation_document(violation) for violation in result.violations],
        "missed": list(result.missed),
        "notes": list(result.notes),
        "check": result.check,
        "checked": dict(result.checked),
        "digests": {"decisions": result.decision_digest, "memory": result.memory_digest},
    }


def violation_document(violation: Violation) -> dict[str, Any]:
    """A violation by field, with ``None`` where a place does not apply to it."""
    document = violation.as_dict()
    for key in ("request", "pool", "page", "position", "step", "worker"):
        if document[key] in (-1, ""):
            document[key] = None
    return document


def request_rows(result: RunResult) -> list[dict[str, Any]]:
    """One row per request: tokens from the engine's records, times (milliseconds) from the clock if it had one."""
    looked = result.check != "off"  # with the checks off no memory is kept, and no window has a coverage
    timings: dict[int, RequestTiming] = {timing.request_id: timing for timing in result.timings}
    rows = []
    for record in result.records:
        row = asdict(record)
        timing = timings.get(record.request_id)
        if timing is not None:
            row |= {
                "session": timing.session,
                "turn": timing.turn,
                "submit_ms": timing.submit_ns / 1e6,
                "ttft_ms": _milliseconds(timing.ttft_ns),
                "tpot_ms": _milliseconds(timing.itl_ns),
                "e2e_ms": _milliseconds(timing.e2e_ns),
                "acceptance_length": sum(timing.accepted) / len(timing.accepted) if timing.accepted else None,
                "coverage_first": timing.coverage_first if timing.covered and looked else None,
                "coverage_mean": timing.coverage_sum / len(timing.accepted) if timing.covered and looked else None,
                "shared_tokens": timing.shared,
            }
        rows.append(row)
    return rows


def plural(count: int, word: str) -> str:
    """``count`` and its noun: 1 request, 2 requests."""
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def _milliseconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e6


def dump(value: object) -> str:
    """Indented JSON with a final line break; a number that JSON has no word for is an error."""
    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
