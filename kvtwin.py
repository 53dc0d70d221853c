"""The command line of kvtwin. It reads options, calls the rooms and chooses the exit code."""

from __future__ import annotations

import enum
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

FINE, BROKEN, BAD_INPUT, NOTHING_CHECKED, CRASHED, INTERRUPTED = 0, 1, 2, 3, 4, 130
TRACEBACK = "KVTWIN_TRACEBACK"
FOUR_BUILDS = "target-only,paired-22,unified-page,unified"
GEOMETRY = "minimax-m3.1-flash-like"

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Validate KV-cache reuse under speculative decoding with a standalone drafter.",
    epilog="Exit codes: 0 fine, 1 a law broken or an expectation missed, 2 bad input or usage, "
    "3 nothing was checked, 4 kvtwin itself crashed.",
)


class Check(enum.StrEnum):
    """How often the laws are evaluated."""

    OFF = "off"
    INCREMENTAL = "incremental"
    EXHAUSTIVE = "exhaustive"


class TraceFormat(enum.StrEnum):
    """Public trace formats."""

    MOONCAKE = "mooncake"
    MOONCAKE_DELTA = "mooncake-delta"
    AIPERF = "aiperf"


Json = Annotated[bool, typer.Option("--json", help="Print indented JSON, for machines, and nothing else.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Write the results to this folder, whole or not at all.")
]
CheckLevel = Annotated[Check, typer.Option("--check", help="How often the laws are evaluated.")]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"kvtwin {version('kvtwin')}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


Scenarios = Annotated[
    list[str] | None, typer.Argument(metavar="SCENARIO", help="Scenario files, or names from `kvtwin scenarios`.")
]
TracePath = Annotated[Path | None, typer.Option("--trace", metavar="FILE", help="Serve a trace file instead.")]
Format = Annotated[TraceFormat | None, typer.Option("--format", help="Format of the trace file.")]
Geometry = Annotated[str, typer.Option("--geometry", metavar="PRESET", help="Model and drafter that serve the trace.")]
Block = Annotated[int, typer.Option("--block", min=1, help="Tokens per hash id of the trace.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only so many rows of the trace.")]


@app.command()
def run(
    scenario: Scenarios = None,
    build: Annotated[
        str | None,
        typer.Option("--build", metavar="B", help="A build, or fault:NAME (alone: on the fault's own scenario)."),
    ] = None,
    out: Out = None,
    json: Json = False,
    check: CheckLevel = Check.INCREMENTAL,
    trace: TracePath = None,
    format: Format = None,
    geometry: Geometry = GEOMETRY,
    block: Block = 512,
    limit: Limit = None,
    ops: Annotated[
        Path | None, typer.Option("--ops", metavar="FILE", help="Apply a trace of ops, as `run --out` writes it.")
    ] = None,
    events: Annotated[
        bool, typer.Option("--events/--no-events", help="Keep the event log in DIR, for `kvtwin explain`.")
    ] = True,
) -> None:
    """Run scenarios on one build and check every law."""
    from reports import runs, sources

    trace_file = sources.trace_file(trace, format, geometry, block, limit)
    done = runs.run(runs.RunRequest(tuple(scenario or ()), build, check.value, out, trace_file, ops, events))
    runs.show(done, json)
    raise typer.Exit(runs.exit_code_of(done))


@app.command()
def compare(
    scenario: Scenarios = None,
    builds: Annotated[
        str | None,
        typer.Option("--builds", metavar="A,B,C", help=f"Builds to compare; the scenario's own, or {FOUR_BUILDS}."),
    ] = None,
    out: Out = None,
    json: Json = False,
    check: CheckLevel = Check.INCREMENTAL,
    trace: TracePath = None,
    format: Format = None,
    geometry: Geometry = GEOMETRY,
    block: Block = 512,
    limit: Limit = None,
) -> None:
    """Put builds side by side: reuse, coverage, acceptance, latency, pages, violations."""
    from reports import comparisons, sources

    trace_file = sources.trace_file(trace, format, geometry, block, limit)
    names = tuple(name.strip() for name in builds.split(",")) if builds else None
    found = comparisons.run(tuple(scenario or ()), trace_file, names, FOUR_BUILDS.split(","), check.value, out)
    comparisons.show(found, json)
    raise typer.Exit(comparisons.exit_code_of(found))


@app.command()
def scenarios(json: Json = False) -> None:
    """List the scenarios that come with kvtwin."""
    from reports import catalogue

    catalogue.show(
        catalogue.scenario_rows(),
        json,
        {"name": "scenario", "build": "build", "geometry": "geometry", "summary": "what it shows"},
    )


@app.command()
def builds(
    pair: Annotated[
        list[str] | None, typer.Argument(metavar="BUILD", help="Two builds: print only what differs.")
    ] = None,
    json: Json = False,
) -> None:
    """List the builds and their rules, or what differs between two of them."""
    from reports import catalogue

    if not pair:
        catalogue.show_builds(json)
    elif len(pair) == 2:
        one, other = (catalogue.find_build(name) for name in pair)
        rows = catalogue.difference(one, other)
        catalogue.show(rows, json, {"name": "rule", one.name: one.name, other.name: other.name})
    else:
        raise typer.BadParameter(f"expected no build or two, found {len(pair)}")


@app.command()
def faults(json: Json = False) -> None:
    """List the faults: builds with one rule replaced by a wrong one, and the laws that must fire."""
    from reports import catalogue

    columns = {
        "name": "fault",
        "rule": "wrong rule",
        "base": "in build",
        "fires": "fires",
        "scenario": "scenario",
        "looks_like": "looks like",
    }
    catalogue.show(catalogue.fault_rows(), json, columns)


@app.command()
def invariants(json: Json = False) -> None:
    """List the laws: what each says, where it is checked, and the faults that show that it can fail."""
    from reports import catalogue

    catalogue.show(
        catalogue.invariant_rows(),
        json,
        {"name": "law", "sentence": "says", "checked": "checked at", "faults": "faults"},
    )


@app.command()
def schema(json: Json = False) -> None:
    """Print the JSON Schema of a scenario file, for editors; it is JSON with and without --json."""
    from reports.document import dump
    from scenarios.schema import json_schema

    sys.stdout.write(dump(json_schema()))


@app.command()
def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `kvtwin run --out` wrote.")],
    violation: Annotated[
        str,
        typer.Argument(metavar="VIOLATION", help="Number of the violation in the table, or a law's code: its first."),
    ],
    json: Json = False,
) -> None:
    """Tell the events that led to a violation."""
    from reports import story

    told = story.tell(run, violation)
    story.show(told, json)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code of design.md section 11. Errors are one line on standard error."""
    from reports.terminal import complain
    from scenarios.errors import InputError

    if arguments is None:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `kvtwin builds | head` ends quietly
    try:
        code = typer.main.get_command(app).main(arguments, prog_name="kvtwin", standalone_mode=False)
    except InputError as error:
        complain(str(error))
        return BAD_INPUT
    except typer.TyperException as error:
        if message := error.format_message():
            complain(f"{' '.join(message.split())} (kvtwin --help tells more)")
        return BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        if os.environ.get(TRACEBACK):
            traceback.print_exc()
        line = " ".join(f"{type(error).__name__}: {error}".split())
        complain(f"crashed, which is a defect of kvtwin: {line} (set {TRACEBACK}=1 to see where)")
        return CRASHED
    if code == INTERRUPTED:
        complain("interrupted")
    return code if isinstance(code, int) else FINE


if __name__ == "__main__":
    sys.exit(main())
