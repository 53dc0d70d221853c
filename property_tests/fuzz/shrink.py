"""Cuts a failing trace down: fewer requests, fewer ops, smaller arguments, a plainer world; the same law breaks first.

Every candidate is run (:mod:`property_tests.fuzz.rerun`), so that what is kept is what happened. Ops come before
values: first whole requests with all that concerns them, then disturbances of one kind, then chunks of ops (delta
debugging), then arguments and the constants of the world, and over again until nothing gives way; pairs come last.

What is left shows the build's own fault: where the trace breaks nothing on the correct build that the rule was put
into, what is left of it does not either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from model.builds import Build
from model.invariants import Violation
from model.ops import At, Dispatch, Op, Settle, Submit
from property_tests.fuzz.ddmin import ddmin
from property_tests.fuzz.patience import patience
from property_tests.fuzz.rerun import Rerun, rerun
from property_tests.fuzz.simpler import Change, inner, plainer_worlds, renumbered, simpler_ops, without_request
from property_tests.fuzz.sound import sound_base
from sim.crashes import HANG, Hang, broken_by
from sim.optrace import Trace

RUNS = 1500  # of candidates
OPS = 60_000  # that all candidates together may take
PAIRED = 32  # ops of a trace whose pairs are tried


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What is left of a trace, the law that it breaks first, and how many candidates were run for it."""

    trace: Trace
    violation: Violation
    runs: int


def requests_of(trace: Trace) -> int:
    """Requests of a trace: how often one is submitted."""
    return sum(isinstance(inner(op), Submit) for op in trace.ops)


def disturbing(op: At | Op) -> bool:
    """Whether an op is neither a request's arrival nor a step."""
    return not isinstance(inner(op), Submit | Dispatch | Settle) or inner(op) == Dispatch(True)


def disturbances_of(trace: Trace) -> int:
    """Ops that are neither a request's arrival nor a step."""
    return sum(map(disturbing, trace.ops))


def shrink(trace: Trace, build: Build, runs: int = RUNS, *, consult: bool = False) -> Shrunk | None:
    """The smallest trace found that breaks the law of ``trace``; ``None`` if ``trace`` breaks none.

    With ``consult`` the oracle is heard of each candidate, as it was of ``trace``.
    """
    try:
        with patience():
            first = rerun(trace, build, consult=consult)
    except Hang:  # before the first op
        return None
    if first.violation is None or first.violation.code == HANG:
        return None
    shrinker = Shrinker(first.trace(trace), build, first.violation, runs, consult)
    if not shrinker.silent_below(shrinker.best):
        if shrinker.silent_below(trace):  # what the build did last is what the base stumbles over
            shrinker.best = trace
        else:
            shrinker.base = None
    shrinker.run()
    return Shrunk(shrinker.best, shrinker.violation, shrinker.runs)


class Shrinker:
    """The best trace so far and the budget that is left."""

    def __init__(self, trace: Trace, build: Build, violation: Violation, runs: int, consult: bool) -> None:
        self.best, self.build, self.violation = trace, build, violation
        self.base = sound_base(build)
        self.broken = broken_by(violation.code, violation.message)
        self.most, self.runs, self.ops, self.consult = runs, 0, 0, consult

    def run(self) -> None:
        """All passes, until one round over them changes nothing."""
        while True:
            before = self.best
            self._requests()
            self._kinds()
            self._drop_ops()
            self._change(simpler_ops(self.best))
            self._change(plainer_worlds(self.best))
            if self.best is before:
                self._pairs()
            if self.best is before or self._spent():
                break
        self._change((renumbered,))

    def silent_below(self, trace: Trace) -> bool:
        """Whether ``trace`` breaks no law of the correct build below, or there is none."""
        if self.base is None:
            return True
        result = self._rerun(trace, self.base)
        return result is not None and result.violation is None

    def _spent(self) -> bool:
        return self.runs >= self.most or self.ops >= OPS

    def _requests(self) -> None:
        """Leave out one request after the other, the last ones first."""
        for number in sorted({op.spec.request_id for op in map(inner, self.best.ops) if isinstance(op, Submit)})[::-1]:
            self._try(without_request(self.best, number), fewer=True)

    def _kinds(self) -> None:
        """Leave out all disturbances, or those of one kind: a plain server does what is left to do."""
        self._keep(lambda op: isinstance(inner(op), Submit))
        self._keep(lambda op: not disturbing(op))
        for kind in dict.fromkeys(type(inner(op)) for op in self.best.ops if disturbing(op)):
            self._keep(lambda op, kind=kind: not (disturbing(op) and isinstance(inner(op), kind)))

    def _keep(self, stays: Callable[[At | Op], bool]) -> None:
        ops = tuple(filter(stays, self.best.ops))
        if len(ops) < len(self.best.ops):
            self._try(replace(self.best, ops=ops), fewer=True)

    def _drop_ops(self) -> None:
        """Leave out chunks of ops: halves, quarters, down to single ones."""

        def left_of(ops: tuple[At | Op, ...]) -> tuple[At | Op, ...] | None:
            return self.best.ops if self._try(replace(self.best, ops=ops), fewer=True) else None

        ddmin(self.best.ops, left_of, self._spent)

    def _pairs(self) -> None:
        """Leave out a disturbance together with one more op, if the trace is short."""
        for first in range(len(self.best.ops))[::-1]:
            for second in range(len(self.best.ops))[::-1]:
                ops = self.best.ops
                if max(first, second) >= len(ops) or len(ops) > PAIRED or first == second or not disturbing(ops[first]):
                    continue
                kept = tuple(op for place, op in enumerate(ops) if place not in (first, second))
                self._try(replace(self.best, ops=kept), fewer=True)

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
        result = self._rerun(candidate, self.build)
        if result is None or result.violation is None:
            return False
        if broken_by(result.violation.code, result.violation.message) != self.broken:
            return False
        trace = result.trace(candidate)
        now, then = self._size(trace), self._size(self.best)
        if now > then or (fewer and now == then) or not self.silent_below(trace):
            return False
        self.best, self.violation = trace, result.violation
        return True

    def _rerun(self, trace: Trace, build: Build) -> Rerun | None:
        """What becomes of ``trace``; ``None`` for values that do not go together."""
        try:
            with patience():
                result = rerun(trace, build, consult=self.consult)
        except (ValueError, KeyError):
            return None
        except Hang:  # before the first op
            self.runs = self.most
            return None
        if result.violation is not None and result.violation.code == HANG:
            self.runs = self.most  # others would hang as well
        self.ops += len(result.ops) + 4
        return result

    @staticmethod
    def _size(trace: Trace) -> tuple[int, int, int]:
        return requests_of(trace), disturbances_of(trace), len(trace.ops)
