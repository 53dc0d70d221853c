"""What checks on the device found: counts and the first place, kept there until a step's events are read."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gpu_backend.backend import Kernels
from gpu_backend.calls import Reason, Verdict, WriteCall
from gpu_backend.replay.columns import DeviceColumn
from model.invariants.base import Violation

CODES = {Reason.UNBACKED: "OWN", Reason.TENANCY: "OWN", Reason.STATE: "INIT", Reason.TAG: "KEY"}
_READ = {
    Reason.UNBACKED: "reads a position that no page backs",
    Reason.TENANCY: "reads a page that was granted anew since its row got it",
    Reason.STATE: "reads a cell without final content",
    Reason.TAG: "reads content that its own tokens do not give",
}
_WRITE = ("writes a position that no page backs", "writes a page that it does not hold", "writes a published cell")
_WRITE_CODES = ("OWN", "OWN", "PUB")


class ColumnFindings:
    """Findings of one lifecycle: reads by :class:`Verdict`, writes int32 ``[3]`` and their first ``row << 32 | p``."""

    def __init__(self, column: DeviceColumn) -> None:
        device = column.table.device
        self.column = column
        self.reads = Verdict.clean(device)
        self.writes = torch.zeros(3, dtype=torch.int32, device=device)
        self.first = torch.full((1,), Verdict.NOTHING, device=device)

    def clear(self) -> None:
        """Forget the findings."""
        self.reads.clear()
        self.writes.zero_()
        self.first.fill_(Verdict.NOTHING)

    def wrote(
        self,
        kernels: Kernels,
        slot: torch.Tensor,
        position: torch.Tensor,
        table: torch.Tensor,
        owner: torch.Tensor,
        given: torch.Tensor,
    ) -> None:
        """Judge writes of row slots at positions, int64 ``[n]``; ``owner`` is by slot, ``given`` bool ``[n]``."""
        planes = self.column.planes
        kernels.judge_writes(
            WriteCall(
                slot.contiguous(), position.contiguous(), given.contiguous(), table, owner, planes.tenant,
                planes.sealed, self.writes, self.first, planes.page_size,
            )
        )  # fmt: skip

    def tensors(self) -> torch.Tensor:
        """Everything that was found, int64 ``[9]``."""
        return torch.cat([self.reads.counts.long(), self.reads.first, self.writes.long(), self.first])


@dataclass(frozen=True, slots=True)
class Place:
    """Where a check of a step stands: its iteration and the request of each row slot."""

    step: int
    requests: dict[int, int]


def violations(found: ColumnFindings, values: list[int], at: Place, hidden: torch.Tensor) -> list[Violation]:
    """Broken laws from the ``values`` of :meth:`ColumnFindings.tensors`; ``hidden`` int32 ``[rows]`` are base pages."""
    column = found.column
    result = []
    for reason, count in zip(Reason, values[:4], strict=True):
        if count:
            row, position = values[4] >> 32, values[4] & 0xFFFF_FFFF
            shift = int(hidden[row]) * column.page_size
            result.append(_violation(column, CODES[reason], _READ[reason], (row, position + shift), count, at))
    for code, message, count in zip(_WRITE_CODES, _WRITE, values[5:8], strict=True):
        if count:
            result.append(_violation(column, code, message, (values[8] >> 32, values[8] & 0xFFFF_FFFF), count, at))
    return result


def _violation(
    column: DeviceColumn, code: str, message: str, place: tuple[int, int], count: int, at: Place
) -> Violation:
    """One finding, with what the device holds at its first place now."""
    row, position = place
    where = torch.tensor([row], device=column.table.device), torch.tensor([position], device=column.table.device)
    slot, tag = (int(value) for value in column.cell_at(*where))
    wanted = int(column.expected[row, min(position, column.tokens - 1)]) & ((1 << 64) - 1)
    return Violation(
        code,
        f"device: {column.life.name}: row slot {row} {message}",
        at.requests.get(row, -1),
        column.planes.name,
        slot,
        position,
        at.step,
        expected=f"tag {wanted:016x}",
        found=f"{count} cells, the first holds {tag & ((1 << 64) - 1):016x}",
    )
