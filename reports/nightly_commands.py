"""The commands ``kvtwin nightly`` and ``kvtwin baseline``. Who runs them brings devices and campaigns along."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reports import device_commands, interrupts
from reports.options import Json, Out, Workers

if TYPE_CHECKING:
    from reports.nightly.steps import DeviceRoom, FuzzRoom, Place


class On(enum.StrEnum):
    """Where a nightly runs."""

    SIM = "sim"
    CPU = "cpu"
    GPU = "gpu"


SuiteName = Annotated[
    str, typer.Option("--suite", metavar="FILE", help="A suite file, or a suite of kvtwin: nightly, smoke, gpu.")
]
RunsOn = Annotated[
    On, typer.Option("--on", help="In the sim alone; or with replays, which torch runs on a GPU or on the CPU.")
]

HeldTo = Annotated[
    Path | None, typer.Option("--baseline", metavar="DIR", help="Hold the figures to those of this folder.")
]
Listed = Annotated[bool, typer.Option("--list", help="List the steps of the suite; nothing runs.")]


def register(app: typer.Typer, devices: Callable[[], DeviceRoom], fuzz: Callable[[], FuzzRoom]) -> None:
    """Add the commands to ``app``; ``devices`` and ``fuzz`` are asked for when something needs them."""

    @app.command()
    def nightly(
        suite: SuiteName = "nightly",
        baseline: HeldTo = None,
        on: RunsOn = On.SIM,
        workers: Workers = None,
        out: Out = None,
        json: Json = False,
        listed: Listed = False,
    ) -> None:
        """Run a suite of comparisons, figures, faults, replays and fuzzing: what broke, and what got worse?"""
        from reports.nightly import nights
        from reports.nightly.suite import load_suite

        interrupts.raise_again()
        asked, place = load_suite(suite), _place(on, devices, fuzz, workers)
        if listed:
            nights.show_plan(asked, place, json)
            raise typer.Exit()
        night = nights.run(asked, place, baseline, out)
        nights.show(night, json, out)
        raise typer.Exit(night.exit_code)

    _register_baseline(app, devices, fuzz)


def _register_baseline(app: typer.Typer, devices: Callable[[], DeviceRoom], fuzz: Callable[[], FuzzRoom]) -> None:
    @app.command()
    def baseline(
        folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to store the figures.")],
        source: Annotated[
            Path | None, typer.Option("--from", metavar="NIGHT", help="A folder of kvtwin nightly --out; else it runs.")
        ] = None,
        suite: SuiteName = "nightly",
        on: RunsOn = On.SIM,
        workers: Workers = None,
        json: Json = False,
    ) -> None:
        """Store the figures of a nightly, of one that ran or of one that is run now, for others to be held to."""
        from reports.folder import check_target
        from reports.nightly import baseline as baselines
        from reports.nightly import nights
        from reports.nightly.suite import load_suite

        interrupts.raise_again()
        if source is not None:
            baselines.copy(folder, source)
            nights.show_stored(folder, json)
            raise typer.Exit()
        check_target(folder)
        night = nights.run(load_suite(suite), _place(on, devices, fuzz, workers), None, None)
        nights.show(night, json, None)
        if night.exit_code:
            raise typer.Exit(night.exit_code)
        baselines.store(folder, night)
        if not json:
            nights.show_stored(folder, json)


def _place(on: On, devices: Callable[[], DeviceRoom], fuzz: Callable[[], FuzzRoom], workers: int | None) -> Place:
    """Where to run; InputError where nobody installed torch, or there is no GPU."""
    from reports.nightly.steps import Place
    from scenarios.errors import InputError

    if on is On.SIM:
        return Place(on.value, on.value, None, fuzz, workers)
    room = device_commands.open_room(devices)
    try:
        name = room.device_name("cuda" if on is On.GPU else "cpu")
    except InputError as error:
        raise InputError("--on", 0, "", f"{error.problem}; --on cpu runs the same on the CPU") from error
    return Place(on.value, name, room, fuzz, workers)
