"""A run on a hit beside its cold run: which accept traces are owed to be equal, which are, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gpu_backend.acceptance.metrics import Ints, first_steps, sums
from gpu_backend.al.measure import Run
from gpu_backend.al.order import (
    BROKEN,
    CORRECT,
    COSTS,
    DECLARED,
    FREE,
    GAINS,
    IDENTICAL,
    JUDGED,
    NOISE,
    REFUSED,
    RESTARTED,
)
from model.builds import DEFAULT_BUILD, Build
from model.rules.layout import Shape
from sim.intervals import Interval, Resampling, ratio

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Arm:
    """One condition on one build. ``run`` is ``None`` where ``error`` says why it could not end.

    ``sound`` is the default build's own hit, where it was measured. What a wrong rule costs is told beside it: without
    exact mode a hit computes its prompt in other batches than the cold run, which costs or gives something by itself.

    By hit, bool ``[hits]``: ``same`` accept trace as cold, ``same_output``, ``owed`` to be equal. Correct builds owe it
    in exact mode, unless the request was preempted, which drops its drafts, or its slot openly hides a part of the
    window, as builds may that do not pair their pools or do not send the drafter's pages along.
    """

    condition: str
    build: str
    kind: str
    run: Run | None
    cold: Run
    same: Flags
    same_output: Flags
    owed: Flags
    restarted: Flags  # preempted, so that drafts were dropped
    error: str = ""
    sound: Run | None = None

    @property
    def broken(self) -> list[str]:
        """Laws that the run breaks, AL and LOSSLESS, with the first hit that shows it."""
        found = []
        for code, same in (("AL", self.same), ("LOSSLESS", self.same_output)):
            wrong = np.flatnonzero(self.owed & ~same)
            if len(wrong):
                what = "accept traces" if code == "AL" else "outputs"
                found.append(
                    f"{code}: {len(wrong)} of {int(self.owed.sum())} {what} are not the cold ones, first hit {wrong[0]}"
                )
        if self.error and self.kind == CORRECT:
            found.append(f"PROGRESS: {self.error}")
        return found

    def change(self, within: int | None, seed: int = 0) -> Interval | None:
        """AL on the hit over AL cold, pooled over hits, with a paired bootstrap over them; None without steps."""
        return self._over(self.cold, within, seed)

    def _over(self, base: Run, within: int | None, seed: int = 0) -> Interval | None:
        if self.run is None:
            return None
        pair = [sums(run.measured.steps, run.measured.requests, within) for run in (base, self.run)]
        return _ratio([(one.committed, one.steps) for one in pair], seed)

    def first_change(self, seed: int = 0) -> Interval | None:
        """The same of what the first step of real drafts commits, of which a hit's newest cells decide."""
        return self._firsts_over(self.cold, seed)

    def _firsts_over(self, base: Run, seed: int = 0) -> Interval | None:
        if self.run is None:
            return None
        pair = [first_steps(run.measured.steps, run.measured.requests) for run in (base, self.run)]
        return _ratio([(one, (one > 0).astype(np.int64)) for one in pair], seed)

    @property
    def verdict(self) -> str:
        """One of the words above."""
        if self.run is None:
            return BROKEN if self.kind == CORRECT else REFUSED
        if self.broken:
            return BROKEN
        if self.kind == CORRECT:
            if self.run.hidden.any():
                return DECLARED
            return IDENTICAL if self.same.all() else RESTARTED if self.owed.any() else NOISE
        base = self.cold if self.sound is None else self.sound
        if (_same(self.run, base) | self.restarted).all():
            return FREE
        told = (*(self._over(base, within) for within in JUDGED), self._firsts_over(base))
        changes = [change for change in told if change is not None]
        if any(change.high < 1 for change in changes):
            return COSTS
        return GAINS if any(change.low > 1 for change in changes) else NOISE


def _ratio(pair: list[tuple[Ints, Ints]], seed: int) -> Interval | None:
    """Sums over sums of two runs of the same hits, the second over the first; None where one has no step."""
    if not all(below.sum() for _, below in pair):
        return None
    resampling = _resampling(len(pair[0][0]), seed)
    return ratio(*(resampling.mean(above, below) for above, below in pair))


@lru_cache(maxsize=4)
def _resampling(hits: int, seed: int) -> Resampling:
    """Draws over so many hits, the same ones for every figure."""
    return Resampling(np.arange(hits), seed)


def arm(condition: str, build: Build, kind: str, cold: Run, run: Run | None, *, exact: bool, error: str = "") -> Arm:
    """Put a run beside its cold one."""
    hits = cold.measured.requests
    nothing = np.zeros(hits, dtype=np.bool_)
    if run is None:
        return Arm(condition, build.name, kind, None, cold, nothing, nothing, nothing, nothing, error)
    same = _same(run, cold)
    pairs = zip(run.measured.outputs, cold.measured.outputs, strict=True)
    same_output = np.array([one == other for one, other in pairs], dtype=np.bool_)
    preempted = np.array([record.preemptions > 0 for record in run.records], dtype=np.bool_)
    owed = ~preempted if kind == CORRECT and exact else nothing
    if may_hide(build):
        owed = owed & (run.hidden == 0)
    return Arm(condition, build.name, kind, run, cold, same, same_output, owed, preempted, error)


def beside_sound(arms: Sequence[Arm]) -> list[Arm]:
    """The same arms, each with the run of the default build under its condition, where there is one."""
    sound = {one.condition: one.run for one in arms if one.build == DEFAULT_BUILD}
    return [replace(one, sound=sound.get(one.condition)) for one in arms]


def _same(run: Run, base: Run) -> Flags:
    """Whether the accept trace of each hit is the one of ``base``, bool ``[hits]``."""
    hits = base.measured.requests
    return np.array([run.trace(place) == base.trace(place) for place in range(hits)], dtype=np.bool_)


def may_hide(build: Build) -> bool:
    """Whether a build's rules let a drafter begin with less than its window: unpaired pools, or a bare transfer."""
    return build.rules.layout.shape is Shape.SEPARATE or not build.rules.transfer.drafts


def firsts(run: Run) -> float | None:
    """Mean of what the first verify step of real drafts committed."""
    found = first_steps(run.measured.steps, run.measured.requests)
    return float(found[found > 0].mean()) if found.any() else None
