"""What a step left on the device, kept there until the world settles it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from gpu_backend.replay.columns import DeviceColumn
from gpu_backend.replay.full import AttentionProbe
from gpu_backend.replay.journal import Journal
from gpu_backend.replay.memory import DeviceMemory
from gpu_backend.replay.reads import ReadCheck
from gpu_backend.replay.records import RecordRunner
from model.events import Kind
from model.plan import StepPlan

Event = tuple[Kind, tuple[int, ...]]


@dataclass(slots=True)
class Segment:
    """Events of one step (``plan``) or of records between two, and copies of what later steps will change.

    ``state`` int32 ``[4, rows]``: lengths, the drafter's lengths and bases, strange bases. ``bound`` and ``lag`` are
    the host's notes on row slots, ``accepted`` the counts that the step ran with.
    """

    plan: StepPlan | None
    accepted: tuple[int, ...]
    journal: Journal
    state: torch.Tensor
    unfinished: torch.Tensor
    findings: list[torch.Tensor]
    wrong: list[tuple[DeviceColumn, torch.Tensor]]
    bound: dict[int, int]
    lag: list[int]
    events: list[Event] = field(default_factory=list)

    def read(self) -> tuple[list[int], bool, list[list[int]]]:
        """Fetch everything in one copy: the state, whether unfinished cells were published, the columns' findings."""
        self.events, (state, unfinished, *found) = self.journal.read(self.state, self.unfinished, *self.findings)
        return state, bool(unfinished[0]), found


def close(
    memory: DeviceMemory,
    records: RecordRunner,
    reads: ReadCheck,
    probe: AttentionProbe | None,
    plan: StepPlan | None,
    accepted: tuple[int, ...],
) -> Segment:
    """End a segment: what happened since the last one, as the device has it now."""
    rows = memory.rows
    journal, memory.journal = memory.journal, Journal()
    unfinished = records.unfinished.clone()
    records.unfinished.zero_()
    wrong = []
    if probe is not None:
        wrong, probe.wrong = probe.wrong, []
    return Segment(
        plan,
        accepted,
        journal,
        torch.stack([rows.length, rows.drafter.length, rows.drafter.base, reads.strange]),
        unfinished,
        [findings.tensors() for findings in memory.findings] if plan is not None else [],
        wrong,
        dict(memory.bound),
        list(rows.lag),
    )
