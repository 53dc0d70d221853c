"""One nightly as it came out: what was found, what changed against a baseline, and the exit code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reports.document import INTERRUPTED
from reports.nightly.outcome import CRASHED, FAILED, UNCHECKED, Case, Found
from sim.nightly.rules import Compared, Subject

FINE, BROKEN, NOTHING_CHECKED, DEFECT = 0, 1, 3, 4
ANYWHERE = ""  # the baseline of a night that was held to none


@dataclass(frozen=True, slots=True)
class Night:
    """``suite`` and ``suite_digest`` name what ran, ``on`` and ``device`` where, ``code`` with which sources.

    ``baseline`` is the folder that it was held to, ``compared`` what came of that and ``notes`` what a reader must know
    of it; ``left_out`` lists what had no turn or crashed by stage and subject (a whole stage: no subject), ``skipped``
    has a line for each stage that needs another place.
    """

    suite: str
    suite_digest: str
    on: str
    device: str
    code: str
    found: Found
    left_out: frozenset[Subject]
    skipped: tuple[str, ...]
    interrupted: bool
    seconds: float
    baseline: str = ANYWHERE
    compared: Compared | None = None
    notes: tuple[str, ...] = ()

    def cases(self, verdict: str) -> list[Case]:
        """The cases of one verdict, in the order of the stages."""
        return [case for case in self.found.cases if case.verdict == verdict]

    @property
    def lacks(self) -> str:
        """Why its figures cannot be a baseline, in a few words; nothing where they can."""
        if self.interrupted:
            return "it was interrupted"
        for verdict in (CRASHED, FAILED, UNCHECKED):
            if cases := self.cases(verdict):
                return f"{cases[0].subject}, {cases[0].name}: {verdict}"
        return "" if self.found.made else "it has no figures"

    @property
    def exit_code(self) -> int:
        """4 if kvtwin crashed, 1 if a case failed or a figure got worse, 130 after Ctrl-C, 3 if something was asked and
        nothing checked: a stage that evaluated no law, or a baseline of which no figure could be compared."""
        if self.cases(CRASHED):
            return DEFECT
        if self.cases(FAILED) or (self.compared is not None and self.compared.fails):
            return BROKEN
        if self.interrupted:
            return INTERRUPTED
        unasked = self.compared is not None and not self.compared.exact + self.compared.noisy
        return NOTHING_CHECKED if self.cases(UNCHECKED) or unasked or not self.found.cases else FINE

    def key(self) -> dict[str, Any]:
        """What has to agree between a nightly and its baseline, and what has not."""
        return {
            "suite": {"name": self.suite, "digest": self.suite_digest},
            "on": self.on,
            "device": self.device,
            "code": self.code,
        }
