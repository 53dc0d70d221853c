"""The verdict on a log: checked by the room that reads logs, told as tables or JSON, kept in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from reports.document import dump, plural
from reports.folder import Output, stamp
from reports.terminal import console, show_lines
from sim.logs.check import check_log
from sim.logs.findings import LogReport

FINE, BROKEN, NOTHING_CHECKED = 0, 1, 3
SCHEMA_VERSION = 1
SHOWN = 20  # broken laws on a terminal; the folder has more


def run(log: Path, format: str | None, partial: bool, windowed: bool, out: Path | None) -> LogReport:
    """Check ``log`` and leave ``check.json`` and ``check.md`` in ``out``."""
    with Output(out, several=False, sources=(log,)) as output:
        report = check_log(log, format, partial, windowed)
        if out is not None:
            folder = output.folder("check")
            (folder / "check.json").write_text(dump(document(report)), encoding="utf-8")
            (folder / "check.md").write_text(markdown(report), encoding="utf-8")
            stamp(folder, "check")
            report.notes.append(f"written: {out}")
    return report


def exit_code_of(report: LogReport) -> int:
    """1 if a law was broken, 3 if none was evaluated, else 0."""
    if report.broken:
        return BROKEN
    return FINE if report.evaluations else NOTHING_CHECKED


def document(report: LogReport) -> dict[str, Any]:
    """The verdict as plain values, by the schema of :mod:`reports.check_schema`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "log": report.path,
        "format": report.format,
        "verdict": verdict(report),
        "events": dict(sorted(report.events.items())),
        "unknown": dict(sorted(report.unknown.items())),
        "evaluations": report.evaluations,
        "broken": report.broken,
        "laws": [law.summary() for law in report.laws],
        "not_checked": report.open,
        "pools": report.pools,
        "findings": [finding.as_dict() for finding in report.findings],
    }


def verdict(report: LogReport) -> str:
    """In a few words."""
    if report.broken:
        return "law broken"
    return "fine" if report.evaluations else "nothing checked"


def sentence(report: LogReport) -> str:
    """The verdict as one sentence."""
    codes = sorted({law.code for law in report.laws if law.evaluations})
    events = plural(sum(report.events.values()), "event")
    if not report.evaluations:
        return f"{report.path} ({report.format}): nothing could be checked in {events}"
    found = f"{plural(report.broken, 'break')} of laws" if report.broken else "no law broken"
    times = f"{report.evaluations:,} evaluations of {len(codes)} invariants ({', '.join(codes)})"
    return f"{report.path} ({report.format}): {found} in {events}, {times}"


def show(report: LogReport, as_json: bool) -> None:
    """Print the verdict."""
    if as_json:
        print(dump(document(report)), end="")
        return
    out = console()
    out.print(sentence(report), markup=False)
    show_lines(out, _laws(report))
    if report.findings:
        show_lines(out, _findings(report))
        if report.broken > SHOWN:
            out.print(f"{report.broken - SHOWN:,} more; --out keeps the first hundred of each law")
    for code, reason in report.open.items():
        out.print(f"  not checked: {code:<9} {reason}", markup=False)
    for name, count in sorted(report.unknown.items()):
        out.print(f"  passed over: {name} ({count:,} times)", markup=False)
    for note in report.notes:
        out.print(f"  {note}", markup=False)


def _laws(report: LogReport) -> Table:
    table = Table("invariant", "law", "evaluated", "undecided", "broken", "what it says")
    for law in report.laws:
        counts = (f"{law.evaluations:,}", f"{law.undecided:,}", f"{law.broken:,}")
        table.add_row(law.code, law.name, *counts, law.sentence, style="bold red" if law.broken else "")
    for column in table.columns[2:5]:
        column.justify = "right"
    return table


def _findings(report: LogReport) -> Table:
    table = Table("line", "event", "invariant", "law", "pool", "block", "what", "expected", "found")
    for one in report.findings[:SHOWN]:
        event = "" if one.event is None else str(one.event)
        cells = (one.line, event, one.code, one.law, one.pool, one.block, one.message, one.expected, one.found)
        table.add_row(*(escape(str(cell)) for cell in cells))
    return table


def markdown(report: LogReport) -> str:
    """The verdict for a pull request."""
    lines = [f"**{sentence(report)}**", "", "| invariant | law | evaluated | undecided | broken | |"]
    lines.append("|---|---|--:|--:|--:|---|")
    for law in report.laws:
        counts = f"{law.evaluations:,} | {law.undecided:,} | {law.broken:,}"
        lines.append(f"| {law.code} | {law.name} | {counts} | {law.sentence} |")
    if report.findings:
        lines += ["", "| line | event | law | pool | block | what | expected | found |"]
        lines.append("|--:|--:|---|---|---|---|---|---|")
        for one in report.findings:
            event = "" if one.event is None else one.event
            cells = (
                one.line,
                event,
                f"{one.code} {one.law}",
                one.pool,
                one.block,
                one.message,
                one.expected,
                one.found,
            )
            lines.append(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |")
    lines += ["", *(f"- not checked: {code}: {reason}" for code, reason in report.open.items())]
    lines += [f"- passed over: {name} ({count:,} times)" for name, count in sorted(report.unknown.items())]
    return "\n".join(lines) + "\n"
