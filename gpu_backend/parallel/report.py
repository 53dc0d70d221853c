"""What one rank found, as plain values, and the lines that tell it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from gpu_backend.parallel.outputs import Beside
from model.invariants.base import Violation

FINE, BROKEN, NOTHING_CHECKED = 0, 1, 3


@dataclass(frozen=True, slots=True)
class RankReport:
    """``rounds`` comparisons of words with the others, ``plans`` of them of plans; ``sums`` over the ranks.

    ``alone`` is the digest of the run by itself, whose outputs ``outputs`` compares. ``stopped``: the ranks parted and
    the run ended there, so nothing is said of its memory. ``missed`` are expectations of the scenario.
    """

    rank: int
    device: str
    steps: int = 0
    rows: int = 0
    events: int = 0
    rounds: int = 0
    plans: int = 0
    sums: int = 0
    digest: str = ""
    memory_digest: str = ""
    alone: str = ""
    stopped: bool = False
    outputs: Beside = field(default_factory=Beside)
    violations: tuple[Violation, ...] = ()
    missed: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether the device, the model and the run by itself have one memory."""
        return self.digest == self.memory_digest == self.alone

    def encoded(self) -> str:
        """The report as a line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def decoded(cls, line: str | bytes) -> RankReport:
        """The report that :meth:`encoded` wrote."""
        found = cls(**json.loads(line))
        return replace(
            found,
            outputs=Beside(**found.outputs),  # pyright: ignore[reportCallIssue]
            violations=tuple(Violation(**violation) for violation in found.violations),  # pyright: ignore[reportCallIssue]
            missed=tuple(found.missed),
        )

    def line(self, ranks: int) -> str:
        """One line on this rank."""
        head = f"rank {self.rank} of {ranks} on {self.device}: {self.steps:,} steps of {self.rows:,} rows"
        met = f"{self.plans:,} plans and {self.rounds:,} words compared, {self.sums:,} sums"
        if self.stopped:
            return f"{head}, {met}; the ranks parted"
        word = "equal" if self.equal else f"not {self.memory_digest[:12]} (alone {self.alone[:12]})"
        outputs = self.outputs
        return (
            f"{head}, {met}; digest {self.digest[:12]} {word} over {self.events:,} events; outputs within "
            f"{outputs.worst:.3f} of the tolerance, {outputs.equal:,} of {outputs.rows:,} choices as on one rank"
        )


def exit_code(reports: Sequence[RankReport | None]) -> int:
    """1 where a rank is missing, found something or has another memory; 3 where nothing was compared."""
    found = [report for report in reports if report is not None]
    if len(found) < len(reports) or any(one.violations or one.missed or one.stopped for one in found):
        return BROKEN
    if not all(one.equal for one in found) or len({one.digest for one in found}) > 1:
        return BROKEN
    return FINE if all(one.events and one.outputs.rows and one.plans for one in found) else NOTHING_CHECKED


def lines(reports: Sequence[RankReport | None]) -> list[str]:
    """A line a rank, then what is wrong, each thing once."""
    told = [
        f"rank {rank} of {len(reports)}: no report" if report is None else report.line(len(reports))
        for rank, report in enumerate(reports)
    ]
    found = [report for report in reports if report is not None]
    wrong = [_violation(violation) for report in found for violation in report.violations]
    wrong += [line for report in found for line in report.missed]
    return [*told, *dict.fromkeys(wrong)]


def _violation(violation: Violation) -> str:
    step = f"step {violation.step}: " if violation.step >= 0 else ""
    where = f" (request {violation.request})" if violation.request >= 0 else ""
    parts = [f"expected {violation.expected}"] if violation.expected else []
    parts += [f"found {violation.found}"] if violation.found else []
    return f"{violation.code}: {step}{violation.message}{where}" + (": " + ", ".join(parts) if parts else "")
