"""What a figure of the seeds is: its parts, where each number of ours comes from, and what may be said of it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from model.builds import Build
from reports.catalogue import find_build
from scenarios import catalog
from scenarios.schema import Scenario
from sim.result import RunResult
from sim.run import run_scenario


class Kind(enum.StrEnum):
    """Where our number comes from."""

    DERIVED = "derived"  # it follows from the rules
    FITTED = "fitted input"  # an input was fitted to the seed: never called reproduced
    HYPOTHESIS = "hypothesis"  # of a cause that the seed does not give


class Verdict(enum.StrEnum):
    """What may be said of one number, or of a figure."""

    EXACT = "exact"
    DIFFERS = "differs"
    IN_BAND = "in band"
    OUT_OF_BAND = "out of band"
    TOLD = "no band"  # shown beside the seed's, nothing is asserted
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Part:
    """One number: ``seed`` as the seed gives it, ``ours``, and the band ``low .. high`` that ours must lie in.

    An ``exact`` part must equal ``low``, or ``seed`` where it is text; one without a band asserts nothing.
    """

    what: str
    seed: str
    ours: float | str | None
    kind: Kind = Kind.DERIVED
    low: float | None = None
    high: float | None = None
    exact: bool = False

    @property
    def verdict(self) -> Verdict:
        """How ours stands to the seed's."""
        if self.ours is None:
            return Verdict.OPEN
        if self.exact:
            wanted = self.seed if isinstance(self.ours, str) else self.low
            return Verdict.EXACT if self.ours == wanted else Verdict.DIFFERS
        if self.low is None or self.high is None or isinstance(self.ours, str):
            return Verdict.TOLD
        return Verdict.IN_BAND if self.low <= self.ours <= self.high else Verdict.OUT_OF_BAND


def exact(what: str, seed: float, ours: float) -> Part:
    """A number that follows from the rules and must come out."""
    return Part(what, readable(seed), ours, Kind.DERIVED, seed, seed, True)


def same(what: str, seed: str, ours: str) -> Part:
    """Words or ids that follow from the rules and must come out."""
    return Part(what, seed, ours, exact=True)


def within(what: str, seed: str, ours: float, low: float, high: float, kind: Kind = Kind.DERIVED) -> Part:
    """A number that must lie in a band."""
    return Part(what, seed, ours, kind, low, high)


def told(what: str, seed: str, ours: float | str, kind: Kind = Kind.DERIVED) -> Part:
    """A number that nothing is asserted of."""
    return Part(what, seed, ours, kind)


def readable(value: float | str | None) -> str:
    """A number as people read it."""
    if value is None or isinstance(value, str):
        return value or "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}".rstrip("0").rstrip(".")


class Runs:
    """Scenarios that figures run, each once: figures share what they look at."""

    def __init__(self) -> None:
        self._done: dict[tuple[object, ...], RunResult] = {}

    def run(
        self, name: str, build: str | Build, tag: str = "", check: str = "incremental", **changes: Any
    ) -> RunResult:
        """The scenario ``name`` with ``changes`` (named by ``tag``) on ``build``, as it was run before or now."""
        chosen = find_build(build) if isinstance(build, str) else build
        key = (name, chosen.name, tag, check)
        if key not in self._done:
            scenario = catalog.load(name)
            result = run_scenario(scenario.replace(**changes) if changes else scenario, chosen, check=check).whole()
            self._done[key] = replace(result, logs=[])
        return self._done[key]

    def scenario(self, name: str) -> Scenario:
        """A shipped scenario."""
        return catalog.load(name)


Measure = Callable[[Runs], list[Part]]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. ``free`` lists the parameters that were chosen, ``slow`` ones are left out of the fast table.

    ``needs`` says what has to be there to measure it, where that is not here: the figure stays open.
    """

    id: str
    what: str
    source: str
    measure: Measure | None
    free: tuple[str, ...] = ()
    slow: bool = False
    needs: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure as it came out, and how long that took (seconds)."""

    figure: Figure
    parts: list[Part] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def kinds(self) -> list[str]:
        """Kinds of its parts, each once."""
        return list(dict.fromkeys(part.kind.value for part in self.parts))

    @property
    def broken(self) -> bool:
        """Whether an exact number differs or a shape left its band."""
        return any(part.verdict in (Verdict.DIFFERS, Verdict.OUT_OF_BAND) for part in self.parts)

    @property
    def verdict(self) -> str:
        """The figure in a few words; only what follows from the rules alone is called reproduced."""
        verdicts = {part.verdict for part in self.parts}
        for wrong in (Verdict.DIFFERS, Verdict.OUT_OF_BAND):
            if wrong in verdicts:
                return wrong.value
        judged = verdicts - {Verdict.TOLD, Verdict.OPEN}
        if not judged:
            return "explored" if Verdict.TOLD in verdicts else "open"
        kinds = {part.kind for part in self.parts if part.verdict not in (Verdict.TOLD, Verdict.OPEN)}
        if kinds == {Kind.DERIVED}:
            return "reproduced" if Verdict.EXACT in verdicts else Verdict.IN_BAND.value
        return f"in band with {' and '.join(sorted(kind.value for kind in kinds - {Kind.DERIVED}))}"
