"""What a person reads: tables and a few lines, on a terminal or in a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from model.invariants import INVARIANTS
from reports.cells import NONE, shown
from reports.document import plural, summary_of, verdict, violation_document
from sim.result import RunResult

if TYPE_CHECKING:
    from reports.comparison import Comparison

INDENT = 4
WIDEST = 10_000  # columns, in which every table has room
WIDTH_OF_A_FILE = 160  # columns where nobody's terminal sets them
WIDTH_OF_THREE_TEXTS = 130  # columns that the table of violations needs for a column a text
VIOLATIONS_SHOWN = 20
REFRESH_S = 0.1
EVERY_S = 30.0  # between two lines of progress where no terminal shows it
COLOURS = {"fine": "green", "law broken": "bold red", "expectation missed": "bold red"}


class _Rate(ProgressColumn):
    """How many are done in a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s")


class Lines:
    """Progress in plain lines on standard error, for a pipe or the log of a CI job: the first after :data:`EVERY_S`,
    then at most one in as many seconds."""

    def __init__(self) -> None:
        self._next_s = monotonic() + EVERY_S

    def due(self) -> bool:
        """Whether it is time for the next line; asked again, it is not."""
        now = monotonic()
        if now < self._next_s:
            return False
        self._next_s = now + EVERY_S
        return True


class Tick(Protocol):
    """Told how many requests (or ops) are done, and of how many."""

    def __call__(self, done: int, total: int) -> None: ...


def console() -> Console:
    """Standard output; in a file as wide as COLUMNS says, or wide enough for a table."""
    out = Console(highlight=False, soft_wrap=False)
    columns = os.environ.get("COLUMNS", "")
    if out.is_terminal:
        return out
    wanted = int(columns) if columns.isascii() and columns.isdigit() else 0
    return Console(highlight=False, width=wanted or WIDTH_OF_A_FILE)


def show_lines(out: Console, what: RenderableType) -> None:
    """Print ``what`` without the blanks that fill its lines up."""
    with out.capture() as capture:
        out.print(what)
    out.file.write("\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n")


def show_paragraphs(out: Console, entries: Iterable[tuple[str, str, list[str]]]) -> None:
    """Entries of a heading, two words beside it, and lines that stand indented below."""
    for heading, words, lines in entries:
        show_lines(out, Text.assemble((heading, "bold"), "  ", words))
        for line in lines:
            show_lines(out, Padding(Text(line), (0, 0, 0, INDENT)))


@contextmanager
def progress(label: str) -> Iterator[Tick]:
    """While the block runs, a bar on standard error that is gone afterwards; a line now and then if that is no
    terminal."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield _in_lines(label)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task(label, total=None)
        next_s = 0.0

        def tick(done: int, total: int) -> None:
            nonlocal next_s
            now = monotonic()
            if now >= next_s or done == total:
                next_s = now + REFRESH_S
                bar.update(task, completed=done, total=total)

        yield tick


def _in_lines(label: str) -> Tick:
    lines = Lines()

    def tick(done: int, total: int) -> None:
        if lines.due():
            remark(f"{label}: {done:,} of {total:,}")

    return tick


def show_run(out: Console, result: RunResult, explain: str) -> None:
    """One run: verdict, figures, pools, and what went wrong. ``explain`` is the command that tells more of it."""
    summary = summary_of(result)
    out.print(_headline(result))
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 2))
    for label, value in _figures(result, summary):
        table.add_row(label, value)
    show_lines(out, table)
    for line in result.notes:  # first, since what follows may come of it: ops that were not applied, for one
        out.print(Text(f"  note: {line}"), soft_wrap=True)
    if result.violations:
        show_violations(out, result, explain)
    for line in result.missed:
        out.print(Text(f"  missed: {line}", style="red"), soft_wrap=True)


def show_cache_run(out: Console, result: RunResult) -> None:
    """A run of the cache layer alone: verdict, what was checked, and what went wrong. It has no requests to sum up."""
    out.print(_headline(result))
    out.print(Text(f"  checked: {_checked(result)}"), soft_wrap=True)
    for line in result.notes:
        out.print(Text(f"  note: {line}"), soft_wrap=True)
    if result.violations:
        show_violations(out, result, "")


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
    yield "requests", f"{len(result.records):,}, prompts of {plural(prompt, 'token')}"
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
    yield "digests", f"decisions {_short(result.decision_digest)}, memory {_short(result.memory_digest)}"


def _short(digest: str) -> str:
    """The start of a digest, or the words that stand for one, whole."""
    return digest[:16] if len(digest) == 64 else digest


def _checked(result: RunResult) -> str:
    laws = {code: count for code, count in result.checked.items() if count}
    if not laws:
        return f"nothing ({result.check})"
    idle = [code for code in INVARIANTS if code not in laws]
    rest = f"; not exercised: {', '.join(idle)}" if idle else ""
    return f"{plural(sum(laws.values()), 'time')}, {len(laws)} of {len(INVARIANTS)} laws ({result.check}){rest}"


def show_violations(out: Console, result: RunResult, explain: str) -> None:
    """The violations as a table, and the command that tells the story of one."""
    several = ("worker",) if any(violation.worker >= 0 for violation in result.violations) else ()
    places = (*several, "request", "pool", "page", "position", "step")
    wide = out.width >= WIDTH_OF_THREE_TEXTS
    # Where there is no room for three texts, the places stand in full and what is wrong folds beside them.
    table = Table(header_style="bold") if wide else Table(header_style="bold", box=None, padding=(0, 1, 0, 0))
    for heading in ("#", "law", *places):
        table.add_column(heading, no_wrap=True)
    for heading in ("what is wrong", "expected", "found") if wide else ("what is wrong",):
        table.add_column(heading, overflow="fold")
    for number, violation in enumerate(result.violations[:VIOLATIONS_SHOWN], 1):
        document = violation_document(violation)
        words = (violation.message, violation.expected, violation.found)
        if not wide:
            words = (f"{violation.message}; expected {_cell(words[1])}, found {_cell(words[2])}",)
        table.add_row(
            str(number),
            Text(violation.code, "bold red"),
            *(_cell(document[key]) for key in places),
            *map(Text, map(_cell, words)),
        )
    show_lines(out, table)
    hidden = len(result.violations) - VIOLATIONS_SHOWN
    if hidden > 0:
        out.print(f"  and {hidden:,} more; --json lists them all")
    if explain:
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
    show_lines(out, table)


def show_comparison(out: Console, comparison: Comparison) -> None:
    """Arms side by side: what was found in a sentence, then metrics down, arms across, each with its ratio."""
    from reports.comparison_words import footnotes, readable, sentence  # pandas takes longer than a short run

    table = Table(
        title=f"{comparison.scenario}: {plural(comparison.requests, 'request')}, K = {comparison.drafts}",
        title_justify="left",
    )
    table.add_column("")
    for build in comparison.builds:
        before = len(comparison.builds) > 1 and build == comparison.baseline
        table.add_column(f"before: {build}" if before else build, justify="right", header_style="bold")
    for label, *values in readable(comparison).itertuples():
        broken = label in ("laws broken", "violations")
        table.add_row(label, *(Text(value, "red" if broken and value not in ("none", "0") else "") for value in values))
    show_lines(out, Text(sentence(comparison)))
    show_lines(out, table)
    for line in footnotes(comparison):
        out.print(Text(f"  {line}"), soft_wrap=True)
    if comparison.interrupted:
        out.print(Text(f"  interrupted: no result of {', '.join(comparison.left_out)}", style="yellow"), soft_wrap=True)
    if comparison.warning:
        out.print(Text(f"  warning: {comparison.warning}", style="yellow"), soft_wrap=True)
    for build, lines in comparison.missed.items():
        for line in lines:
            out.print(Text(f"  {build} missed: {line}", style="red"), soft_wrap=True)


def show_rows(
    out: Console, rows: list[dict[str, Any]], columns: dict[str, str], unbroken: tuple[str, ...] = ()
) -> None:
    """A catalogue as a table; ``columns`` maps keys to headings, the first of them to the name.

    The name and the cells of ``unbroken`` keys stay on one line.

    Where the table has no room for whole words, each row is a paragraph.
    """
    table = Table(header_style="bold")
    for position, (key, heading) in enumerate(columns.items()):
        table.add_column(heading, no_wrap=position == 0 or key in unbroken, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row[key])) for key in columns))
    if Measurement.get(out, out.options.update(max_width=WIDEST), table).minimum <= out.width:
        show_lines(out, table)
        return
    name, *others = columns
    for row in rows:
        show_paragraphs(out, [(_cell(row[name]), "", [f"{columns[key]}: {_cell(row[key])}" for key in others])])


def _cell(value: Any) -> str:
    if value is None or value == "" or value == [] or value == ():
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(str(part) for part in value)
    return str(value)


def remark(line: str) -> None:
    """One line on standard error that nothing hangs on: where it cannot be written, it is not."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(line, file=sys.stderr, flush=True)


def complain(line: str) -> None:
    """One line on standard error, if there is one."""
    if sys.stderr is None:  # closed by the caller: print would take standard output instead
        return
    print(f"kvtwin: {line}", file=sys.stderr)
