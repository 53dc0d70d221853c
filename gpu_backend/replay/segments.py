"""What a step left on the device, kept there until the world settles it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_backend.replay.columns import DeviceColumn
from gpu_backend.replay.full import AttentionProbe
from gpu_backend.replay.journal import Journal
from gpu_backend.replay.memory import DeviceMemory
from gpu_backend.replay.reads import ReadCheck
from gpu_backend.replay.records import RecordRunner
from model.plan import StepPlan


class Left(NamedTuple):
    """What a segment left: its events as bytes of a channel and how many, :func:`slots_state` int64 ``[4, rows]``,
    whether unfinished cells were published, the columns' findings. Empty where nothing was queued."""

    stream: bytes
    events: int
    state: NDArray[np.int64]
    unfinished: bool
    found: list[list[int]]


@dataclass(slots=True)
class Segment:
    """Events of one step (``plan``) or of records between two, and copies of what later steps will change.

    ``bound`` and ``lag`` are the host's notes on row slots, ``accepted`` the counts that the step ran with.
    """

    plan: StepPlan | None
    accepted: tuple[int, ...]
    journal: Journal
    wrong: list[tuple[DeviceColumn, torch.Tensor]]
    bound: dict[int, int]
    lag: list[int]

    def read(self) -> Left:
        """Read back what was queued, once."""
        stream, events, behind = self.journal.read()
        if not behind:
            return Left(stream, events, np.zeros((4, 0), dtype=np.int64), False, [])
        state, unfinished, *found = behind
        return Left(stream, events, state.reshape(4, -1), bool(unfinished[0]), [one.tolist() for one in found])


def slots_state(memory: DeviceMemory, reads: ReadCheck) -> torch.Tensor:
    """Lengths, the drafter's lengths and bases, strange bases; int32 ``[4, rows]``."""
    rows = memory.rows
    return torch.stack([rows.length, rows.drafter.length, rows.drafter.base, reads.strange])


def close(
    memory: DeviceMemory,
    records: RecordRunner,
    reads: ReadCheck,
    probe: AttentionProbe | None,
    plan: StepPlan | None,
    accepted: tuple[int, ...],
    *,
    told: bool = False,
) -> Segment:
    """End a segment: what happened since the last one, as the device has it now.

    ``told``: the journal has the state and the findings already.
    """
    journal, memory.journal = memory.journal, Journal()
    if memory.checks and not told:
        journal.behind(journal.keep(slots_state(memory, reads)))
        journal.behind(journal.keep(records.unfinished.clone()))
        records.unfinished.zero_()
        for findings in memory.findings if plan is not None else ():
            journal.behind(journal.keep(findings.tensors()))
    journal.queue()
    wrong = []
    if probe is not None:
        wrong, probe.wrong = probe.wrong, []
    return Segment(plan, accepted, journal, wrong, dict(memory.bound), list(memory.rows.lag))
