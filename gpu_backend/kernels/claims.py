"""Claims: rows take note of the generations of pages that are new to them, before they read."""

# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportAttributeAccessIssue=false
# The types of a kernel are Triton's, not Python's.

from __future__ import annotations

import triton
import triton.language as tl

from gpu_backend.calls import ClaimCall
from gpu_backend.kernels.launch import Launch
from model.geometry import cdiv


@triton.jit(do_not_specialize=["columns", "table_stride", "seen_stride"])
def claims_kernel(
    slot_ptr, table_ptr, owner_ptr, tenant_ptr, generation_ptr, seen_page_ptr, seen_generation_ptr, columns,
    table_stride, seen_stride, BLOCK: tl.constexpr,
):  # fmt: skip
    """``BLOCK`` columns of one row; grid ``(rows, cdiv(columns, BLOCK))``."""
    slot = tl.load(slot_ptr + tl.program_id(0))
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    owner = tl.load(owner_ptr + slot)
    seen = slot * seen_stride + column
    page = tl.load(table_ptr + slot * table_stride + column, mask=inside, other=-1)
    before = tl.load(seen_page_ptr + seen, mask=inside, other=-1)
    backed = inside & (page >= 0)
    own = tl.load(tenant_ptr + tl.maximum(page, 1) - 1, mask=inside, other=0) == owner
    generation = tl.load(generation_ptr + page, mask=backed, other=0)
    tl.store(seen_generation_ptr + seen, generation, mask=inside & (own | (page != before)))
    tl.store(seen_page_ptr + seen, page, mask=inside & (page != before))


def claims_launch(call: ClaimCall, block: int = 256) -> Launch:
    """The launch of ``call``."""
    columns = call.table.shape[1]
    arguments = (
        call.slot, call.table, call.owner, call.tenant, call.generation, call.seen_page, call.seen_generation, columns,
        call.table.stride(0), call.seen_page.stride(0),
    )  # fmt: skip
    grid = (len(call.slot), cdiv(columns, block))
    return Launch("claims", claims_kernel, grid, arguments, {"BLOCK": block, "num_warps": 4})
