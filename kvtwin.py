"""The command line of kvtwin. It reads options, calls the rooms and chooses the exit code."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from reports import interrupts

interrupts.leave_at_once()
import typer  # noqa: E402
import typer.core  # noqa: E402

from reports import (  # noqa: E402
    al_commands,
    check_commands,
    compare_commands,
    device_commands,
    list_commands,
    log_commands,
    nightly_commands,
    options,
    train_commands,
    weights_commands,
)

if TYPE_CHECKING:
    from model.builds import Build
    from sim.cacheops import CacheProgram
    from sim.result import RunResult

FINE, BROKEN, BAD_INPUT, NOTHING_CHECKED, CRASHED, INTERRUPTED = 0, 1, 2, 3, 4, 130


class _Commands(typer.core.TyperGroup):
    """The commands. None asks anything, so an EOFError in one is no end of input, as typer would have it."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EOFError as error:
            from reports import endings

            endings.crashed(error)
            raise typer.Exit(CRASHED) from error


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Validate KV-cache reuse under speculative decoding with a standalone drafter.",
    epilog="Exit codes: 0 fine, 1 a law broken or an expectation missed, 2 bad input or usage, "
    "3 nothing was checked, 4 kvtwin itself crashed or could not write, 130 Ctrl-C.",
)


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


@app.command()
def run(
    scenario: options.Scenarios = None,
    build: options.RunBuild = None,
    out: options.Out = None,
    json: options.Json = False,
    check: options.CheckLevel = options.Check.INCREMENTAL,
    trace: options.TracePath = None,
    format: options.Format = None,
    geometry: options.Geometry = None,
    block: options.Block = None,
    limit: options.Limit = None,
    ops: options.Ops = None,
    events: options.Events = True,
    perfetto: options.Perfetto = False,
) -> None:
    """Run scenarios on one build and check every law."""
    from reports import runs, sources

    interrupts.raise_again()
    trace_file = sources.trace_file(trace, format, geometry, block, limit)
    request = runs.RunRequest(tuple(scenario or ()), build, check.value, out, trace_file, ops, events, perfetto)
    done = runs.run(request, _replay_cache)
    runs.show(done, json)
    raise typer.Exit(runs.exit_code_of(done))


def _replay_cache(program: CacheProgram, build: Build, check: str) -> RunResult:
    from property_tests.fuzz.cache_replay import replay

    return replay(program, build, check)


compare_commands.register(app)


@app.command()
def drill(
    name: options.FaultNames = None,
    fault: options.MoreFaults = None,
    check: options.DrillLevel = options.Thorough.EXHAUSTIVE,
    blind: options.Blind = False,
    budget: options.Budget = None,
    driver: options.Drivers = None,
    workers: options.Workers = None,
    device: device_commands.DrillDevice = None,
    json: options.Json = False,
) -> None:
    """Run every fault on its scenario: does the right law notice first, and is the sound build silent?

    With --blind the fuzzer gets the faults instead, without their scenarios: what does it find, and how soon?
    """
    from reports import drill as drills
    from reports import sources, terminal

    interrupts.raise_again()
    if blind:
        if device is not None or check is not options.Thorough.EXHAUSTIVE:
            raise sources.usage("expected neither --device nor --check beside --blind, whose laws are exhaustive")
        _drill_blind((*(name or ()), *(fault or ())), tuple(driver or ()), budget, workers, json)
    if budget or driver or workers:
        raise sources.usage("expected --budget, --driver and --workers only beside --blind")
    if device is not None:
        raise typer.Exit(device_commands.drill(_devices, (*(name or ()), *(fault or ())), device, json))
    with terminal.progress("drill") as tick:
        rows, interrupted = drills.drill((*(name or ()), *(fault or ())), tick, check.value)
    drills.show(rows, interrupted, json)
    raise typer.Exit(drills.exit_code(rows, interrupted))


def _drill_blind(
    names: tuple[str, ...], drivers: tuple[str, ...], budget: int | None, workers: int | None, json: bool
) -> None:
    from property_tests.fuzz import blind, crew
    from reports import blind as told
    from reports import terminal

    wanted = blind.tasks(names, drivers, budget or blind.BUDGET, 0)
    with terminal.progress("blind drill") as tick:
        rows, interrupted = blind.Drill(wanted, crew.local(workers), tick).run()
    told.show(rows, interrupted, json)
    raise typer.Exit(told.exit_code(rows, interrupted))


@app.command()
def fuzz(
    minutes: options.Minutes = None,
    examples: options.Examples = None,
    workers: options.Workers = None,
    build: options.Rotation = None,
    rule: options.OwnRules = None,
    driver: options.Driver = None,
    machine: options.Machine = None,
    profile: options.Profile = "quick",
    seed: options.Seed = "0",
    out: options.Kept = None,
    cluster: options.ClusterAddress = None,
    database: options.Database = "",
    json: options.Json = False,
) -> None:
    """Look for programs that break a law: random ones, shrunk, on every correct build or on a rule of your own."""
    from property_tests.fuzz import session
    from reports import campaigns

    interrupts.raise_again()
    asked = session.Asked(
        minutes, examples, workers, build, tuple(rule or ()), driver, machine, profile, seed, cluster, database
    )
    order = asdict(session.order_of(asked))
    session.budget_of(asked)
    with campaigns.Desk(out) as desk:
        done = session.run(asked, desk)
        desk.close(order, done)
    campaigns.show(order, done, json, out)
    raise typer.Exit(campaigns.exit_code(done))


@app.command()
def sweep(
    builds: options.Swept = None,
    what: options.Grids = None,
    full: options.Full = False,
    every: options.Every = 1,
    workers: options.Workers = None,
    listed: options.ListGrids = False,
    out: options.Out = None,
    json: options.Json = False,
) -> None:
    """Run every combination of small sizes, orders and moments on every correct build: no law may break."""
    from reports import sweeps

    interrupts.raise_again()
    order = sweeps.order(what, builds, full, every)
    if listed:
        sweeps.show_grids(order, json)
        raise typer.Exit()
    swept = sweeps.run(order, workers, out)
    sweeps.show(swept, json, out)
    raise typer.Exit(sweeps.exit_code(swept))


@app.command()
def capacity(
    scenario: options.Scenarios = None,
    builds: options.Compared = None,
    json: options.Json = False,
) -> None:
    """Show what builds make of a rank's memory: pages, bytes and tokens by pool, on the device and on the host."""
    from reports import capacity as capacities

    found = capacities.run(tuple(scenario or ()), builds.split(",") if builds else None, options.FOUR_BUILDS.split(","))
    capacities.show(found, json)


@app.command()
def seeds(
    id: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Only these figures, such as X7 or S5.")] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Leave out the figures that take long.")] = False,
    json: options.Json = False,
) -> None:
    """Compute the figures of the seeds and compare: what follows must come out exactly, what was measured in a band."""
    from reports import seeds as figures

    interrupts.raise_again()
    found = figures.run(tuple(id or ()), fast)
    figures.show(found, json)
    raise typer.Exit(figures.exit_code(found))


@app.command()
def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `kvtwin run --out` wrote.")],
    violation: Annotated[
        str,
        typer.Argument(metavar="VIOLATION", help="Number of the violation in the table, or a law's code: its first."),
    ],
    json: options.Json = False,
) -> None:
    """Tell the events that led to a violation."""
    from reports import story

    told = story.tell(run, violation)
    story.show(told, json)


def _late(module: str) -> Callable[[], Any]:
    """What imports a room when a command needs it: torch, tokenizers, hypothesis take their time, or are not there."""
    return lambda: importlib.import_module(module)


_devices = _late("gpu_backend.replay.room")
device_commands.register(app, _devices)
train_commands.register(app, _late("gpu_backend.train.stages"))
check_commands.register(app)
al_commands.register(app, _devices)
nightly_commands.register(app, _devices, _late("property_tests.fuzz.stage"))
list_commands.register(app)
log_commands.register(app)
weights_commands.register(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; an exit code (README lists them). Errors are one line on standard error."""
    if arguments is None:
        interrupts.leave_at_once()
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `kvtwin builds | head` ends quietly
    from reports import endings
    from reports.terminal import complain
    from scenarios.errors import InputError
    from sim.crashes import ENDS

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a dash or a box that the encoding lacks must not end a run
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        code = typer.main.get_command(app).main(arguments, prog_name="kvtwin", standalone_mode=False)
        sys.stdout.flush()
    except InputError as error:
        complain(str(error))
        return BAD_INPUT
    except typer.TyperException as error:
        if message := error.format_message():
            # pydantic's words, which typer hands on
            message = message.replace("Value error, ", "").replace("Input should be", "expected a value")
            complain(f"{' '.join(message.split())} (kvtwin --help tells more)")
        return BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except ENDS as error:  # a rule may call sys.exit, which must not end well
        endings.crashed(error)
        return CRASHED
    if code == INTERRUPTED:
        complain("interrupted")
    return code if isinstance(code, int) else FINE


interrupts.raise_again()

if __name__ == "__main__":
    sys.exit(main())
