"""What a run leaves: records, timings, totals, violations, digests, missed expectations. No wall clock in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from model.config import EngineConfig
from model.engine import PoolUse
from model.events import EventLog
from model.invariants import Violation
from model.ops import At, Op
from model.request import RequestRecord, Totals
from sim.clock import Clock
from sim.summary import latencies, speculation, step_times, throughput, window_coverage
from sim.ticket import RequestTiming

FINE, BROKEN, NOTHING_CHECKED = 0, 1, 3  # exit codes


@dataclass(frozen=True, slots=True)
class RunResult:
    """One scenario run on one build. Lists are ordered by request number; times are simulated nanoseconds.

    ``config`` is what the engine was given. Of several workers it is worker 0's; requests and totals are those of all,
    ``occupancy`` names a pool ``POOL@WORKER``, and there is an event log in ``logs`` for each.
    ``acceptance_mode`` is ``forced`` or ``modelled``, or ``recorded`` where a trace of ops gave the counts: no
    acceptance length of a run is measured. ``checked`` counts evaluations per law.
    ``missed`` has one line for each expectation that the run missed; ``notes`` what a reader must know, such as
    disturbances that hit nothing.
    ``timings`` and ``clocks`` (one for each log) are empty and ``duration_ns`` 0 for a replay of ops, which has no
    clock. An ``interrupted`` run holds what was found up to then: no end-of-run laws, no expectations, no digests.
    """

    scenario: str
    build: str
    seed: int
    check: str
    config: EngineConfig
    acceptance: str
    acceptance_mode: str
    records: list[RequestRecord]
    timings: list[RequestTiming]
    totals: Totals
    occupancy: list[PoolUse]
    violations: list[Violation]
    checked: dict[str, int]
    decision_digest: str
    memory_digest: str
    missed: list[str]
    notes: list[str]
    duration_ns: int
    device_busy_ns: int
    interrupted: bool = False
    ops: list[At | Op] = field(default_factory=list)
    logs: list[EventLog] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)

    @property
    def drafts(self) -> int:
        """K, the drafts that a verify step verifies."""
        return self.config.drafter.drafts

    @property
    def nothing_checked(self) -> bool:
        """Whether no law was evaluated: such a run shows nothing and must not pass."""
        return not any(self.checked.values())

    @property
    def exit_code(self) -> int:
        """0 fine, 1 a law broken or an expectation missed, 3 nothing was checked.

        A law that the scenario expects to break counts as met. An interrupted run shows what broke, never that
        nothing did.
        """
        if self.missed or (self.interrupted and self.violations):
            return BROKEN
        if self.interrupted:
            return NOTHING_CHECKED
        return NOTHING_CHECKED if self.nothing_checked else FINE

    def whole(self) -> RunResult:
        """This result, if the run came to its end; raises KeyboardInterrupt where Ctrl-C cut it."""
        if self.interrupted:
            raise KeyboardInterrupt
        return self

    @property
    def codes(self) -> list[str]:
        """Codes of the laws that broke, each once, sorted."""
        return sorted({violation.code for violation in self.violations})

    def hits(self) -> set[int]:
        """Numbers of the requests that claimed cached tokens."""
        return {record.request_id for record in self.records if record.cached_tokens > 0}

    def _coverage(self) -> dict[str, float | None]:
        """Coverage of the drafter's window; unknown where no memory was kept."""
        return window_coverage(self.timings if self.check != "off" else [], self.hits())

    def summary(self) -> dict[str, Any]:
        """Latencies by AIPerf's names (all, first turns, continuations), throughput, speculation, coverage, steps."""
        first = [timing for timing in self.timings if timing.turn == 0]
        later = [timing for timing in self.timings if timing.turn > 0]
        return {
            "all": latencies(self.timings),
            "first_turns": latencies(first),
            "continuation_turns": latencies(later),
            **throughput(self.timings, self.duration_ns),
            "acceptance_mode": self.acceptance_mode,
            "speculation": speculation(self.timings, self.drafts),
            "drafter_window_coverage": self._coverage(),
            "step_times": step_times(self.clocks),
            "duration_s": self.duration_ns / 1e9,
            "device_busy_share": self.device_busy_ns / self.duration_ns if self.duration_ns else 0.0,
        }
