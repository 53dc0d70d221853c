"""A comparison as plain values, for JSON, by the schema of :mod:`reports.comparison_schema`."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reports.compared import Comparison
from reports.comparison_rows import COLUMNS
from reports.comparison_words import sentence

SCHEMA_VERSION = 1
_KEPT = tuple(column for column in COLUMNS if column not in ("short", "shown"))


def document(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain values: what was run, a row a build, and the figures with their intervals."""
    builds = []
    for build in comparison.builds:
        row = comparison.table.loc[build]
        runs = comparison.runs(build)
        builds.append(
            {
                "name": build,
                **{str(column): _plain(value) for column, value in row.items()},
                "build": runs[0].build,
                "on": runs[0].on,
                "acceptance": {"mode": runs[0].acceptance_mode, "model": runs[0].acceptance},
                "seeds": [run.seed for run in runs],
                "digests": [dict(run.digests) for run in runs],
                "historical": comparison.is_historical(build),
                "laws_broken": comparison.laws[build],
                "laws_declared": list(comparison.declared(build)),
                "missed": comparison.missed[build],
            }
        )
    return {
        "schema_version": SCHEMA_VERSION,
        "name": comparison.scenario,
        "scenario": comparison.scenario,
        "summary": sentence(comparison),
        "baseline": comparison.baseline,
        "requests": comparison.requests,
        "paired_requests": comparison.paired,
        "drafts": comparison.drafts,
        "repeats": comparison.repeats,
        "resampling": comparison.unit,
        "acceptance": {"mode": comparison.acceptance_mode, "model": comparison.acceptance},
        "warning": comparison.warning,
        "notes": comparison.notes,
        "interrupted": comparison.interrupted,
        "left_out": list(comparison.left_out),
        "builds": builds,
        "rows": [{column: _plain(row[column]) for column in _KEPT} for row in comparison.rows.to_dict("records")],
        "exit_code": comparison.exit_code,
    }


def _plain(value: Any) -> Any:
    """A value that JSON has a word for: ``None`` for NaN, a whole number without a point."""
    if isinstance(value, str | bool):
        return value
    if value is None or pd.isna(value):
        return None
    number = float(value)
    return int(number) if number.is_integer() else number
