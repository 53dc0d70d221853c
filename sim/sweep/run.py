"""Running grids: every combination on every build, in slices that processes share, in an order that never changes."""

from __future__ import annotations

import signal
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from typing import Any

from model.invariants import Violation
from sim.orphans import end_with_parent
from sim.regression import scenario_yaml
from sim.rulespec import find
from sim.sweep.case import Case, run_case
from sim.sweep.grids import GRIDS

SLICE = 64  # combinations that one process takes at a time
KEPT = 3  # combinations whose scenario is kept, for each grid, build and law
_SPREAD = 2_654_435_761  # odd, near 2**32 over the golden ratio: neighbours fall far apart

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Order:
    """What to sweep: grids and builds by name. ``every``: about one combination in so many, spread over all axes."""

    grids: tuple[str, ...]
    builds: tuple[str, ...]
    full: bool = False
    every: int = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """A law that one combination broke on one build, with a scenario file that reproduces it."""

    grid: str
    build: str
    point: dict[str, Any]
    violation: Violation
    scenario: str


@dataclass(slots=True)
class Tally:
    """What one grid did on one build. ``broken`` counts combinations by the law that broke first."""

    grid: str
    build: str
    cases: int = 0
    checks: int = 0
    reached: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Take in what another slice of the same grid and build did."""
        self.cases += other.cases
        self.checks += other.checks
        self.reached += other.reached
        for finding in other.findings:
            code = finding.violation.code
            if sum(known.violation.code == code for known in self.findings) < KEPT:
                self.findings.append(finding)
        self.broken += other.broken


@dataclass(slots=True)
class Swept:
    """The whole sweep, grid by grid and build by build; ``done`` of ``planned`` combinations ran."""

    order: Order
    planned: int
    tallies: list[Tally] = field(default_factory=list)
    interrupted: bool = False

    @property
    def done(self) -> int:
        """Combinations that ran."""
        return sum(tally.cases for tally in self.tallies)

    @property
    def findings(self) -> list[Finding]:
        """Every kept finding, in the order of grids and builds."""
        return [finding for tally in self.tallies for finding in tally.findings]

    def reached(self, grid: str) -> Counter[str]:
        """States that a grid reached on all builds together."""
        total: Counter[str] = Counter()
        for tally in self.tallies:
            if tally.grid == grid:
                total += tally.reached
        return total

    def unasked(self) -> list[str]:
        """Grids that ran and reached nothing of what they are for."""
        ran = dict.fromkeys(tally.grid for tally in self.tallies if tally.cases)
        return [name for name in ran if not any(self.reached(name)[what] for what in GRIDS[name].reaches)]


@lru_cache(maxsize=4)
def points(grid: str, full: bool, every: int) -> list[tuple[dict[str, Any], Case]]:
    """The combinations of a grid that a sweep runs."""
    found = GRIDS[grid].points(full)
    return [point for place, point in enumerate(found) if (place * _SPREAD % (1 << 32)) % every == 0]


def sweep(order: Order, workers: int = 1, progress: Progress | None = None) -> Swept:
    """Run ``order``. Ctrl-C ends it and keeps what was found."""
    sizes = {grid: len(points(grid, order.full, order.every)) for grid in order.grids}
    result = Swept(order, sum(sizes.values()) * len(order.builds))
    tallies = {(grid, build): Tally(grid, build) for grid in order.grids for build in order.builds}
    result.tallies = list(tallies.values())
    slices = [
        (grid, build, order.full, order.every, begin)
        for grid in order.grids
        for build in order.builds
        for begin in range(0, sizes[grid], SLICE)
    ]
    with _Crew(slices, workers) as crew:
        try:
            for part in crew.tallies():
                tallies[part.grid, part.build].add(part)
                if progress is not None:
                    progress(result.done, result.planned)
        except KeyboardInterrupt:
            result.interrupted = True
            for part in crew.finished():
                tallies[part.grid, part.build].add(part)
    return result


Slice = tuple[str, str, bool, int, int]


class _Crew:
    """The processes that run the slices; one worker is this process itself."""

    def __init__(self, slices: Sequence[Slice], workers: int) -> None:
        self._slices = slices
        self._pool: ProcessPoolExecutor | None = None
        self._waiting: deque[Future[Tally]] = deque()
        if workers > 1:
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a worker that died is a broken pool, not our end
            self._pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin)

    def __enter__(self) -> _Crew:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def tallies(self) -> Iterator[Tally]:
        """The tallies of all slices, in their order, whichever process is done first."""
        if self._pool is None:
            yield from map(run_slice, self._slices)
            return
        self._waiting.extend(self._pool.submit(run_slice, part) for part in self._slices)
        while self._waiting:
            tally = self._waiting[0].result()
            self._waiting.popleft()
            yield tally

    def finished(self) -> Iterator[Tally]:
        """What is done when a sweep ends early: slices not begun are given up, those under way end."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            yield from (future.result() for future in self._waiting if not future.cancelled())


def _begin() -> None:
    """A process begins: Ctrl-C is for the one that gathers the results, and without that one there is nothing to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def run_slice(part: Slice) -> Tally:
    """Run some combinations of one grid on one build."""
    grid, name, full, every, begin = part
    build = find(name)
    tally = Tally(grid, name)
    for point, case in points(grid, full, every)[begin : begin + SLICE]:
        result = run_case(case, build)
        tally.cases += 1
        tally.checks += result.checks
        tally.reached += result.reached
        if not result.violations:
            continue
        first = result.violations[0]
        tally.broken[first.code] += 1
        if tally.broken[first.code] <= KEPT:
            words = ", ".join(f"{axis} {word(value)}" for axis, value in point.items())
            comment = f"{first.code}: {first.message}; found by the sweep {grid!r} at {words}."
            text = scenario_yaml(f"{first.code} on {name} ({grid})", comment, name, result.config, result.ops)
            tally.findings.append(Finding(grid, name, point, first, text))
    return tally


def word(value: object) -> str:
    """An axis value as a person writes it."""
    return "none" if value is None else str(getattr(value, "value", value))
