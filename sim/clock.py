"""When things happened: the simulated clock beside the event log, in integer nanoseconds. No digest covers it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

STEP_FIELDS = ("iteration", "dispatch_ns", "start_ns", "finish_ns", "settle_ns")


@dataclass(frozen=True, slots=True)
class Clock:
    """Times of one worker.

    ``steps`` holds a row of :data:`STEP_FIELDS` for each settled plan: when the host dispatched it, when the device
    began and ended it, when the host settled it. ``marks`` holds pairs of a place in the worker's log of decisions and
    a time: records from that place on, up to the place of the next pair, were made at that time. ``batches`` holds a
    pair for each row of ``steps``: how many generation rows the plan had, and how many prompt tokens.
    """

    steps: array[int] = field(default_factory=lambda: array("q"))
    batches: array[int] = field(default_factory=lambda: array("q"))
    marks: array[int] = field(default_factory=lambda: array("q"))

    def settled(self, times: tuple[int, int, int, int, int], rows: int, tokens: int) -> None:
        """A plan of ``rows`` generation rows and ``tokens`` of prompts was settled; ``times``: :data:`STEP_FIELDS`."""
        self.steps.extend(times)
        self.batches.extend((rows, tokens))

    def mark(self, place: int, now_ns: int) -> None:
        """Records from ``place`` on are made at ``now_ns``."""
        self.marks.fromlist([place, now_ns])
