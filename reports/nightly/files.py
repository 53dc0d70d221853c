"""The files of a nightly: its page, JUnit XML, Markdown, JSON and tables, and a folder for each comparison."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reports.compared import Comparison, compare
from reports.document import dump
from reports.folder import stamp
from reports.nightly import baseline as baselines
from reports.nightly import junit
from reports.nightly.night import Night
from reports.nightly.outcome import ComparedRun
from reports.nightly.sentences import headline, sentences
from reports.nightly.summary import markdown
from sim.nightly.rules import Change

SCHEMA = "kvtwin-nightly/1"
PAGE, NIGHTLY, JUNIT, SUMMARY, EXACT = "report.html", "nightly.json", "junit.xml", "summary.md", "exact.parquet"
COMPARISONS = "comparisons"


def write(folder: Path, night: Night) -> None:
    """Fill ``folder``: JSON, JUnit XML, Markdown, tables, what makes it a baseline, the page and the comparisons.

    Ctrl-C on the way leaves out the comparisons, which take longest, and nothing else.
    """
    from reports.comparison_files import write_comparison_files  # matplotlib takes half a second to import
    from reports.nightly.page import nightly_page
    from reports.page.render import render

    (folder / NIGHTLY).write_text(dump(document(night)), encoding="utf-8")
    (folder / JUNIT).write_text(junit.document(night), encoding="utf-8")
    (folder / SUMMARY).write_text(markdown(night), encoding="utf-8")
    night.found.exact_frame().to_parquet(folder / EXACT, index=False)
    baselines.write(folder, night)
    found = comparisons(night)
    (folder / PAGE).write_text(render(nightly_page(night, list(found.values()))), encoding="utf-8")
    try:
        for name, comparison in found.items():
            below = folder / COMPARISONS / name
            below.mkdir(parents=True)
            write_comparison_files(below, comparison)
        if found:
            stamp(folder / COMPARISONS, "group")
    except KeyboardInterrupt:
        shutil.rmtree(folder / COMPARISONS)
    stamp(folder, "nightly")


def comparisons(night: Night) -> dict[str, Comparison]:
    """The comparisons by the names of their folders: a scenario, with a number where a suite names one again."""
    groups: dict[tuple[int, str], list[ComparedRun]] = {}
    for run in night.found.runs:
        groups.setdefault((run.group, run.evidence.scenario), []).append(run)
    found: dict[str, Comparison] = {}
    for (_, scenario), runs in groups.items():
        historical = {run.evidence.build: run.declared for run in runs if run.declared is not None}
        judged = {run.evidence.build for run in runs if run.judged}
        name = scenario
        while name in found:
            name = f"{scenario}-{len(found) + 1}"
        found[name] = compare([run.evidence for run in runs], historical, judged)
    return found


def document(night: Night) -> dict[str, Any]:
    """The nightly as plain values."""
    compared = night.compared
    return {
        "schema": SCHEMA,
        **night.key(),
        "exit_code": night.exit_code,
        "verdict": headline(night).text,
        "sentences": [asdict(sentence) for sentence in sentences(night)],
        "interrupted": night.interrupted,
        "seconds": round(night.seconds, 3),
        "baseline": night.baseline or None,
        "compared": None if compared is None else {"exact": compared.exact, "noisy": compared.noisy},
        "changes": [_change(change) for change in (compared.changes if compared is not None else ())],
        "cases": [asdict(case) for case in night.found.cases],
        "left_out": [{"stage": stage, "subject": subject} for stage, subject in sorted(night.left_out)],
        "skipped": list(night.skipped),
        **night.found.extras,
    }


def _change(change: Change) -> dict[str, Any]:
    ratio = None if change.ratio is None else dict(zip(("low", "value", "high"), map(float, change.ratio), strict=True))
    return asdict(change) | {"ratio": ratio, "fails": change.fails}
