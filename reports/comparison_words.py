"""A comparison as people read it: a sentence, a table in the shape before, after, ratio, and what its intervals say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from reports.arms import CONVERSATION
from reports.cells import NONE, shown
from reports.compared import MODES, Comparison
from reports.document import plural
from reports.metrics import CAPACITY, PEAK

LAWS = "laws broken"
BETTER, WORSE, EQUAL, UNCLEAR, OTHER = "better", "worse", "equal", "unclear", "different"
_TOLD = {  # figures of the summary sentence, and what it calls them
    "prefilled_tokens": "prefilled tokens",
    "al_step_weighted": "acceptance length",
    "ttft_p50_ms": "TTFT p50",
    "tpot_p50_ms": "TPOT p50",
    "output_tokens_per_s": "output tok/s",
}


def ratio_text(row: Mapping[Any, Any]) -> str:
    """After / before with its interval, as ``1.013 [0.998, 1.028]``; of a baseline of 0 what was added to it."""
    if not math.isnan(row["ratio"]):
        low, high = row["ratio_low"], row["ratio_high"]
        return f"{row['ratio']:.3f}" + ("" if math.isnan(low) or low == high == 1.0 else f" [{low:.3f}, {high:.3f}]")
    if math.isnan(row["change"]):
        return NONE
    return "equal" if row["change"] == 0 else "+" + shown(row["change"], row["shown"])


def outcome(row: Mapping[Any, Any]) -> str:
    """What a row shows of its build: better, worse, equal, different (where neither way is better) or unclear.

    Without an interval any change counts, since a figure that follows from the rules has no noise; of one run of the
    clock nobody can say how far it would move, so it stays unclear.
    """
    if math.isnan(row["change"]):
        return UNCLEAR
    if row["change"] == 0 and (row["exact"] or row["change_low"] == row["change_high"]):
        return EQUAL
    low, high = row["change_low"], row["change_high"]
    if math.isnan(low):
        if not row["exact"]:
            return UNCLEAR
        low = high = row["change"]
    if low <= 0 <= high:
        return UNCLEAR
    if not row["better"]:
        return OTHER
    return BETTER if (low > 0) == (row["better"] == "up") else WORSE


def sentence(comparison: Comparison) -> str:
    """What the comparison found, in one sentence a build."""
    by_place = {(row["metric"], row["build"]): row for row in comparison.rows.to_dict("records")}
    sentences = []
    for build in comparison.builds:
        if build == comparison.baseline:
            continue
        parts = []
        for name, label in _TOLD.items():
            if (name, build) in by_place:
                part = _told(label, by_place[name, build])
                parts += [part] if part else []
        laws = _laws_told(comparison, build)
        words = ", ".join(parts) or "no figure in common"
        sentences.append(f"{build} against {comparison.baseline}: {words}{laws}.")
    if not sentences:
        (build,) = comparison.builds
        sentences.append(f"{build} alone, with nothing to compare it to{_laws_told(comparison, build)}.")
    return " ".join(sentences)


def _told(label: str, row: Mapping[Any, Any]) -> str:
    if math.isnan(row["value"]) or math.isnan(row["ratio"]):
        return ""
    value = shown(row["value"], row["shown"]) + (" ms" if row["unit"] == "ms" else "")
    word = outcome(row)
    if word == EQUAL:
        return f"{label} {value} (equal)"
    interval = ""
    if not math.isnan(row["ratio_low"]):
        interval = f" [{_percent(row['ratio_low'] - 1)}, {_percent(row['ratio_high'] - 1)}]"
    doubt = ", no difference shown" if word == UNCLEAR and interval else ""
    return f"{label} {value} ({_percent(row['ratio'] - 1)}{interval}{doubt})"


def _percent(share: float) -> str:
    """A change with its sign; what rounds to nothing has none."""
    text = f"{share:+.1%}"
    return "±0.0%" if text in ("+0.0%", "-0.0%") else text


def _laws_told(comparison: Comparison, build: str) -> str:
    codes = [code for code in comparison.laws[build] if code not in comparison.declared(build)]
    return f"; it broke {', '.join(codes)}" if codes else ""


# -- tables ------------------------------------------------------------------------------------------------------------


def table_rows(comparison: Comparison, short: bool = True) -> Iterator[tuple[str, dict[str, dict[Any, Any]]]]:
    """Label and row by build of each figure that is worth a line; ``short`` leaves out what a reader asks for later.

    Where nothing ever happened (no preemption, no host page) there is no line, nor one for capacities that are equal.
    """
    by_metric: dict[str, dict[str, dict[Any, Any]]] = {}
    for row in comparison.rows.to_dict("records"):
        by_metric.setdefault(row["metric"], {})[row["build"]] = row
    for name, by_build in by_metric.items():
        values = [0.0 if math.isnan(row["value"]) else row["value"] for row in by_build.values()]
        if not any(values) and name != "violations":
            continue
        first = next(iter(by_build.values()))
        if short and (not first["short"] or (name.startswith(CAPACITY) and len(set(values)) == 1)):
            continue
        yield str(first["label"]), by_build


def readable(comparison: Comparison, short: bool = True) -> pd.DataFrame:
    """The table as people read it: one row per metric (index ``metric``), one column per build, all text.

    A build that is not the baseline has its ratio behind the value.
    """
    rows: dict[str, list[str]] = {}
    for label, by_build in table_rows(comparison, short):
        cells = []
        for build in comparison.builds:
            row = by_build[build]
            cell = value_text(comparison, row)
            bare = build == comparison.baseline or row["metric"].startswith(PEAK) or cell == NONE
            cells.append(cell if bare else f"{cell}  {ratio_text(row)}")
        rows[label] = cells
    rows["acceptance"] = [MODES.get(comparison.modes[build], comparison.modes[build]) for build in comparison.builds]
    rows[LAWS] = [law_text(comparison, build) for build in comparison.builds]
    return pd.DataFrame.from_dict(rows, orient="index", columns=comparison.builds).rename_axis("metric")


def value_text(comparison: Comparison, row: Mapping[Any, Any]) -> str:
    """A value; the most pages in use beside those that there are."""
    text = shown(row["value"], row["shown"])
    metric = str(row["metric"])
    if metric.startswith(PEAK):
        pages = comparison.value(CAPACITY + metric.removeprefix(PEAK), str(row["build"]))
        return text if math.isnan(pages) else f"{text} of {pages:,.0f}"
    return text


def law_text(comparison: Comparison, build: str) -> str:
    """Codes that ``build`` broke; those that it declares are what it is there to show, and marked as expected."""
    codes = comparison.laws[build]
    if not codes:
        return "none" if comparison.checked else "not checked"
    declared = comparison.declared(build)
    expected = " ".join(code for code in codes if code in declared)
    others = " ".join(code for code in codes if code not in declared)
    return ", ".join(part for part in (expected and f"{expected} (expected)", others) if part)


def markdown(comparison: Comparison) -> str:
    """The comparison for a pull request: a sentence, the short table, what its figures rest on; the rest folded."""
    lines = [f"## {comparison.scenario}", "", sentence(comparison), ""]
    if comparison.interrupted:
        lines += [f"**Interrupted**: no result of {', '.join(comparison.left_out)}.", ""]
    if comparison.warning:
        lines += [f"**Warning**: {comparison.warning}.", ""]
    lines += [*_markdown_table(comparison, short=True), ""]
    lines += [f"- {line}" for line in footnotes(comparison)]
    lines += ["", "<details><summary>Further figures</summary>", "", *_markdown_table(comparison, short=False), ""]
    return "\n".join([*lines, "</details>"]) + "\n"


def footnotes(comparison: Comparison) -> list[str]:
    """What was run, how its accepted counts came about, and what the intervals are taken over."""
    first = comparison.arms[0]
    sessions = len(set(first.requests["session"]) - {""})
    where = f" in {plural(sessions, 'conversation')}" if 0 < sessions < comparison.requests else ""
    modes = MODES.get(comparison.acceptance_mode, comparison.acceptance_mode)
    lines = [
        f"{plural(comparison.requests, 'request')}{where}, K = {comparison.drafts}, acceptance {modes}: "
        f"{comparison.acceptance}."
    ]
    if len(comparison.builds) > 1 and comparison.unit in set(comparison.rows["resampling"]):
        lines.append(
            f"Intervals hold 95 %: bootstrap over {comparison.unit}s"
            f"{_lest(comparison)}, with the same draws in every arm; never over tokens or steps."
        )
    if comparison.repeats > 1:
        lines.append(
            f"{comparison.repeats} seeds an arm, the same for every build; figures of whole runs are means, and their "
            "intervals are over seeds."
        )
    else:
        lines.append(
            "Tokens, pages and events follow from the rules and one seed, so they have no interval; nor has a rate of "
            "the whole run, of which there is one (--repeats makes more)."
        )
    return lines + [f"{note[0].upper()}{note[1:]}." for note in comparison.notes]


def _lest(comparison: Comparison) -> str:
    return " (all turns of one together)" if comparison.unit == CONVERSATION else ""


def _markdown_table(comparison: Comparison, short: bool) -> list[str]:
    others = [build for build in comparison.builds if build != comparison.baseline]
    names = [f"before: {comparison.baseline}"]
    for build in others:
        names += [build, f"{build} / before [95 %]"]
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    above = set() if short else {label for label, _ in table_rows(comparison)}
    for label, by_build in table_rows(comparison, short):
        if label in above:
            continue
        cells = [value_text(comparison, by_build[comparison.baseline])]
        for build in others:
            cells += [value_text(comparison, by_build[build]), ratio_text(by_build[build])]
        lines.append("| " + " | ".join((label, *cells)) + " |")
    if not short:
        return lines
    modes = [MODES.get(comparison.modes[build], comparison.modes[build]) for build in (comparison.baseline, *others)]
    laws = [law_text(comparison, build) for build in (comparison.baseline, *others)]
    for label, (before, *after) in (("acceptance", modes), (LAWS, laws)):
        lines.append("| " + " | ".join((label, before, *(cell for text in after for cell in (text, "")))) + " |")
    return lines
