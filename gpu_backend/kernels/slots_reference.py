"""Torch reference of the slot updates."""

from __future__ import annotations

from gpu_backend.calls import SlotCall, SlotOp
from model.geometry import cdiv, floor_to


def slots_reference(call: SlotCall) -> None:
    """Carry out ``call``, one update after the other."""
    slots, page = call.slots, call.page_size
    updates = zip(call.op.tolist(), call.slot.tolist(), call.value.tolist(), call.place.tolist(), strict=True)
    for number, slot, value, place in updates:
        op = SlotOp(number)
        length, base = int(slots.length[slot]), int(slots.base[slot])
        if op is SlotOp.IDLE:
            continue
        if op is SlotOp.SNAPSHOT:
            slots.saved_length[slot], slots.saved_base[slot] = length, base
            continue
        if op is SlotOp.PARK:
            slots.parked[place] = base
        after = {
            SlotOp.ADVANCE: (base, length + value),
            SlotOp.PLACE: (0, value),
            SlotOp.SEED_PAGE: (value // page, floor_to(value, page)),
            SlotOp.SEED_POSITION: (cdiv(value, page), value),
            SlotOp.HIDE: (value // page, value),
            SlotOp.PARK: (0, 0),
            SlotOp.RESUME: (int(slots.parked[place]) if value else 0, value),
            SlotOp.ROLLBACK: (int(slots.saved_base[slot]), int(slots.saved_length[slot])),
        }[op]
        slots.base[slot], slots.length[slot] = after[0], min(after[1], call.longest)
