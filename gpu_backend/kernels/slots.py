"""Updates of drafter slots on the device: length, base, seed, park, resume, snapshot and rollback."""

from __future__ import annotations

import triton
import triton.language as tl

from gpu_backend.calls import SlotCall
from gpu_backend.kernels.launch import Launch
from model.geometry import cdiv


@triton.jit(do_not_specialize=["updates", "page_size", "longest"])
def slots_kernel(
    length_ptr, base_ptr, saved_length_ptr, saved_base_ptr, parked_ptr, op_ptr, slot_ptr, value_ptr, place_ptr,
    updates, page_size, longest, BLOCK: tl.constexpr,
):  # fmt: skip
    """``BLOCK`` updates; grid ``(cdiv(updates, BLOCK),)``. Numbers are those of ``calls.SlotOp``."""
    update = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    op = tl.load(op_ptr + update, mask=update < updates, other=0)
    active = op > 0
    slot = tl.load(slot_ptr + update, mask=active, other=0)
    value = tl.load(value_ptr + update, mask=active, other=0)
    place = tl.load(place_ptr + update, mask=(op == 6) | (op == 7), other=0)
    length = tl.load(length_ptr + slot, mask=active, other=0)
    base = tl.load(base_ptr + slot, mask=active, other=0)
    parked = tl.load(parked_ptr + place, mask=op == 7, other=0)
    saved_length = tl.load(saved_length_ptr + slot, mask=op == 9, other=0)
    saved_base = tl.load(saved_base_ptr + slot, mask=op == 9, other=0)
    tl.store(parked_ptr + place, base, mask=op == 6)
    tl.store(saved_length_ptr + slot, length, mask=op == 8)
    tl.store(saved_base_ptr + slot, base, mask=op == 8)
    page = value // page_size
    new_length = tl.where(op == 1, length + value, value)
    new_length = tl.where(op == 3, page * page_size, new_length)
    new_length = tl.where(op == 6, 0, new_length)
    new_length = tl.where(op == 9, saved_length, new_length)
    new_base = tl.where(op == 1, base, 0)
    new_base = tl.where((op == 3) | (op == 5), page, new_base)
    new_base = tl.where(op == 4, tl.cdiv(value, page_size), new_base)
    new_base = tl.where((op == 7) & (value > 0), parked, new_base)
    new_base = tl.where(op == 9, saved_base, new_base)
    written = active & (op != 8)
    tl.store(length_ptr + slot, tl.minimum(new_length, longest), mask=written)
    tl.store(base_ptr + slot, new_base, mask=written)


def slots_launch(call: SlotCall, block: int = 128) -> Launch:
    """The launch of ``call``."""
    slots = call.slots
    arguments = (
        slots.length, slots.base, slots.saved_length, slots.saved_base, slots.parked, call.op, call.slot, call.value,
        call.place, len(call.op), call.page_size, call.longest,
    )  # fmt: skip
    grid = (cdiv(len(call.op), block),)
    return Launch("slots", slots_kernel, grid, arguments, {"BLOCK": block, "num_warps": 4})
