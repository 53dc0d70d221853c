"""The command ``kvtwin compare``, and ``kvtwin schema``, which prints what its JSON and scenario files hold."""

from __future__ import annotations

import enum
import sys
from typing import Annotated, Any

import typer

from reports import interrupts, options

MOST_REPEATS = 100


class Unit(enum.StrEnum):
    """What is resampled."""

    REQUEST = "request"
    CONVERSATION = "conversation"


class What(enum.StrEnum):
    """What has a schema."""

    SCENARIO = "scenario"
    COMPARISON = "comparison"
    SUITE = "suite"
    NIGHTLY = "nightly"
    BASELINE = "baseline"
    CHECK = "check"


Compared = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SCENARIO|DIR", help="Scenario files or names; folders that run or replay wrote, as LABEL=DIR, too."
    ),
]
Baseline = Annotated[
    str | None, typer.Option("--baseline", metavar="BUILD", help="The build (or label) that is 'before'; the first.")
]
Repeats = Annotated[
    int, typer.Option("--repeats", metavar="N", min=1, max=MOST_REPEATS, help="Seeds, the same for every build.")
]
Resampled = Annotated[
    Unit | None, typer.Option("--unit", metavar="U", help="What intervals resample: request or conversation.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""

    @app.command()
    def compare(
        scenario: Compared = None,
        builds: options.Compared = None,
        baseline: Baseline = None,
        repeats: Repeats = 1,
        unit: Resampled = None,
        out: options.Out = None,
        json: options.Json = False,
        check: options.CheckLevel = options.Check.INCREMENTAL,
        trace: options.TracePath = None,
        format: options.Format = None,
        geometry: options.Geometry = None,
        block: options.Block = None,
        limit: options.Limit = None,
    ) -> None:
        """Put builds or runs side by side: reuse, acceptance, latency, pages, laws; before, after, ratio, interval."""
        from reports import comparisons, sources

        interrupts.raise_again()
        asked = comparisons.Asked(
            names=tuple(scenario or ()),
            trace=sources.trace_file(trace, format, geometry, block, limit),
            builds=None if builds is None else tuple(name.strip() for name in builds.split(",")),
            otherwise=tuple(options.FOUR_BUILDS.split(",")),
            baseline=baseline,
            repeats=repeats,
            unit=None if unit is None else unit.value,
            check=check.value,
            out=out,
        )
        found = comparisons.run(asked)
        comparisons.show(found, json)
        raise typer.Exit(comparisons.exit_code_of(found))

    @app.command()
    def schema(
        what: Annotated[
            What, typer.Argument(metavar="WHAT", help=f"One of {', '.join(What)}: a file to write, or to read.")
        ] = What.SCENARIO,
        json: options.Json = False,
    ) -> None:
        """Print the JSON Schema of a scenario or a suite, for editors, or of results; JSON with and without --json."""
        from reports.document import dump

        sys.stdout.write(dump(_schema(what)))


def _schema(what: What) -> dict[str, Any]:
    from reports.check_schema import check_schema
    from reports.comparison_schema import comparison_schema
    from reports.nightly import schema, suite
    from scenarios.schema import json_schema

    made = {
        What.SCENARIO: json_schema,
        What.COMPARISON: comparison_schema,
        What.CHECK: check_schema,
        What.SUITE: suite.json_schema,
        What.NIGHTLY: schema.nightly_schema,
        What.BASELINE: schema.baseline_schema,
    }
    return made[what]()
