"""The decisions of one worker's event log as arrays: where each record stands, its iteration, when it was made."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model.events import FIELDS, EventLog, Kind
from sim.clock import STEP_FIELDS, Clock

Ints = NDArray[np.int64]
_IN_PASS = (Kind.CHUNK, Kind.STEP, Kind.DUMMY, Kind.PADDING)  # they follow the record of their iteration


class Decisions:
    """Records in order. ``kinds``, ``iterations`` and ``times`` have an entry for each.

    A decision outside of a pass counts to the iteration that comes next. ``steps`` are the clock's, by iteration, in
    rows of ``STEP_FIELDS``; without a clock the number of an iteration stands in for its time, and it ends with the
    next one.
    """

    def __init__(self, log: EventLog, clock: Clock | None) -> None:
        log.decisions.flush()
        self._data = np.frombuffer(b"".join(log.decisions.kept), dtype="<i8").astype(np.int64, copy=False)
        self._starts = _starts(self._data)
        self.kinds: Ints = self._data[self._starts]
        self._counts: Ints = self._data[self._starts + 1]
        self.passes = self.places(Kind.ITERATION)
        self.numbers = self.fields(Kind.ITERATION)["iteration"]
        self.iterations = self._iterations()
        self.steps = self._steps(clock)
        self.times = self.iterations if clock is None else _times(clock, len(self.kinds))
        self.end_ns = int(max([0, *self.times[-1:], *self.steps[:, 3:].max(axis=1, initial=0)[-1:]]))

    def places(self, kind: Kind) -> Ints:
        """Which records are of ``kind``."""
        return np.flatnonzero(self.kinds == kind)

    def fields(self, kind: Kind) -> dict[str, Ints]:
        """Fields of all records of ``kind`` by name, but for a list at their end."""
        at = self._starts[self.places(kind)] + 2
        names = [name for name in FIELDS[kind] if not name.endswith("..")]
        if kind is Kind.PUBLISH:  # its slots come last, where each row names one
            names.remove("slot")
        return {name: self._data[at + place] for place, name in enumerate(names)}

    def lists(self, kind: Kind, head: int) -> tuple[Ints, Ints]:
        """What follows the first ``head`` fields of the records of ``kind``, and which of them each value is of."""
        places = self.places(kind)
        lengths = self._counts[places] - head
        of = np.repeat(np.arange(len(places)), lengths)
        within = np.arange(len(of)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return self._data[self._starts[places][of] + 2 + head + within], of

    def settled(self) -> tuple[Ints, Ints]:
        """Rows of all settles (request, committed, known), and the record of each."""
        values, of = self.lists(Kind.SETTLE, 0)
        return values.reshape(-1, 3), self.places(Kind.SETTLE)[of[::3]]

    def begins(self, iterations: Ints) -> Ints:
        """When the device began these iterations."""
        return self._time_of(iterations, 2)

    def finishes(self, iterations: Ints) -> Ints:
        """When the device ended these iterations."""
        return self._time_of(iterations, 3)

    def _time_of(self, iterations: Ints, field: int) -> Ints:
        return self.steps[np.searchsorted(self.numbers, iterations), field]

    def _iterations(self) -> Ints:
        if not len(self.passes):
            return np.zeros(len(self.kinds), dtype=np.int64)
        after = np.append(self.numbers, self.numbers[-1] + 1)
        found = after[np.searchsorted(self.passes, np.arange(len(self.kinds)))]
        rows = np.isin(self.kinds, _IN_PASS)
        found[rows] = self.numbers[np.searchsorted(self.passes, np.flatnonzero(rows)) - 1]
        return found

    def _steps(self, clock: Clock | None) -> Ints:
        """Times of every plan that was logged; one that never settled has what is known of it, and -1."""
        steps = np.full((len(self.numbers), len(STEP_FIELDS)), -1, dtype=np.int64)
        steps[:, 0] = self.numbers
        if clock is None:
            steps[:, 1] = steps[:, 2] = self.numbers
            steps[:, 3] = steps[:, 4] = self.numbers + 1
            return steps
        known = np.array(clock.steps, dtype=np.int64).reshape(-1, len(STEP_FIELDS))
        steps[np.searchsorted(self.numbers, known[:, 0])] = known
        open_ones = steps[:, 4] < 0
        made = _times(clock, len(self.kinds))[self.passes[open_ones]]
        steps[open_ones, 1:4] = made[:, None]
        return steps


def _starts(data: Ints) -> Ints:
    """Where each record begins: a record is its kind, how many fields follow, and these."""
    values = data.tolist()
    starts, place, end = [], 0, len(values)
    while place < end:
        starts.append(place)
        place += values[place + 1] + 2
    return np.array(starts, dtype=np.int64)


def _times(clock: Clock, records: int) -> Ints:
    """When each record was made."""
    marks = np.array(clock.marks, dtype=np.int64).reshape(-1, 2)
    return marks[np.searchsorted(marks[:, 0], np.arange(records), side="right") - 1, 1]
