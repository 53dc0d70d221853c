"""From a finished run to cases and figures: one case for each law that was evaluated, one row for each figure."""

from __future__ import annotations

import hashlib

from model.builds import Build
from model.invariants import INVARIANTS, Violation
from reports.document import plural, request_rows
from reports.nightly.outcome import FAILED, PASSED, UNCHECKED, Found
from scenarios.schema import Scenario
from scenarios.user_rules import is_own
from sim.result import RunResult

DETAILS = 20  # violations that are told in full


def subject_of(scenario: Scenario, build: Build, how: str = "") -> str:
    """What a run is called: ``hello on unified``, ``hello on unified, natural``."""
    return f"{scenario.name} on {build.name}" + (f", {how}" if how else "")


def made_of(scenario: Scenario, *more: object) -> str:
    """SHA-256 of all that a run was given; what is expected of it is no part."""
    given = scenario.model_dump_json(exclude={"expect", "summary", "builds", "build"})
    return hashlib.sha256("\n".join([given, *map(str, more)]).encode()).hexdigest()


def declared_by(build: Build) -> tuple[str, ...] | None:
    """Laws that a historical build is there to break; ``None`` of a build that claims to be correct.

    Of rules of one's own nothing is known: a law that they break is news.
    """
    return None if build.correct or is_own(build.name) else tuple(build.must_fire)


def judge_run(
    found: Found, stage: str, subject: str, repeat: int, build: Build, result: RunResult, judged: bool, again: str = ""
) -> None:
    """Add a case for each law that the run evaluated, and one for what the scenario expects, where it is ``judged``.

    ``again`` is the command that repeats it.
    """
    tail = f", repeat {repeat}" if repeat else ""
    if result.nothing_checked:
        found.case(stage, subject, f"laws{tail}", UNCHECKED, f"{subject}: no law was evaluated")
    declared = declared_by(build) or ()
    broken: dict[str, list[Violation]] = {}
    for violation in result.violations:
        broken.setdefault(violation.code, []).append(violation)
    for code in dict.fromkeys((*INVARIANTS, *broken)):
        if code in broken and code not in declared:
            message, detail = told(broken[code])
            found.case(stage, subject, code + tail, FAILED, message, detail + again)
        elif code in broken:
            found.case(stage, subject, code + tail, PASSED, "broken, as this historical build declares")
        elif result.checked.get(code):
            found.case(stage, subject, code + tail, PASSED, INVARIANTS[code].sentence)
    if judged:
        verdict = FAILED if result.missed else PASSED
        message = f"missed: {result.missed[0]}" if result.missed else "the scenario's expectations are met"
        found.case(stage, subject, "expectations", verdict, message, "\n".join(result.missed) + again)


def told(violations: list[Violation]) -> tuple[str, str]:
    """Violations of one law in a line, and in many."""
    lines = [violation_line(violation) for violation in violations[:DETAILS]]
    if len(violations) > DETAILS:
        lines.append(f"and {len(violations) - DETAILS:,} more")
    more = f" ({plural(len(violations), 'time')} in all)" if len(violations) > 1 else ""
    return f"law {violations[0].code} broke: {lines[0]}{more}", "\n".join(lines)


def violation_line(violation: Violation) -> str:
    """What is wrong, where, what was expected and what was found."""
    document = violation.as_dict()
    places = [
        f"{key} {document[key]}"
        for key in ("worker", "request", "pool", "page", "position", "step")
        if document[key] not in (-1, "")
    ]
    words = f"{violation.message} ({', '.join(places)})" if places else violation.message
    if violation.expected or violation.found:
        words += f": expected {violation.expected or 'none'}, found {violation.found or 'none'}"
    return words


def measure_run(found: Found, stage: str, subject: str, repeat: int, result: RunResult, exact: bool = True) -> None:
    """Add the figures of a run: exact ones, unless its inputs come from a device, and samples request by request."""
    rows = request_rows(result)
    if exact:
        figures: dict[str, float | str] = {
            "prefilled_tokens": result.totals.prefilled_tokens,
            "cached_tokens": sum(record.cached_tokens for record in result.records),
            "claims": len(result.hits()),
            "recomputed_tokens": sum(record.recomputed_tokens for record in result.records),
            "preemptions": result.totals.preemptions,
            "output_tokens": result.totals.output_tokens,
            "laws_broken": " ".join(result.codes),
            "laws_evaluated": " ".join(code for code, count in sorted(result.checked.items()) if count),
            "decisions": result.decision_digest,
            "memory": result.memory_digest,
        }
        figures |= {f"peak_pages:{pool.name}": pool.peak for pool in result.occupancy}
        for metric, value in figures.items():
            found.figure(stage, subject, repeat, metric, value)
    for row in rows:
        unit, place = str(row.get("session", row["conversation"])), row["request_id"]
        length = row.get("acceptance_length")
        if length is None and row["spec_steps"]:  # a replay of ops has no clock, but it counts
            length = 1 + row["accepted_drafts"] / row["spec_steps"]
        for metric, value in (
            ("acceptance_length", length),
            ("ttft_ms", row.get("ttft_ms")),
            ("tpot_ms", row.get("tpot_ms")),
        ):
            found.sample(stage, subject, metric, repeat, unit, place, value)
