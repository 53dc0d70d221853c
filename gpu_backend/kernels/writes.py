"""Judge of writes: whether each cell that is about to be written has a page, which its row holds and nobody sealed."""

# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportAttributeAccessIssue=false
# The types of a kernel are Triton's, not Python's.

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_backend.calls import WriteCall
from gpu_backend.kernels.launch import Launch
from model.geometry import cdiv


@triton.jit(do_not_specialize=["cells", "columns", "table_stride"])
def writes_kernel(
    slot_ptr, position_ptr, given_ptr, table_ptr, owner_ptr, tenant_ptr, sealed_ptr, counts_ptr, first_ptr, cells,
    columns, table_stride, PAGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``BLOCK`` cells; grid ``(cdiv(cells, BLOCK),)``. A clean program writes nothing."""
    cell = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = cell < cells
    given = inside & (tl.load(given_ptr + cell, mask=inside, other=0) != 0)
    slot = tl.load(slot_ptr + cell, mask=given, other=0)
    position = tl.load(position_ptr + cell, mask=given, other=0)
    block = tl.where(position < 0, -1, position // PAGE)
    reached = given & (block >= 0) & (block < columns)
    page = tl.load(table_ptr + slot * table_stride + block, mask=reached, other=-1).to(tl.int64)
    backed = given & (page > 0)
    tenant = tl.load(tenant_ptr + page - 1, mask=backed, other=0)
    owner = tl.load(owner_ptr + slot, mask=backed, other=0)
    until = tl.load(sealed_ptr + page - 1, mask=backed, other=0)
    missing = given & (page <= 0)
    foreign = backed & (tenant != owner)
    sealed = backed & (tenant == owner) & (position % PAGE < until)
    wrong = missing | foreign | sealed
    if tl.max(wrong.to(tl.int32), 0) > 0:
        tl.atomic_add(counts_ptr + 0, tl.sum(missing.to(tl.int32), 0))
        tl.atomic_add(counts_ptr + 1, tl.sum(foreign.to(tl.int32), 0))
        tl.atomic_add(counts_ptr + 2, tl.sum(sealed.to(tl.int32), 0))
        place = (slot << 32) | tl.maximum(position, 0)
        tl.atomic_min(first_ptr, tl.min(tl.where(wrong, place, 9223372036854775807), 0))


def writes_launch(call: WriteCall, block: int = 128) -> Launch:
    """The launch of ``call``."""
    cells = len(call.slot)
    arguments = (
        call.slot, call.position, call.given.view(torch.uint8), call.table, call.owner, call.tenant, call.sealed,
        call.counts, call.first, cells, call.table.shape[1], call.table.stride(0),
    )  # fmt: skip
    constants = {"PAGE": call.page_size, "BLOCK": block, "num_warps": 4}
    return Launch("writes", writes_kernel, (cdiv(cells, block),), arguments, constants)
