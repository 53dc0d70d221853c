"""The commands that need a device: ``replay``, and ``drill --device``. Who runs them brings the device along."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

import typer

from reports import interrupts
from reports.options import Json, Out, Scenarios

if TYPE_CHECKING:
    from gpu_backend.al.order import Order, Told
    from gpu_backend.replay.result import DeviceDrilled, Replayed, ReplayOrder
    from model.builds import Build
    from scenarios.schema import Scenario


class Device(enum.StrEnum):
    """Where a replay runs."""

    CUDA = "cuda"
    CPU = "cpu"


class Acceptance(enum.StrEnum):
    """Where accepted counts come from."""

    FORCED = "forced"
    NATURAL = "natural"


class Mode(enum.StrEnum):
    """Whose order of events counts."""

    EQUALITY = "equality"
    FREE = "free"


class Launch(enum.StrEnum):
    """When a step runs."""

    SETTLE = "settle"
    DISPATCH = "dispatch"


class Sampling(enum.StrEnum):
    """How drafts are judged."""

    GREEDY = "greedy"
    TOKEN = "token"
    BLOCK = "block"
    MATCH = "match"


class Checks(enum.StrEnum):
    """What a device is asked for beside its own work."""

    OFF = "off"
    TAGS = "tags"
    FULL = "full"


OnDevice = Annotated[
    Device | None, typer.Option("--device", help="Where the memory is kept; a GPU if there is one, else the CPU.")
]
DrillDevice = Annotated[
    Device | None, typer.Option("--device", help="Replay the faults there: do the device's own checks notice?")
]

Opened = TypeVar("Opened")


class Room(Protocol):
    """What the room of the devices does."""

    def replay(
        self, what: Scenario, build: Build, order: ReplayOrder, progress: Callable[[int, int], None] | None
    ) -> Replayed:
        """Run a scenario with a device behind every worker."""
        ...

    def drill(
        self, names: Sequence[str], device: str | None, progress: Callable[[int, int], None] | None
    ) -> tuple[list[DeviceDrilled], bool]:
        """Replay faults."""
        ...

    def measure(self, order: Order, progress: Callable[[int, int], None] | None) -> Told:
        """Measure acceptance cold and on a hit."""
        ...


def register(app: typer.Typer, room: Callable[[], Room]) -> None:
    """Add ``replay`` to ``app``; ``room`` is asked for when it runs."""

    @app.command()
    def replay(
        scenario: Scenarios = None,
        build: Annotated[
            str | None, typer.Option("--build", metavar="B", help="A build, or fault:NAME; the scenario's own.")
        ] = None,
        device: OnDevice = None,
        acceptance: Annotated[
            Acceptance, typer.Option("--acceptance", help="Counts from the scenario, or from a drafter's drafts.")
        ] = Acceptance.FORCED,
        mode: Annotated[Mode, typer.Option("--mode", help="The device waits for the sim, or sets the order.")] = (
            Mode.EQUALITY
        ),
        check: Annotated[
            Checks, typer.Option("--check", help="Tags and slots; in full, attention and all bytes as well.")
        ] = Checks.TAGS,
        launch: Annotated[
            Launch, typer.Option("--launch", help="A step runs when it settles, or ahead, by counts of a first run.")
        ] = Launch.SETTLE,
        eager: Annotated[
            bool, typer.Option("--eager", help="No CUDA graphs: every step kernel by kernel, without padding rows.")
        ] = False,
        weights: Annotated[
            Path | None,
            typer.Option("--weights", metavar="DIR", help="Natural: the pair in target/ and drafter/ of this folder."),
        ] = None,
        sampling: Annotated[
            Sampling,
            typer.Option("--sampling", help="Natural: greedy, token rejection, block verification, or match samples."),
        ] = Sampling.GREEDY,
        temperature: Annotated[
            float | None, typer.Option("--temperature", metavar="T", help="Of sampling, but greedy; 1.")
        ] = None,
        exact: Annotated[bool, typer.Option("--exact", help="Kernels whose bits do not depend on the batch.")] = False,
        out: Out = None,
        json: Json = False,
    ) -> None:
        """Replay scenarios on a device that keeps tables, lengths, bases and tags itself: are both memories equal?"""
        from gpu_backend.replay.result import ReplayOrder
        from reports import replays, sources

        interrupts.raise_again()
        place = None if device is None else device.value
        graphs = False if eager else None
        folder = None if weights is None else str(weights)
        if temperature is not None and sampling is Sampling.GREEDY:
            raise sources.usage("expected --temperature beside --sampling token, block or match, found greedy")
        order = ReplayOrder(
            place, acceptance.value, mode.value, check.value, exact, launch.value, graphs, folder, sampling.value,
            1.0 if temperature is None else temperature,
        )  # fmt: skip
        done = replays.run(tuple(scenario or ()), build, order, out, open_room(room).replay)
        replays.show(done, json)
        raise typer.Exit(replays.exit_code_of(done))


def open_room(room: Callable[[], Opened]) -> Opened:
    """The room of the devices; InputError where nobody installed what it needs."""
    from scenarios.errors import InputError

    try:
        return room()
    except ModuleNotFoundError as error:
        problem = f"expected torch, as kvtwin[gpu] brings it, found no module {error.name}"
        raise InputError("device", 0, "", problem) from error


def drill(room: Callable[[], Room], names: Sequence[str], device: Device, json: bool) -> int:
    """Drill faults on a device and print how each fared; returns the exit code."""
    from reports import device_drill, terminal

    with terminal.progress(f"drill on {device.value}") as tick:
        rows, interrupted = open_room(room).drill(names, device.value, tick)
    device_drill.show(rows, interrupted, json)
    return device_drill.exit_code(rows, interrupted)
