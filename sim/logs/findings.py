"""What laws over a log tell: how often each was evaluated or could not be decided, and where it was broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

KEPT = 100  # findings of one law that are told in full; all are counted


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken law: ``line`` of the log, ``event`` as the log numbers it, ``pool`` and ``block`` where they apply."""

    code: str
    law: str
    line: int
    event: int | None
    pool: str
    block: str
    message: str
    expected: str = ""
    found: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Fields by name."""
        return asdict(self)


class Place:
    """Where a log is being read: one for all laws, moved on by the reader."""

    __slots__ = ("event", "line")

    def __init__(self) -> None:
        self.line = 0
        self.event: int | None = None


class LogLaw:
    """One law over a log. A subclass has its ``code``, its name, its sentence and what it ``needs``.

    ``evaluations`` counts what was decided, ``undecided`` what the log left open, such as a block that may have been
    stored before the log began.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    sentence: ClassVar[str]
    needs: ClassVar[str]

    def __init__(self, place: Place) -> None:
        self.place = place
        self.evaluations = 0
        self.undecided = 0
        self.broken = 0
        self.findings: list[Finding] = []

    def report(self, pool: str, block: object, message: str, expected: object = "", found: object = "") -> None:
        """Note that the law is broken here."""
        self.broken += 1
        if len(self.findings) < KEPT:
            place = self.place
            block = "" if block is None else str(block)
            self.findings.append(
                Finding(self.code, self.name, place.line, place.event, pool, block, message, str(expected), str(found))
            )

    def summary(self) -> dict[str, Any]:
        """The law and its counts by name."""
        return {
            "code": self.code,
            "law": self.name,
            "sentence": self.sentence,
            "needs": self.needs,
            "evaluations": self.evaluations,
            "undecided": self.undecided,
            "broken": self.broken,
        }


@dataclass
class LogReport:
    """The verdict on one log. ``open`` says for each invariant that was not checked why the log does not allow it."""

    path: str
    format: str
    events: Counter[str] = field(default_factory=Counter)
    laws: Sequence[LogLaw] = ()
    open: dict[str, str] = field(default_factory=dict)
    pools: list[dict[str, Any]] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    @property
    def evaluations(self) -> int:
        """How often any law was evaluated."""
        return sum(law.evaluations for law in self.laws)

    @property
    def broken(self) -> int:
        """How often any law was broken."""
        return sum(law.broken for law in self.laws)

    @property
    def findings(self) -> list[Finding]:
        """Broken laws, in the order of the log."""
        return sorted((one for law in self.laws for one in law.findings), key=lambda one: (one.line, one.event or 0))
