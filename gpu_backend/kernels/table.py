"""Extent, rebase and conversion of block tables: the differential twin of the attention kernel's own base."""

from __future__ import annotations

import triton
import triton.language as tl

from gpu_backend.calls import ConvertCall
from gpu_backend.kernels.launch import Launch
from model.geometry import cdiv
from model.rules.device import Extent, Unbacked

EXTENT_BLOCK = 4096


@triton.jit(do_not_specialize=["table_stride", "columns"])
def extent_kernel(table_ptr, extent_ptr, table_stride, columns, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Extent of one row; grid ``(rows,)``. ``COUNT``: the number of backed entries, else one past the last of them."""
    row = tl.program_id(0)
    extent = tl.zeros([BLOCK], tl.int32)
    for begin in range(0, columns, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        page = tl.load(table_ptr + row.to(tl.int64) * table_stride + column, mask=column < columns, other=-1)
        if COUNT:
            extent += (page >= 0).to(tl.int32)
        else:
            extent = tl.maximum(extent, tl.where(page >= 0, column + 1, 0))
    tl.store(extent_ptr + row, tl.sum(extent, 0) if COUNT else tl.max(extent, 0))


@triton.jit(do_not_specialize=["table_stride", "out_stride", "columns", "out_columns", "scale"])
def convert_kernel(
    table_ptr, out_ptr, base_ptr, extent_ptr, table_stride, out_stride, columns, out_columns, scale,
    GUARDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``BLOCK`` entries of one rebased row; grid ``(rows, cdiv(out_columns, BLOCK))``."""
    row = tl.program_id(0)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    column = tl.load(base_ptr + row) + place
    inside = (column < tl.load(extent_ptr + row)) & (column < columns)
    page = tl.load(table_ptr + row.to(tl.int64) * table_stride + column, mask=inside, other=-1)
    unit = tl.where(page >= 0, page * scale, -1 if GUARDED else 0)
    unit = tl.where(inside, unit, -1)
    tl.store(out_ptr + row.to(tl.int64) * out_stride + place, unit, mask=place < out_columns)


def convert_launches(call: ConvertCall, block: int = 1024, warps: int = 4) -> list[Launch]:
    """The launches of ``call``: the rows' extents, then their entries."""
    rows, columns = call.table.shape
    extent = Launch(
        "table extent",
        extent_kernel,
        (rows,),
        (call.table, call.extent, call.table.stride(0), columns),
        {"COUNT": call.extent_rule is Extent.COUNT, "BLOCK": EXTENT_BLOCK, "num_warps": 8},
    )
    width = call.out.shape[1]
    arguments = (
        call.table, call.out, call.base, call.extent, call.table.stride(0), call.out.stride(0), columns, width,
        call.scale,
    )  # fmt: skip
    constants = {"GUARDED": call.unbacked is Unbacked.GUARD, "BLOCK": block, "num_warps": warps}
    return [extent, Launch("table", convert_kernel, (rows, cdiv(width, block)), arguments, constants)]
