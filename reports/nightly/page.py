"""The page of a nightly: the verdict, what got worse, the comparisons' figures, and every case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from reports.comparison import Comparison
from reports.document import plural
from reports.nightly.night import Night
from reports.nightly.outcome import CRASHED, FAILED, OPEN, PASSED, UNCHECKED, Case
from reports.nightly.sentences import BAD, GOOD, ODD, PLAIN, Sentence, headline, sentences, units_of
from reports.page.content import figures_table
from reports.page.render import Cell, Column, Page, Table
from reports.page.words import VERDICTS
from sim.nightly.metrics import label_of, metric_of
from sim.nightly.rules import Change

MOST = 12  # sentences above the tables
TONES = {FAILED: "bad", CRASHED: "bad", UNCHECKED: "warn", PASSED: "good"}
KINDS = {"worse": "bad", "changed": "bad", "better": "good"}
OTHERS = {GOOD: "good", ODD: "warn", PLAIN: ""}
VERDICT_ORDER = (CRASHED, FAILED, UNCHECKED, OPEN, PASSED)


def nightly_page(night: Night, comparisons: Sequence[Comparison]) -> Page:
    """The page of ``night``; the courses of its runs are on the pages of the comparisons themselves."""
    told = sentences(night)
    bad = [sentence.text for sentence in told if sentence.tone == BAD]
    more = [f"and {len(bad) - MOST:,} more, in the tables below"] if len(bad) > MOST else []
    head, _, rest = headline(night).text.partition("; ")
    tables = [_changes(night), _broken(night), _others(told), _stages(night)]
    tables += [_figures(comparison, place) for place, comparison in enumerate(comparisons)]
    return Page(
        kind="nightly",
        title=night.suite,
        verdict=f"{head[0].upper()}{head[1:]}.",
        tone=VERDICTS.get(night.exit_code, "bad"),
        lead=f"{rest[0].upper()}{rest[1:]}.",
        problems=[*bad[:MOST], *more],
        facts=[
            ("ran on", night.device if night.on != "sim" else "the sim"),
            ("baseline", night.baseline or "none"),
            ("code", night.code),
            ("suite", f"{night.suite} {night.suite_digest[:12]}"),
            ("seconds", f"{night.seconds:,.0f}"),
        ],
        tables=[table for table in [*tables, _cases(night)] if table is not None],
    )


def _changes(night: Night) -> Table | None:
    """A row a figure that is not the baseline's, the worst first, and one a subject that only one side has."""
    if night.compared is None or not night.compared.changes:
        return None
    columns = [Column("run", numeric=False), Column("figure", numeric=False), Column("before"), Column("after")]
    columns += [Column("change"), Column("what it is", numeric=False), Column("stage", numeric=False)]
    rows = [_change(change) for change in night.compared.changes]
    note = (
        f"{plural(night.compared.exact, 'exact figure')} and {night.compared.noisy:,} noisy were held to the baseline; "
        "intervals of noisy ones hold together with 95 %."
    )
    return Table("changes", "What changed", columns, rows, note)


def _change(change: Change) -> list[Cell]:
    figures = [Cell("")] * 4  # what is missing sorts below
    tone = KINDS.get(change.kind, "warn")
    if change.metric:
        metric, values = metric_of(change.metric), (change.before, change.after)
        cells = [Cell(metric.shown(value), None if isinstance(value, str) else value) for value in values]
        figures = [Cell(label_of(change.metric)), *cells, _moved(change)]
    return [Cell(change.subject), *figures, Cell(change.kind, tone=tone), Cell(change.stage)]


def _moved(change: Change) -> Cell:
    """By which share a figure moved, with the interval where there is one."""
    before, after, ratio = change.before, change.after, change.ratio
    if ratio is not None:
        beside = f"{ratio.low - 1:+.1%} to {ratio.high - 1:+.1%}, {units_of(change)}"
        return Cell(f"{ratio.value - 1:+.1%}", ratio.value - 1, beside)
    if isinstance(before, str) or isinstance(after, str) or not before or after is None:
        return Cell("")
    return Cell(f"{after / before - 1:+.1%}", after / before - 1)


def _broken(night: Night) -> Table | None:
    """A row a case that did not pass, with all that is told of it."""
    broken = [case for verdict in VERDICT_ORDER[:3] for case in night.cases(verdict)]
    if not broken:
        return None
    columns = [Column(label, numeric=False) for label in ("run", "case", "verdict", "what is wrong", "stage")]
    return Table("broken", "What did not pass", columns, [_case(case) for case in broken])


def _case(case: Case) -> list[Cell]:
    verdict = Cell(case.verdict, tone=TONES.get(case.verdict, ""))
    beside = case.detail if case.verdict in (FAILED, CRASHED) and case.detail != case.message else ""
    return [Cell(case.subject), Cell(case.name), verdict, Cell(case.message, None, beside), Cell(case.stage)]


def _others(told: Sequence[Sentence]) -> Table | None:
    """What is neither broken nor worse, in sentences."""
    rows = [[Cell(sentence.text, tone=OTHERS[sentence.tone])] for sentence in told if sentence.tone in OTHERS]
    return Table("others", "What else to know", [Column("sentence", numeric=False)], rows) if rows else None


def _stages(night: Night) -> Table:
    """How many cases of each stage passed, and how long it took."""
    columns = [Column("stage", numeric=False), *(Column(verdict) for verdict in VERDICT_ORDER), Column("seconds")]
    counts = Counter((case.stage, case.verdict) for case in night.found.cases)
    rows = []
    for stage in dict.fromkeys(case.stage for case in night.found.cases):
        seconds = sum(value for (of, _), value in night.found.seconds.items() if of == stage)
        numbers = [(verdict, counts[stage, verdict]) for verdict in VERDICT_ORDER]
        cells = [Cell(f"{n:,}", n, tone="bad" if n and TONES.get(v) == "bad" else "") for v, n in numbers]
        rows.append([Cell(stage), *cells, Cell(f"{seconds:,.1f}", seconds)])
    return Table("stages", "Stages", columns, rows)


def _figures(comparison: Comparison, place: int) -> Table:
    """The figures of one comparison, folded; its own page has its plots."""
    table = figures_table(comparison, short=True)
    return replace(table, id=f"comparison-{place}", heading=f"Figures: {comparison.scenario}", folded=True)


def _cases(night: Night) -> Table:
    columns = [Column(label, numeric=False) for label in ("run", "case", "verdict", "what it says", "stage")]
    return Table("cases", f"All {plural(len(night.found.cases), 'case')}", columns,
                 [_case(case) for case in night.found.cases], folded=True, find=True)  # fmt: skip
