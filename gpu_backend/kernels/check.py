"""Check of tags, states and page generations before a forward reads them: the judge of the device's memory.

It is a kernel of its own because fused into the attention it would cost a quarter of every layer; alone it runs once
per pool and step. A clean run writes nothing.
"""

# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportAttributeAccessIssue=false
# The types of a kernel are Triton's, not Python's.

from __future__ import annotations

import triton
import triton.language as tl

from gpu_backend.calls import CheckCall
from gpu_backend.kernels.launch import Launch
from gpu_backend.kernels.tiles import power_of_two
from model.geometry import cdiv


@triton.jit
def _entry(table_ptr, claimed_ptr, column, columns):
    """Page behind ``column`` of one row (-1: none) and the generation at which the row claimed it, ``[1]`` each."""
    column = column + tl.arange(0, 1)
    page = tl.load(table_ptr + column, mask=column < columns, other=-1).to(tl.int64)
    claimed = tl.load(claimed_ptr + column, mask=column < columns, other=0)
    return page, claimed


@triton.jit
def _findings(
    page, claimed, tags_ptr, states_ptr, generation_ptr, expected_ptr, least, most, block, start, end, legal,
    PAGE: tl.constexpr, CELLS: tl.constexpr, LAGGED: tl.constexpr,
):  # fmt: skip
    """Positions of one page, and which are unbacked, of another tenancy, in an unlawful state, of other content."""
    cell = tl.arange(0, CELLS)
    position = block * PAGE + cell
    read = (position >= start) & (position < end) & (cell < PAGE)
    backed = read & (page >= 0)
    generation = tl.load(generation_ptr + page, mask=page >= 0, other=0)
    told = read & (position >= least) & (position < most) if LAGGED else read
    expected = tl.load(expected_ptr + position, mask=told, other=0)
    tag = tl.load(tags_ptr + page * PAGE + cell, mask=backed, other=0)
    state = tl.load(states_ptr + page * PAGE + cell, mask=backed, other=0).to(tl.int32)
    stranger = backed & (generation != claimed)
    unlawful = backed & (((legal >> state) & 1) == 0)
    return position, read & (page < 0), stranger, unlawful, backed & (tag != expected)


@triton.jit
def _report(counts_ptr, first_ptr, row, position, missing, stranger, unlawful, other):
    """Count what is wrong with one page, each slot for its first reason, and keep the smallest row and position."""
    tl.atomic_add(counts_ptr + 0, tl.sum(missing.to(tl.int32), 0))
    tl.atomic_add(counts_ptr + 1, tl.sum(stranger.to(tl.int32), 0))
    tl.atomic_add(counts_ptr + 2, tl.sum((unlawful & (stranger == 0)).to(tl.int32), 0))
    tl.atomic_add(counts_ptr + 3, tl.sum((other & (stranger == 0) & (unlawful == 0)).to(tl.int32), 0))
    first = tl.min(tl.where(missing | stranger | unlawful | other, position, 2147483647), 0)
    found = tl.where(first < 2147483647, (row << 32) | first.to(tl.int64), 9223372036854775807)
    tl.atomic_min(first_ptr, found)


@triton.jit(do_not_specialize=["columns", "table_stride", "generation_stride", "legal", "tokens"])
def check_kernel(
    tags_ptr, states_ptr, generation_ptr, expected_tag_ptr, expected_generation_ptr, table_ptr, base_ptr, start_ptr,
    end_ptr, lag_ptr, counts_ptr, first_ptr, table_stride, columns, tag_stride, generation_stride, legal, tokens,
    PAGE: tl.constexpr, CELLS: tl.constexpr, PAGES: tl.constexpr, ORIGIN: tl.constexpr, LAGGED: tl.constexpr,
):  # fmt: skip
    """``PAGES`` pages of one row; grid ``(rows, pages)``, pages counted from the one of the row's first position.

    The time is that of a chain of dependent loads, so what can be loaded at once is: the table before the row's end is
    known, all slots of the pages together. Only "anything wrong?" is kept; what is wrong is found in a second look,
    which a clean run never takes. ``ORIGIN``: bases and starts are 0 and not read.
    """
    row = tl.program_id(0).to(tl.int64)
    base = 0 if ORIGIN else tl.load(base_ptr + row)
    start = 0 if ORIGIN else tl.load(start_ptr + row)
    end = tl.load(end_ptr + row)
    block = start // PAGE + tl.program_id(1) * PAGES
    table = table_ptr + row * table_stride + base
    tenancy = expected_generation_ptr + row * generation_stride + base
    shift = base * PAGE + (tl.load(lag_ptr + row) if LAGGED else 0)
    content = expected_tag_ptr + row * tag_stride + shift
    least, most = -shift, tokens - shift
    pages = ()
    for place in tl.static_range(PAGES):
        pages = pages + (_entry(table, tenancy, block + place, columns - base),)  # noqa: RUF005 (a kernel cannot unpack)
    if block * PAGE < end:
        wrong = tl.zeros([CELLS], tl.int32)
        for place in tl.static_range(PAGES):
            _, missing, stranger, unlawful, other = _findings(
                pages[place][0], pages[place][1], tags_ptr, states_ptr, generation_ptr, content, least, most,
                block + place, start, end, legal, PAGE, CELLS, LAGGED,
            )  # fmt: skip
            wrong |= (missing | stranger | unlawful | other).to(tl.int32)
        if tl.max(wrong, 0) > 0:
            for again in range(PAGES):
                page, claimed = _entry(table, tenancy, block + again, columns - base)
                position, missing, stranger, unlawful, other = _findings(
                    page, claimed, tags_ptr, states_ptr, generation_ptr, content, least, most, block + again, start,
                    end, legal, PAGE, CELLS, LAGGED,
                )  # fmt: skip
                _report(counts_ptr, first_ptr, row, position, missing, stranger, unlawful, other)


def check_launch(call: CheckCall, longest: int, pages: int = 2, warps: int = 4) -> Launch:
    """The launch of ``call``, for rows that are checked on at most ``longest`` positions; ``pages`` a program."""
    verdict, page_size = call.verdict, call.cells.tags.shape[1]
    arguments = (
        call.cells.tags, call.cells.states, call.generation, call.expected_tag, call.expected_generation, call.table,
        call.base, call.start, call.end, call.base if call.lag is None else call.lag, verdict.counts, verdict.first,
        call.table.stride(0), call.table.shape[1], call.expected_tag.stride(0), call.expected_generation.stride(0),
        call.legal, call.expected_tag.shape[1],
    )  # fmt: skip
    constants = {
        "PAGE": page_size,
        "CELLS": power_of_two(page_size),
        "PAGES": pages,
        "ORIGIN": call.from_origin,
        "LAGGED": call.lag is not None,
        "num_warps": warps,
    }
    blocks = cdiv(longest - 1, page_size) + 1 if longest else 0  # a range may start inside a page
    return Launch("check", check_kernel, (len(call.start), cdiv(blocks, pages)), arguments, constants)
