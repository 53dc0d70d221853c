"""Builds side by side on one scenario: one row a build, as a pandas table, Markdown and CSV."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from reports.document import INTERRUPTED, plural, summary_of
from sim.result import RunResult

# column, label, how a reader sees it
METRICS: tuple[tuple[str, str, str], ...] = (
    ("prefilled_tokens", "prefilled tokens", "{:,.0f}"),
    ("cached_tokens", "cached tokens", "{:,.0f}"),
    ("reuse_share", "reused share of the prompts", "{:.1%}"),
    ("recomputed_tokens", "of the prefilled: recomputed", "{:,.0f}"),
    ("coverage_first", "drafter-window coverage, first step after a hit", "{:.1%}"),
    ("coverage_all", "drafter-window coverage, all steps", "{:.1%}"),
    ("al_request_mean", "acceptance length, request mean", "{:.3f}"),
    ("al_step_weighted", "acceptance length, step-weighted", "{:.3f}"),
    ("ttft_p50_ms", "TTFT p50 (ms)", "{:,.1f}"),
    ("ttft_p90_ms", "TTFT p90 (ms)", "{:,.1f}"),
    ("tpot_p50_ms", "TPOT p50 (ms)", "{:,.2f}"),
    ("tpot_p90_ms", "TPOT p90 (ms)", "{:,.2f}"),
    ("output_tokens_per_s", "output tokens per second", "{:,.0f}"),
    ("preemptions", "preemptions", "{:,.0f}"),
    ("violations", "violations", "{:,.0f}"),
)
PEAK = "peak_pages_"
CAPACITY = "device_pages_"
NONE = "–"


@dataclass(frozen=True, slots=True)
class Comparison:
    """``table`` has one row per build (index ``build``) and the columns of :data:`METRICS` and ``peak_pages_POOL``.

    ``historical`` names the builds that may break laws and the laws that each declares to break; ``left_out`` the
    builds that Ctrl-C left no result of.
    """

    scenario: str
    acceptance: str
    acceptance_mode: str
    requests: int
    drafts: int
    table: pd.DataFrame
    laws: dict[str, list[str]]
    historical: Mapping[str, Collection[str]]
    missed: dict[str, list[str]]
    checked: bool
    left_out: Sequence[str] = ()

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C came before the last build was finished."""
        return bool(self.left_out)

    @property
    def warning(self) -> str | None:
        """Why the acceptance lengths must not be read as a result, where that is so."""
        if self.acceptance_mode == "modelled":
            return None
        return (
            f"acceptance is {self.acceptance_mode}: the acceptance lengths are an input here, and show nothing of what "
            "a build does to the drafter; read the coverage of its window instead"
        )

    @property
    def exit_code(self) -> int:
        """1 if a correct build broke a law or missed an expectation, 3 if a run evaluated no law, else 0.

        That a historical build breaks a law is what it is there to show.
        """
        broken = any(self.laws[build] or self.missed[build] for build in self.laws if build not in self.historical)
        if broken:
            return 1
        return INTERRUPTED if self.interrupted else 0 if self.checked else 3


def figures(result: RunResult) -> dict[str, Any]:
    """One row of the table; ``None`` where the run has no such figure."""
    summary = summary_of(result)
    latencies, speculation, coverage = summary["all"], summary["speculation"], summary["drafter_window_coverage"]
    prompt = sum(record.prompt_tokens for record in result.records)
    cached = sum(record.cached_tokens for record in result.records)
    ttft, tpot = latencies["time_to_first_token_ms"], latencies["inter_token_latency_ms"]
    row = {
        "build": result.build,
        "prefilled_tokens": result.totals.prefilled_tokens,
        "cached_tokens": cached,
        "reuse_share": cached / prompt if prompt else None,
        "recomputed_tokens": sum(record.recomputed_tokens for record in result.records),
        "coverage_first": coverage["first_step_after_hit"],
        "coverage_all": coverage["all_steps"],
        "al_request_mean": speculation["request_mean_acceptance_length"],
        "al_step_weighted": speculation["step_weighted_acceptance_length"],
        "ttft_p50_ms": ttft.get("p50"),
        "ttft_p90_ms": ttft.get("p90"),
        "tpot_p50_ms": tpot.get("p50"),
        "tpot_p90_ms": tpot.get("p90"),
        "output_tokens_per_s": summary["output_token_throughput"] or None,
        "preemptions": result.totals.preemptions,
        "violations": len(result.violations),
    }
    for pool in result.occupancy:
        row[PEAK + pool.name] = pool.peak
        row[CAPACITY + pool.name] = pool.device_pages
    return row


def compare(
    results: list[RunResult],
    historical: Mapping[str, Collection[str]],
    judged: frozenset[str],
    left_out: Sequence[str] = (),
) -> Comparison:
    """Put runs of one scenario side by side, in the given order.

    ``historical`` names the builds that may break laws and the laws that they declare, ``judged`` the builds of which
    the scenario expects something, ``left_out`` those that did not run.
    """
    first = results[0]
    table = pd.DataFrame([figures(result) for result in results]).set_index("build")
    return Comparison(
        scenario=first.scenario,
        acceptance=first.acceptance,
        acceptance_mode=first.acceptance_mode,
        requests=len(first.records),
        drafts=first.drafts,
        table=table,
        laws={result.build: result.codes for result in results},
        historical=historical,
        checked=not any(result.nothing_checked for result in results),
        missed={result.build: list(result.missed) if result.build in judged else [] for result in results},
        left_out=tuple(left_out),
    )


def readable(comparison: Comparison) -> pd.DataFrame:
    """The table as people read it: one row per metric (index ``metric``), one column per build, all text."""
    table = comparison.table
    rows: dict[str, list[str]] = {}
    for column, label, pattern in METRICS:
        if not all(pd.isna(value) for value in table[column]):
            rows[label] = [shown(value, pattern) for value in table[column]]
    for column in (name for name in table.columns if name.startswith(PEAK)):
        pool = column.removeprefix(PEAK)
        capacities = table[CAPACITY + pool]
        rows[f"peak pages, pool {pool}"] = [
            shown(peak, "{:,.0f}") + ("" if pd.isna(pages) else f" of {pages:,.0f}")
            for peak, pages in zip(table[column], capacities, strict=True)
        ]
    rows["laws broken"] = [law_text(comparison, build) for build in table.index]
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(table.index)).rename_axis("metric")


def law_text(comparison: Comparison, build: str) -> str:
    """Codes that ``build`` broke; those that it declares are what it is there to show, and marked as expected."""
    codes = comparison.laws[build]
    if not codes:
        return "none" if comparison.checked else "not checked"
    declared = comparison.historical.get(build, ())
    expected = " ".join(code for code in codes if code in declared)
    others = " ".join(code for code in codes if code not in declared)
    return ", ".join(part for part in (expected and f"{expected} (expected)", others) if part)


def shown(value: Any, pattern: str) -> str:
    """A cell: a figure that a run does not have is a dash, never a zero."""
    return NONE if value is None or pd.isna(value) else pattern.format(value)


def markdown(comparison: Comparison) -> str:
    """The readable table as a Markdown section."""
    table = readable(comparison)
    lines = [
        f"## {comparison.scenario}",
        "",
        f"{plural(comparison.requests, 'request')}, K = {comparison.drafts}, "
        f"acceptance {comparison.acceptance_mode}: {comparison.acceptance}.",
        "",
    ]
    if comparison.interrupted:
        lines += [f"**Interrupted**: no result of {', '.join(comparison.left_out)}.", ""]
    if comparison.warning:
        lines += [f"**Note**: {comparison.warning}.", ""]
    lines.append("| | " + " | ".join(table.columns) + " |")
    lines.append("|---|" + "---:|" * len(table.columns))
    lines += ["| " + " | ".join((str(label), *values)) + " |" for label, *values in table.itertuples()]
    return "\n".join(lines) + "\n"


def document(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain values, for JSON."""
    builds = []
    for build, row in comparison.table.iterrows():
        figures_ = {str(column): None if pd.isna(value) else _plain(value) for column, value in row.items()}
        builds.append(
            {
                "name": build,
                **figures_,
                "historical": build in comparison.historical,
                "laws_broken": comparison.laws[str(build)],
                "laws_declared": list(comparison.historical.get(str(build), ())),
                "missed": comparison.missed[str(build)],
            }
        )
    return {
        "name": comparison.scenario,
        "scenario": comparison.scenario,
        "requests": comparison.requests,
        "drafts": comparison.drafts,
        "acceptance": {"mode": comparison.acceptance_mode, "model": comparison.acceptance},
        "warning": comparison.warning,
        "interrupted": comparison.interrupted,
        "left_out": list(comparison.left_out),
        "builds": builds,
        "exit_code": comparison.exit_code,
    }


def _plain(value: Any) -> float | int:
    number = float(value)
    return int(number) if number.is_integer() else number
