"""The steps of a nightly: small ones in a fixed order, so that Ctrl-C and a crash cost one of them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from model.builds import Build
from reports import terminal
from reports.nightly.outcome import CRASHED, FAILED, Found
from scenarios.errors import InputError
from scenarios.schema import Scenario

if TYPE_CHECKING:
    from gpu_backend.replay.result import DeviceDrilled, Replayed, ReplayOrder
    from reports.campaigns import Desk
    from sim.findings import Campaigned

SIM, CPU, GPU = "sim", "cpu", "gpu"
Progress = Callable[[int, int], None]


class DeviceRoom(Protocol):
    """What replays need."""

    def device_name(self, device: str) -> str:
        """What the device is called; InputError where there is none."""
        ...

    def replay(self, what: Scenario, build: Build, order: ReplayOrder, progress: Progress | None) -> Replayed:
        """Run a scenario with a device behind every worker."""
        ...

    def drill(
        self, names: Sequence[str], device: str | None, progress: Progress | None
    ) -> tuple[list[DeviceDrilled], bool]:
        """Replay faults."""
        ...

    def drillable(self) -> tuple[str, ...]:
        """Names of the faults that a drill on a device knows."""
        ...


class FuzzRoom(Protocol):
    """What runs a campaign."""

    def order(self, **asked: Any) -> dict[str, Any]:
        """What is ordered; InputError for what cannot be."""
        ...

    def run(self, desk: Desk, **asked: Any) -> Campaigned:
        """Run it."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where a nightly runs: in the ``sim`` alone, or with replays on ``cpu`` or ``gpu``, whose ``name`` is told.

    ``devices`` is what replays there, ``fuzz`` brings what runs campaigns, on so many ``workers`` (the cores).
    """

    on: str
    name: str
    devices: DeviceRoom | None
    fuzz: Callable[[], FuzzRoom]
    workers: int | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a step may leave a folder: below ``folder`` now, which lies at ``place`` in the end."""

    folder: Path
    place: Path


Work = Callable[[Found, terminal.Tick, Kept | None], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One piece of a stage: ``work`` adds what it finds, or nothing. ``label`` is shown while it runs."""

    stage: str
    subject: str
    label: str
    work: Work


@dataclass(slots=True)
class Ran:
    """What the steps found, those that Ctrl-C left out, and those that need a device that was not asked for."""

    found: Found = field(default_factory=Found)
    left_out: list[Step] = field(default_factory=list)
    interrupted: bool = False


class Cut(KeyboardInterrupt):
    """Ctrl-C in a step that keeps what it found."""


def run(steps: list[Step], kept: Kept | None) -> Ran:
    """Run the steps in order. Ctrl-C leaves out the one that runs and all behind it; a crash is a case and goes on."""
    ran = Ran()
    for place, step in enumerate(steps):
        begun, found = monotonic(), Found()
        try:
            with terminal.progress(f"{place + 1} of {len(steps)}: {step.label}") as tick:
                step.work(found, tick, kept)
        except KeyboardInterrupt as error:
            if isinstance(error, Cut):
                add(ran.found, found)
            ran.left_out, ran.interrupted = steps[place:], True
            return ran
        except InputError as error:  # what only shows on the way: a device without room, a request that never fits
            found = Found()
            found.case(step.stage, step.subject, "run", FAILED, f"{step.label} cannot run: {error}")
            ran.left_out.append(step)
        except Exception as error:
            found = Found()
            line = f"{step.label}: kvtwin crashed: {type(error).__name__}: {error}"
            found.case(step.stage, step.subject, "crash", CRASHED, line, traceback.format_exc())
            ran.left_out.append(step)
        found.seconds[step.stage, step.subject] = monotonic() - begun
        add(ran.found, found)
    return ran


def add(all_: Found, more: Found) -> None:
    """Put what one step found to all the rest."""
    all_.cases += more.cases
    all_.exact += more.exact
    all_.samples += more.samples
    all_.seconds |= more.seconds
    all_.made |= more.made
    all_.runs += more.runs
    all_.extras |= more.extras
