"""What a nightly found, as plain values: test cases, exact figures, samples of noisy ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

if TYPE_CHECKING:
    from reports.evidence import Evidence

PASSED, FAILED, CRASHED, UNCHECKED, OPEN = "passed", "failed", "crashed", "nothing checked", "open"


@dataclass(frozen=True, slots=True)
class Case:
    """One question of a stage and its answer. ``subject`` is what was asked about: a scenario on a build, a fault.

    ``message`` is one line; ``detail`` may be many. ``OPEN``: asked, but it cannot be answered here.
    """

    stage: str
    subject: str
    name: str
    verdict: str
    message: str = ""
    detail: str = ""


class ExactRow(NamedTuple):
    """A figure that must be equal: a number, or a text such as a digest."""

    stage: str
    subject: str
    repeat: int
    metric: str
    value: float | str


class SampleRow(NamedTuple):
    """One value of a noisy figure: of the request ``place`` in the conversation ``unit``, or of a whole repeat."""

    stage: str
    subject: str
    metric: str
    repeat: int
    unit: str
    place: int
    value: float


class ComparedRun(NamedTuple):
    """A run of a comparison: the place of its group in the suite, its tables, what its build may break, if it is
    historical, and whether the scenario expects anything of it."""

    group: int
    evidence: Evidence
    declared: tuple[str, ...] | None
    judged: bool


@dataclass(slots=True)
class Found:
    """What a stage, or a whole nightly, found so far.

    ``seconds`` are wall time by stage and subject; ``made`` says of what a subject was made (SHA-256), ``runs`` are
    those of the comparisons, where files are written, and ``extras`` holds documents of single stages.
    """

    cases: list[Case] = field(default_factory=list)
    exact: list[ExactRow] = field(default_factory=list)
    samples: list[SampleRow] = field(default_factory=list)
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    made: dict[tuple[str, str], str] = field(default_factory=dict)
    runs: list[ComparedRun] = field(default_factory=list)
    extras: dict[str, Any] = field(default_factory=dict)

    def case(self, stage: str, subject: str, name: str, verdict: str, message: str = "", detail: str = "") -> None:
        """Add a case; its message is made one line."""
        self.cases.append(Case(stage, subject, name, verdict, " ".join(message.split()), detail))

    def figure(self, stage: str, subject: str, repeat: int, metric: str, value: float | str | None) -> None:
        """Add an exact figure; one that the run does not have is left out."""
        if value is None:
            return
        self.exact.append(ExactRow(stage, subject, repeat, metric, value if isinstance(value, str) else float(value)))

    def sample(
        self, stage: str, subject: str, metric: str, repeat: int, unit: str, place: int, value: float | None
    ) -> None:
        """Add one value of a noisy figure, if there is one."""
        if value is not None:
            self.samples.append(SampleRow(stage, subject, metric, repeat, unit, place, float(value)))

    def exact_frame(self) -> pd.DataFrame:
        """The exact figures, a row each; ``value`` is text, and ``number`` missing where it is none."""
        frame = _frame(ExactRow, [row._replace(value=str(row.value)) for row in self.exact])
        numbers = [row.value if isinstance(row.value, float) else math.nan for row in self.exact]
        return frame.assign(number=pd.Series(numbers, dtype="float64"))

    def sample_frame(self) -> pd.DataFrame:
        """The samples of the noisy figures in the order of their keys, a row each."""
        return _frame(SampleRow, sorted(self.samples))


def _frame(kind: type[ExactRow] | type[SampleRow], rows: Sequence[ExactRow] | Sequence[SampleRow]) -> pd.DataFrame:
    """Rows as a frame whose types are the same where there is none."""
    types = {"repeat": "int64", "place": "int64", "value": "float64" if kind is SampleRow else "string"}
    frame = pd.DataFrame(rows, columns=pd.Index(kind._fields))
    return frame.astype({name: types.get(name, "string") for name in kind._fields})
