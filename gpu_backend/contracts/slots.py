"""Contract of the slot updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gpu_backend.calls import SlotCall, SlotOp, Slots
from gpu_backend.contracts.base import Contract, Work, exact, int32, same
from gpu_backend.kernels.slots_reference import slots_reference


@dataclass(frozen=True, slots=True)
class SlotCase:
    """``updates`` are (op, slot, value, place); slots start with random contexts."""

    updates: tuple[tuple[SlotOp, int, int, int], ...]
    slots: int = 12
    page_size: int = 16
    longest: int = 500


def build(case: SlotCase, device: torch.device, seed: int) -> SlotCall:
    """Random slots."""
    source = torch.Generator().manual_seed(seed)
    columns = [torch.randint(0, 300, (case.slots,), generator=source, dtype=torch.int32) for _ in range(5)]
    slots = Slots(*(column.to(device) for column in columns))
    op, slot, value, place = (int32([int(update[i]) for update in case.updates], device) for i in range(4))
    return SlotCall(slots, op, slot, value, place, case.page_size, case.longest)


def launches(case: SlotCase, call: SlotCall) -> list[Any]:
    """The one launch."""
    from gpu_backend.kernels.slots import slots_launch

    return [slots_launch(call)]


def outputs(call: SlotCall) -> dict[str, torch.Tensor]:
    """Every column of the slots."""
    slots = call.slots
    return {
        "length": slots.length,
        "base": slots.base,
        "saved_length": slots.saved_length,
        "saved_base": slots.saved_base,
        "parked": slots.parked,
    }


def work(case: SlotCase) -> Work:
    """A few integers an update: the launch is the cost."""
    return Work(copy_bytes=32 * len(case.updates))


SLOTS = Contract(
    "slots",
    {"updates": "op, slot, value, place", "longest": "tokens a slot may hold"},
    {
        "every op": SlotCase(tuple((op, int(op), 37 + 5 * int(op), int(op)) for op in SlotOp)),
        "a new request in a used slot": SlotCase(((SlotOp.RESUME, 3, 0, 2), (SlotOp.PLACE, 4, 0, 0))),
        "on a page boundary": SlotCase(
            ((SlotOp.SEED_PAGE, 0, 64, 0), (SlotOp.SEED_POSITION, 1, 64, 0), (SlotOp.HIDE, 2, 64, 0))
        ),
        "past the longest": SlotCase(((SlotOp.ADVANCE, 1, 490, 0), (SlotOp.PLACE, 2, 900, 0))),
        "many": SlotCase(tuple((SlotOp.ADVANCE, slot, slot % 5, 0) for slot in range(200)), slots=200),
    },
    build,
    launches,
    slots_reference,
    lambda found, wanted: same(outputs(found), outputs(wanted)),
    exact,
    work,
)
