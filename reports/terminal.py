"""What a person reads: tables and a few lines, on a terminal or in a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from reports.comparison import NONE, Comparison, readable, shown
from reports.document import summary_of, verdict, violation_document
from sim.result import RunResult

WIDTH_OF_A_FILE = 160  # columns where nobody's terminal sets them
VIOLATIONS_SHOWN = 20
REFRESH_S = 0.1
COLOURS = {"fine": "green", "law broken": "bold red", "expectation missed": "bold red"}


class Tick(Protocol):
    """Told how many requests (or ops) are done, and of how many."""

    def __call__(self, done: int, total: int) -> None: ...


def console() -> Console:
    """Standard output; wide enough for a table where it is not a terminal."""
    out = Console(highlight=False, soft_wrap=False)
    return out if out.is_terminal else Console(highlight=False, width=WIDTH_OF_A_FILE)


@contextmanager
def progress(label: str) -> Iterator[Tick]:
    """A bar on standard error while the block runs, if that is a terminal; it is gone afterwards."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    screen = Console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(label, total=None)
        next_s = 0.0

        def tick(done: int, total: int) -> None:
            nonlocal next_s
            now = monotonic()
            if now >= next_s or done == total:
                next_s = now + REFRESH_S
                bar.update(task, completed=done, total=total)

        yield tick


def show_run(out: Console, result: RunResult, explain: str) -> None:
    """One run: verdict, figures, pools, and what went wrong. ``explain`` is the command that tells more of it."""
    summary = summary_of(result)
    out.print(_headline(result))
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 2))
    for label, value in _figures(result, summary):
        table.add_row(label, value)
    out.print(table)
    if result.violations:
        show_violations(out, result, explain)
    for line in result.missed:
        out.print(Text(f"  missed: {line}", style="red"))
    for line in result.notes:
        out.print(Text(f"  note: {line}"))


def _headline(result: RunResult) -> Text:
    word = verdict(result)
    line = Text.assemble(
        (result.scenario, "bold"), " on ", (result.build, "bold"), ": ", (word, COLOURS.get(word, "yellow"))
    )
    if result.violations:
        line.append(f" ({', '.join(result.codes)})")
    return line


def _figures(result: RunResult, summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    totals, prompt = result.totals, sum(record.prompt_tokens for record in result.records)
    cached = sum(record.cached_tokens for record in result.records)
    share = f" ({cached / prompt:.1%} of the prompts)" if prompt else ""
    yield "requests", f"{len(result.records):,}, prompts of {prompt:,} tokens"
    yield "cached tokens", f"{cached:,}{share}"
    recomputed = sum(record.recomputed_tokens for record in result.records)
    yield "prefilled tokens", f"{totals.prefilled_tokens:,}" + (f", {recomputed:,} of them again" if recomputed else "")
    coverage, speculation = summary["drafter_window_coverage"], summary["speculation"]
    if coverage["all_steps"] is not None:
        first = shown(coverage["first_step_after_hit"], "{:.1%}")
        yield (
            "drafter-window coverage",
            f"{coverage['all_steps']:.1%} of all steps, {first} at the first step after a hit",
        )
    if speculation["step_weighted_acceptance_length"] is not None:
        step, request = speculation["step_weighted_acceptance_length"], speculation["request_mean_acceptance_length"]
        yield (
            "acceptance length",
            f"{step:.3f} by steps, {request:.3f} by requests ({result.acceptance_mode}: {result.acceptance})",
        )
    for label, key, digits in (("TTFT", "time_to_first_token_ms", 1), ("TPOT", "inter_token_latency_ms", 2)):
        times = summary["all"][key]
        if times["count"]:
            yield f"{label} p50, p90", f"{times['p50']:,.{digits}f} ms, {times['p90']:,.{digits}f} ms (simulated)"
    for pool in result.occupancy:
        yield f"pool {pool.name}", f"peak {pool.peak:,} of {pool.device_pages:,} pages"
    yield "checked", _checked(result)
    yield "digests", f"decisions {result.decision_digest[:16]}, memory {result.memory_digest[:16]}"


def _checked(result: RunResult) -> str:
    laws = {code: count for code, count in result.checked.items() if count}
    return f"{sum(laws.values()):,} times {len(laws)} laws ({result.check})" if laws else f"nothing ({result.check})"


def show_violations(out: Console, result: RunResult, explain: str) -> None:
    """The violations as a table, and the command that tells the story of one."""
    places = ("request", "pool", "page", "position", "step")
    table = Table("#", "law", *places, "what is wrong", "expected", "found", header_style="bold")
    for number, violation in enumerate(result.violations[:VIOLATIONS_SHOWN], 1):
        document = violation_document(violation)
        words = (violation.message, violation.expected, violation.found)
        table.add_row(
            str(number), Text(violation.code, "bold red"), *(_cell(document[key]) for key in places), *map(_cell, words)
        )
    out.print(table)
    hidden = len(result.violations) - VIOLATIONS_SHOWN
    if hidden > 0:
        out.print(f"  and {hidden:,} more; --json lists them all")
    out.print(Text.assemble("  how it came about: ", (explain, "bold")), soft_wrap=True)


def show_runs(out: Console, results: list[RunResult]) -> None:
    """Many runs, one line each."""
    table = Table("scenario", "build", header_style="bold")
    for label in ("requests", "prefilled", "cached", "coverage", "AL", "violations"):
        table.add_column(label, justify="right")
    table.add_column("verdict")
    for result in results:
        summary, word = summary_of(result), verdict(result)
        table.add_row(
            result.scenario,
            result.build,
            f"{len(result.records):,}",
            f"{result.totals.prefilled_tokens:,}",
            f"{sum(record.cached_tokens for record in result.records):,}",
            shown(summary["drafter_window_coverage"]["all_steps"], "{:.1%}"),
            shown(summary["speculation"]["step_weighted_acceptance_length"], "{:.2f}"),
            f"{len(result.violations):,}",
            Text(word, COLOURS.get(word, "yellow")),
        )
    out.print(table)


def show_comparison(out: Console, comparison: Comparison) -> None:
    """Builds side by side: metrics down, builds across."""
    table = Table(
        title=f"{comparison.scenario}: {comparison.requests:,} requests, K = {comparison.drafts}", title_justify="left"
    )
    table.add_column("")
    for build in comparison.table.index:
        table.add_column(str(build), justify="right", header_style="bold")
    for label, *values in readable(comparison).itertuples():
        broken = label in ("laws broken", "violations")
        table.add_row(label, *(Text(value, "red" if broken and value not in ("none", "0") else "") for value in values))
    out.print(table)
    out.print(Text(f"  acceptance {comparison.acceptance_mode}: {comparison.acceptance}"), soft_wrap=True)
    if comparison.warning:
        out.print(Text(f"  warning: {comparison.warning}", style="yellow"), soft_wrap=True)
    for build, lines in comparison.missed.items():
        for line in lines:
            out.print(Text(f"  {build} missed: {line}", style="red"), soft_wrap=True)


def show_rows(out: Console, rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
    """A catalogue as a table; ``columns`` maps keys to headings."""
    table = Table(header_style="bold")
    for position, heading in enumerate(columns.values()):
        table.add_column(heading, no_wrap=position == 0, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[key]) for key in columns))
    out.print(table)


def _cell(value: Any) -> str:
    if value is None or value == "" or value == [] or value == ():
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(str(part) for part in value)
    return str(value)


def complain(line: str) -> None:
    """One line on standard error."""
    print(f"kvtwin: {line}", file=sys.stderr)
