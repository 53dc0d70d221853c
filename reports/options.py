"""The options of the command line that several commands share, or that need more words than a line of it."""

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import Annotated

import typer

FOUR_BUILDS = "target-only,paired-22,unified-page,unified"
GEOMETRY = "minimax-m3.1-flash-like"
MOST_WORKERS = max(64, 4 * (os.cpu_count() or 1))  # processes: more of them only take each other's memory and time


class Check(enum.StrEnum):
    """How often the laws are evaluated."""

    OFF = "off"
    INCREMENTAL = "incremental"
    EXHAUSTIVE = "exhaustive"


class Thorough(enum.StrEnum):
    """How often the laws are evaluated where they have to be."""

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
FaultNames = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", help="Only these faults, such as store-at-zero.")
]
MoreFaults = Annotated[list[str] | None, typer.Option("--fault", metavar="F", help="The same; may be given again.")]
DrillLevel = Annotated[Thorough, typer.Option("--check", help="How often the laws are evaluated.")]
CheckLevel = Annotated[Check, typer.Option("--check", help="How often the laws are evaluated.")]
Scenarios = Annotated[
    list[str] | None, typer.Argument(metavar="SCENARIO", help="Scenario files, or names from `kvtwin scenarios`.")
]
TracePath = Annotated[Path | None, typer.Option("--trace", metavar="FILE", help="Serve a trace file instead.")]
Format = Annotated[TraceFormat | None, typer.Option("--format", help="Format of the trace file.")]
Geometry = Annotated[
    str | None,
    typer.Option("--geometry", metavar="PRESET", help=f"Model and drafter that serve the trace; {GEOMETRY}."),
]
Block = Annotated[int | None, typer.Option("--block", min=1, help="Tokens per hash id of the trace; 512.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only so many rows of the trace.")]
RunBuild = Annotated[
    str | None,
    typer.Option("--build", metavar="B", help="A build, or fault:NAME (alone: on the fault's own scenario)."),
]
Ops = Annotated[
    Path | None,
    typer.Option("--ops", metavar="FILE", help="Apply a trace of ops, as `run --out` and a campaign write it."),
]
Events = Annotated[bool, typer.Option("--events/--no-events", help="Keep the event log in DIR, for `kvtwin explain`.")]
Perfetto = Annotated[
    bool, typer.Option("--perfetto", help="Also write DIR/trace.json, for the Perfetto UI or chrome://tracing.")
]
Compared = Annotated[
    str | None,
    typer.Option("--builds", metavar="A,B,C", help=f"Builds; the scenario's own, or {FOUR_BUILDS}."),
]

# -- of a sweep --------------------------------------------------------------------------------------------------------

Swept = Annotated[
    str | None, typer.Option("--builds", metavar="A,B,C", help="Builds or fault:NAMEs; every correct build.")
]
Grids = Annotated[
    str | None, typer.Option("--what", metavar="X,Y,Z", help="Grids to run (--list names them); all of them.")
]
Full = Annotated[bool, typer.Option("--full", help="Many more combinations: most of an hour on two cores.")]
Every = Annotated[int, typer.Option("--every", metavar="N", min=1, help="About one combination in N.")]
ListGrids = Annotated[bool, typer.Option("--list", help="List the grids and their axes; nothing runs.")]

# -- of a campaign -----------------------------------------------------------------------------------------------------

Workers = Annotated[
    int | None, typer.Option("--workers", metavar="N", min=1, max=MOST_WORKERS, help="Processes; the cores.")
]
Minutes = Annotated[float | None, typer.Option("--minutes", metavar="M", help="How long; as the profile says.")]
Examples = Annotated[int | None, typer.Option("--examples", metavar="N", min=1, help="How many programs instead.")]
Rotation = Annotated[
    str | None,
    typer.Option("--build", metavar="A,B,C", help="Builds or fault:NAMEs in rotation; all correct ones."),
]
OwnRules = Annotated[
    list[str] | None,
    typer.Option("--rule", metavar="RULE=MODULE:CLASS", help="A rule of your own, in place of the build's."),
]
Driver = Annotated[
    str | None,
    typer.Option("--driver", metavar="D", help="swarm, bytes or machine; swarm."),
]
Machine = Annotated[
    str | None, typer.Option("--machine", metavar="LAYER", help="What is driven: cache, engine or sim; engine.")
]
Profile = Annotated[
    str,
    typer.Option("--profile", metavar="P", help="quick (1 minute), nightly (30) or deep (480, with larger worlds)."),
]
Seed = Annotated[str, typer.Option("--seed", metavar="S", help="Where programs come from: a number, or a commit id.")]
Kept = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Keep ledger and failures here; called again, the campaign goes on."),
]
ClusterAddress = Annotated[
    str | None, typer.Option("--cluster", metavar="ADDRESS", help="Workers of a Dask scheduler: tcp://HOST:PORT.")
]
Database = Annotated[
    str,
    typer.Option("--database", metavar="DIR", help="Failing examples of the machines, shared; or redis://HOST:PORT."),
]
Budget = Annotated[
    int | None, typer.Option("--budget", metavar="N", min=1, help="Programs of a blind drill for each fault; 2000.")
]
Blind = Annotated[bool, typer.Option("--blind", help="By the fuzzer, which is not told the fault's scenario.")]
Drivers = Annotated[
    list[str] | None,
    typer.Option("--driver", metavar="D", help="Of a blind drill; swarm and bytes."),
]
