"""ADMIT and ROLLBACK of a warm-up: the estimate is what the dummies take, and a failure gives everything back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model.eviction import DROPPABLE
from model.invariants.base import Docket, Violation

if TYPE_CHECKING:
    from model.engine import Engine
    from model.warmup import Warmed

Slots = tuple[list[int], dict[int, int], dict[int, int], dict[int, int]]


class WarmupLaws:
    """Judge of one engine's warm-ups, from the states of its pools and the tables of the dummies."""

    def __init__(self, engine: Engine, docket: Docket) -> None:
        self.engine, self.docket = engine, docket
        self._before: dict[str, int] = {}
        self._slots: Slots = ([], {}, {}, {})

    def _held(self) -> dict[str, int]:
        """Pages by pool that somebody holds."""
        pools = self.engine.twin.pools
        return {name: sum(state > DROPPABLE for state in pool.state) for name, pool in pools.items()}

    def _row_slots(self) -> Slots:
        saved = self.engine.slots.snapshot()
        return (list(saved.free), dict(saved.slot_of), dict(saved.base), dict(saved.parked))

    def remember(self) -> None:
        """A warm-up is about to begin."""
        self._before, self._slots = self._held(), self._row_slots()

    def began(self, warmed: Warmed) -> None:
        """Its dummies were added, or not: what was admitted has its pages, and a failure left none taken."""
        if warmed.plan is None:
            if warmed.admitted:
                self.docket.count("ADMIT")
                if not self._gate_shuts(warmed):
                    self._report("ADMIT", "a warm-up that was estimated to fit found no pages", warmed.need, warmed.why)
            self._given_back("a warm-up that failed half way kept pages")
            return
        self.docket.count("ADMIT")
        taken = {name: held - self._before[name] for name, held in self._held().items()}
        if taken != warmed.need:
            self._report("ADMIT", "a warm-up took other pages than were estimated", warmed.need, _words(taken))

    def _gate_shuts(self, warmed: Warmed) -> bool:
        """Whether all but the last dummy fill some pool above the resume gate, which the last one then cannot pass."""
        limit, others = self.engine.config.limits.max_util_for_resume, warmed.batch - 1
        return any(
            self._before[name] + pages * others // warmed.batch > limit * self.engine.twin.pools[name].device_pages
            for name, pages in warmed.need.items()
        )

    def ended(self) -> None:
        """It is over: pages and row slots are as before."""
        self._given_back("a warm-up that is over kept pages")
        if self._row_slots() != self._slots:
            self._report("ROLLBACK", "a warm-up changed the row slots", {}, "other slots")

    def _given_back(self, message: str) -> None:
        self.docket.count("ROLLBACK")
        held = self._held()
        if held != self._before:
            self._report("ROLLBACK", message, self._before, _words(held))

    def _report(self, code: str, message: str, expected: dict[str, int], found: str) -> None:
        pool = self.engine.twin.columns[0].pool.name
        step = self.engine.iteration
        self.docket.report(Violation(code, message, -1, pool, step=step, expected=_words(expected), found=found))


def _words(pages: dict[str, int]) -> str:
    return ", ".join(f"{count} pages of {name}" for name, count in pages.items()) or "as before"
