"""Laws, violations and the docket that collects them."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Law:
    """One invariant: its code, its sentence, and when it is checked."""

    code: str
    sentence: str
    checked: str


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken law as data; ``-1`` and ``""`` stand for "does not apply". ``worker``: which one of several."""

    code: str
    message: str
    request: int = -1
    pool: str = ""
    page: int = -1
    position: int = -1
    step: int = -1
    expected: str = ""
    found: str = ""
    worker: int = -1

    def as_dict(self) -> dict[str, Any]:
        """Fields by name."""
        return asdict(self)


INVARIANTS: dict[str, Law] = {
    law.code: law
    for law in (
        Law("OWN", "No actor reads or writes a page that it does not hold.", "read, write"),
        Law("INIT", "No slot is read that was never written in this tenancy of its page.", "read"),
        Law("KEY", "The content of a claimed page is what its key says, lookahead included.", "read"),
        Law("FRONT", "One frontier: cursor, target and drafter agree on what is computed or hidden.", "claim, settle"),
        Law("PUB", "Only final, written content is published, and it never changes.", "publish, write"),
        Law("WINDOW", "What a window will read is retained, and what it left goes.", "dispatch, read"),
        Law("SHAPE", "committed <= history <= capacity <= limit; rows stay within their extent.", "dispatch, settle"),
        Law("REF", "free + cached + held = total, references = holders, nothing held after a drain.", "settle, drain"),
        Law("ROLLBACK", "A failed or skipped step leaves both pools as before.", "dispatch"),
        Law(
            "ADMIT",
            "What was admitted can be allocated, a refusal is justified, reserves are bounded, pools fit memory.",
            "start, dispatch",
        ),
        Law("PROGRESS", "What fits alone finishes; nothing waits for ever or is set back in vain.", "dispatch, drain"),
        Law("FLIGHT", "Nothing with an operation outstanding is freed, granted or overwritten.", "read, write, land"),
        Law("STATE", "No per-slot or per-step state survives its owner.", "read, settle"),
        Law("MAP", "Table rows and slot lengths on the device agree with the sequences.", "dispatch, read, settle"),
        Law("METRIC", "Reported counts equal the ledger.", "settle, drain"),
        Law("RANK", "All ranks decide alike.", "submit, dispatch"),
        Law(
            "REUSE",
            "No hit is lost beyond the rule's declared slack, and no claim goes deeper than the rule allows.",
            "claim, first drafter pass",
        ),
        Law(
            "AL",
            "Acceptance on a hit equals acceptance cold: the drafter's window is as valid as the rule promises.",
            "first drafter pass",
        ),
    )
}


class Docket:
    """Violations of one run, each reported once per request, pool and law, and how often each law was evaluated.

    An id that is used again names another request. The dockets of several workers share one list, so that it keeps
    the order of discovery.
    """

    def __init__(self, worker: int = -1, violations: list[Violation] | None = None) -> None:
        self.worker = worker
        self.violations: list[Violation] = [] if violations is None else violations
        self.evaluations: Counter[str] = Counter()
        self._reported: set[tuple[str, int, str, int]] = set()
        self._lives: dict[int, int] = {}  # request id -> how many violations were known when it was submitted last

    def of_worker(self, worker: int) -> Docket:
        """The docket of one of several workers, for the same requests."""
        docket = Docket(worker, self.violations)
        docket._lives = self._lives
        return docket

    def submitted(self, request_id: int) -> None:
        """A request starts, perhaps under an id that had been another's."""
        self._lives[request_id] = len(self.violations)

    def life(self, request_id: int) -> int:
        """What tells the request that has this id now from those that had it and broke a law."""
        return self._lives.get(request_id, 0)

    def broken(self, request_id: int, life: int) -> bool:
        """Whether some law was broken by a request since it was submitted."""
        return any(violation.request == request_id for violation in self.violations[life:])

    def report(self, violation: Violation) -> None:
        """Add a violation unless its law was already broken by the same request in the same pool."""
        key = (violation.code, violation.request, violation.pool, self.life(violation.request))
        if key not in self._reported:
            self._reported.add(key)
            self.violations.append(violation if self.worker < 0 else replace(violation, worker=self.worker))

    def count(self, code: str, times: int = 1) -> None:
        """Note that a law was evaluated."""
        self.evaluations[code] += times
