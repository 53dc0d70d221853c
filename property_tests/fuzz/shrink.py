"""Cuts a failing trace down: fewer requests, fewer ops, smaller arguments, a plainer world; the same law breaks first.

Every candidate is run (:mod:`property_tests.fuzz.rerun`), so that what is kept is what happened. Ops come before
values: first whole requests with all that concerns them, then chunks of ops, halves first, then single ones
(delta debugging), then arguments and the constants of the world, and over again until nothing gives way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from model.builds import Build
from model.invariants import Violation
from model.ops import Dispatch, Settle, Submit
from property_tests.fuzz.rerun import rerun
from property_tests.fuzz.simpler import Change, inner, plainer_worlds, renumbered, simpler_ops, without_request
from sim.crashes import broken_by
from sim.optrace import Trace

RUNS = 1500  # of candidates
OPS = 60_000  # that all candidates together may take


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What is left of a trace, the law that it breaks first, and how many candidates were run for it."""

    trace: Trace
    violation: Violation
    runs: int


def requests_of(trace: Trace) -> int:
    """Requests of a trace: how often one is submitted."""
    return sum(isinstance(inner(op), Submit) for op in trace.ops)


def disturbances_of(trace: Trace) -> int:
    """Ops that are neither a request's arrival nor a step."""
    return sum(not isinstance(inner(op), Submit | Dispatch | Settle) or inner(op) == Dispatch(True) for op in trace.ops)


def shrink(trace: Trace, build: Build, runs: int = RUNS) -> Shrunk | None:
    """The smallest trace found that breaks the law of ``trace``; ``None`` if ``trace`` breaks none."""
    first = rerun(trace, build)
    if first.violation is None:
        return None
    shrinker = Shrinker(first.trace(trace), build, first.violation, runs)
    shrinker.run()
    return Shrunk(shrinker.best, shrinker.violation, shrinker.runs)


class Shrinker:
    """The best trace so far and the budget that is left."""

    def __init__(self, trace: Trace, build: Build, violation: Violation, runs: int) -> None:
        self.best, self.build, self.violation = trace, build, violation
        self.broken = broken_by(violation.code, violation.message)
        self.most, self.runs, self.ops = runs, 0, 0

    def run(self) -> None:
        """All passes, until one round over them changes nothing."""
        while True:
            before = self.best
            self._requests()
            self._drop_ops()
            self._change(simpler_ops(self.best))
            self._change(plainer_worlds(self.best))
            if self.best is before or self._spent():
                break
        self._change((renumbered,))

    def _spent(self) -> bool:
        return self.runs >= self.most or self.ops >= OPS

    def _requests(self) -> None:
        """Leave out one request after the other, the last ones first."""
        for number in sorted({op.spec.request_id for op in map(inner, self.best.ops) if isinstance(op, Submit)})[::-1]:
            self._try(without_request(self.best, number), fewer=True)

    def _drop_ops(self) -> None:
        """Leave out chunks of ops: halves, quarters, down to single ones."""
        size = max(1, len(self.best.ops) // 2)
        while True:
            place = len(self.best.ops) - size
            while place > -size:
                ops = self.best.ops
                start = max(0, place)
                self._try(replace(self.best, ops=ops[:start] + ops[start + size :]), fewer=True)
                place = min(place, len(self.best.ops)) - size
            if size == 1 or self._spent():
                return
            size //= 2

    def _change(self, changes: Iterable[Change]) -> None:
        """Try one change after the other, each on what the ones before it left."""
        for change in changes:
            candidate = change(self.best)
            if candidate is not None and candidate != self.best:
                self._try(candidate, fewer=False)

    def _try(self, candidate: Trace, fewer: bool) -> bool:
        """Run ``candidate``; take it if it breaks the law with no more ops (``fewer``: with less) than the best."""
        if self._spent():
            return False
        self.runs += 1
        try:
            result = rerun(candidate, self.build)
        except (ValueError, KeyError):  # values that do not go together
            return False
        self.ops += len(result.ops) + 4
        violation = result.violation
        if violation is None or broken_by(violation.code, violation.message) != self.broken:
            return False
        trace = result.trace(candidate)
        now, then = self._size(trace), self._size(self.best)
        if now > then or (fewer and now == then):
            return False
        self.best, self.violation = trace, violation
        return True

    @staticmethod
    def _size(trace: Trace) -> tuple[int, int, int]:
        return requests_of(trace), disturbances_of(trace), len(trace.ops)
