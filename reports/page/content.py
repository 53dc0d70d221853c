"""The page of a comparison, from the runs that it compares."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from model.invariants import INVARIANTS
from reports.comparison import Comparison
from reports.comparison_words import LAWS, footnotes, law_text, outcome, ratio_text, table_rows, value_text
from reports.document import plural
from reports.evidence import FOLLOWED, Evidence
from reports.page import embedded
from reports.page.figures import plots
from reports.page.render import ArmWords, Cell, Column, FirstStory, Page, Table
from reports.page.words import VERDICTS, lead, verdict

_DIGITS = {"ttft_ms": 2, "tpot_ms": 3, "e2e_ms": 1, "submit_ms": 1, "acceptance_length": 4, "coverage_first": 4}
_SHOWN = (  # columns of the table of requests, as far as a run has them
    "request_id", "session", "turn", "prompt_tokens", "cached_tokens", "draft_cached_tokens", "prefilled_tokens",
    "recomputed_tokens", "output_tokens", "spec_steps", "acceptance_length", "coverage_first", "ttft_ms", "tpot_ms",
    "e2e_ms", "preemptions", "suspensions", "state",
)  # fmt: skip
_OF_A_POOL = (
    "window", "hit tokens", "of the prompts", "hit pages", "missed pages", "peak pages", "device pages", "peak share",
    "host pages",
)  # fmt: skip


def comparison_page(comparison: Comparison) -> Page:
    """The page of ``comparison``: figures of all runs, and the course of the first run of each arm."""
    arms = [_drawable(comparison.runs(build)[0]) for build in comparison.builds]
    first = arms[0]
    return Page(
        kind="comparison",
        title=comparison.scenario,
        verdict=verdict(comparison),
        tone=VERDICTS[comparison.exit_code],
        lead=lead(comparison),
        warnings=[*([_sentence(comparison.warning)] if comparison.warning else []), *_unfollowed(comparison, arms)],
        problems=[f"{build}: {text}" for build, missed in comparison.missed.items() for text in missed],
        facts=[
            ("requests", f"{comparison.requests:,}"),
            ("arms", f"{len(arms)}"),
            ("drafts per step (K)", f"{comparison.drafts}"),
            (
                "seed" if comparison.repeats == 1 else "seeds",
                ", ".join(str(run.seed) for run in comparison.runs(first.arm)),
            ),
            ("ran on", ", ".join(dict.fromkeys(arm.on for arm in arms))),
            ("checks", ", ".join(dict.fromkeys(arm.check for arm in arms))),
            ("acceptance", f"{comparison.acceptance_mode}: {comparison.acceptance}"),
            *_clock(arms),
        ],
        tables=[figures_table(comparison, short=True), figures_table(comparison, short=False), _pools(arms)],
        plots=plots(arms, comparison.drafts),
        arms=[_words(comparison, arm) for arm in arms],
        data=[_data(arm) for arm in arms],
        first_stories=_first_stories(arms),
        violations_note=_violations_note(arms),
    )


def _unfollowed(comparison: Comparison, arms: Sequence[Evidence]) -> list[str]:
    """Why a page of very many requests has neither timeline nor page map."""
    if comparison.requests <= FOLLOWED or any(arm.course is not None for arm in arms):
        return []
    why = f"Runs of more than {FOLLOWED:,} requests keep no course here, so that there is no timeline and no page map"
    return [f"{why}; kvtwin run --out keeps one of any length."]


def figures_table(comparison: Comparison, short: bool) -> Table:
    """A row a figure, a column an arm with its ratio to the baseline, by which a column sorts its rows."""
    columns = [Column("figure", numeric=False)]
    for place, build in enumerate(comparison.builds):
        before = "before" if build == comparison.baseline and len(comparison.builds) > 1 else ""
        columns.append(Column(build, swatch=place, beside=before))
    above = set() if short else {label for label, _ in table_rows(comparison)}
    rows = []
    for label, by_build in table_rows(comparison, short):
        if label not in above:
            rows.append([Cell(label), *(_figure(comparison, by_build[build]) for build in comparison.builds)])
    if not short:
        return Table("further", "Further figures", columns, rows, folded=True)
    broken = {
        build: "bad"
        if set(comparison.laws[build]) - set(comparison.declared(build))
        else "warn"
        if comparison.laws[build]
        else ""
        for build in comparison.builds
    }
    rows.append([Cell(LAWS), *(Cell(law_text(comparison, build), tone=broken[build]) for build in comparison.builds)])
    mode = f"Acceptance is {comparison.acceptance_mode}. "
    if len(comparison.builds) > 1:
        mode += (
            f"Below a value its ratio to {comparison.baseline}; ✓ better or ✗ worse, where rules or intervals show it. "
        )
    return Table("figures", "Figures", columns, rows, mode + " ".join(footnotes(comparison)[1:]))


def _figure(comparison: Comparison, row: Mapping[Any, Any]) -> Cell:
    """A value above its ratio to the baseline's; red or green where an interval (or the rules) bear that out."""
    text = value_text(comparison, row)
    if row["build"] == comparison.baseline or math.isnan(row["value"]):
        return Cell(text, None if math.isnan(row["value"]) else float(row["value"]))
    tone = {"better": "good", "worse": "bad"}.get(outcome(row), "")
    ratio = ratio_text(row)
    value = row["change"] if math.isnan(row["ratio"]) else row["ratio"]
    return Cell(text, float(value), "" if ratio in ("1.000", "equal") else ratio, tone)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _pools(arms: Sequence[Evidence]) -> Table:
    """A row a lifecycle of a pool (and worker) on a build: what it reused, and how full its pool was."""
    names = ("build", "lifecycle", "pool")
    columns = [*(Column(name, numeric=False) for name in names), *map(Column, _OF_A_POOL)]
    rows = [_pool_row(arm, one) for arm in arms for one in arm.pools.to_dict("records")]
    wanted = [place for place in range(len(columns)) if place < len(names) or any(row[place].value for row in rows)]
    rows = [[row[place] for place in wanted] for row in rows]
    columns = [columns[place] for place in wanted]
    note = (
        "A hit in tokens need not be computed, in pages it is what the lifecycle keeps of it. Lifecycles of one pool "
        "share its pages; hits are those of all workers."
    )
    return Table("lifecycles", "Reuse and pools by lifecycle", columns, rows, note)


def _pool_row(arm: Evidence, one: Mapping[Any, Any]) -> list[Cell]:
    window = one["window"]
    return [
        Cell(arm.arm),
        Cell(str(one["lifecycle"])),
        Cell(str(one["name"])),
        Cell("all", 0.0) if pd.isna(window) or not window else _count(window),
        _count(one["hit_tokens"]),
        _share(one["hit_tokens"], one["prompt_tokens"]),
        _count(one["hit_pages"]),
        _count(one["missed_pages"]),
        _count(one["peak"]),
        _count(one["device_pages"]),
        _share(one["peak"], one["device_pages"]),
        _count(one["host_pages"]),
    ]


def _count(value: float) -> Cell:
    return Cell(f"{value:,.0f}", float(value))


def _share(part: float, whole: float) -> Cell:
    return Cell(f"{part / whole:.1%}", round(part / whole, 6)) if whole else Cell("–")


def _words(comparison: Comparison, arm: Evidence) -> ArmWords:
    idle = [code for code in INVARIANTS if not arm.checked.get(code)]
    done = ", ".join(f"{code} {count:,}" for code, count in sorted(arm.checked.items()) if count)
    broken = law_text(comparison, arm.arm)
    return ArmWords(
        name=arm.arm,
        word=f"laws broken: {broken}; {plural(len(arm.violations), 'violation')}",
        missed=comparison.missed[arm.arm],
        notes=arm.notes,
        checked=done,
        idle=", ".join(idle),
        decisions=arm.digests["decisions"],
        memory=arm.digests["memory"],
    )


def _drawable(arm: Evidence) -> Evidence:
    return arm if arm.course is None else replace(arm, course=arm.course.timed())


def _clock(arms: Sequence[Evidence]) -> list[tuple[str, str]]:
    """What stands in for the time of runs that have no clock."""
    without = [arm.arm for arm in arms if arm.course is not None and not arm.course.clocked]
    return [("no clock", f"{', '.join(without)}: an iteration counts as 1 ms")] if without else []


def _data(arm: Evidence) -> dict[str, Any]:
    """What the scripts read of one run."""
    shown = [name for name in _SHOWN if name in arm.requests and not all(arm.requests[name].isna())]
    course = arm.course
    return {
        "name": arm.arm,
        "requests": embedded.columns(arm.requests, shown, _DIGITS),
        "timeline": None if course is None else embedded.timeline(course.spans),
        "map": None if course is None else embedded.page_map(course.pages, course.occupancy),
        "violations": embedded.violations(arm.violations, arm.told),
    }


def _first_stories(arms: Sequence[Evidence]) -> list[FirstStory]:
    """For each arm and law the first violation whose story is told."""
    found = []
    for arm in arms:
        seen: set[str] = set()
        for one in arm.told:
            if one.code not in seen:
                seen.add(one.code)
                count = sum(violation["code"] == one.code for violation in arm.violations)
                found.append(FirstStory(arm.arm, one, count))
    return found


def _violations_note(arms: Sequence[Evidence]) -> str:
    every, stories = sum(len(arm.violations) for arm in arms), sum(len(arm.told) for arm in arms)
    if not stories:
        return f"{plural(every, 'violation')}; no events were kept that tell of them."
    text = f"{plural(every, 'violation')}. The first of each law on each build is told here, "
    if stories < every:
        return f"{text}the first {stories:,} when their row in the table is opened."
    return f"{text}every other one when its row in the table is opened."
