"""Combination of the partial results of split attention, in Triton.

Partials are ``[queries, heads, splits, D]`` float32, already normalised, with their base-2 log-sum-exp
``[queries, heads, splits]``. A split that saw nothing has a partial of zeros and a weight of minus infinity.
With ``EARLY`` the kernel is launched while the attention still runs, and waits for it here (programmatic dependent
launch).
"""

# pyright: reportOperatorIssue=false
# The types of a kernel are Triton's, not Python's.

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait


@triton.jit(do_not_specialize=["splits"])
def combine_tree_kernel(
    part_ptr, weight_ptr, out_ptr, splits, D: tl.constexpr, WIDTH: tl.constexpr, EARLY: tl.constexpr
):
    """All splits at once; grid ``(queries * heads,)``, ``WIDTH`` a power of two of at least ``splits``."""
    if EARLY:
        gdc_wait()
    place = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, WIDTH)
    dim = tl.arange(0, D)
    weight = tl.load(weight_ptr + place * splits + split, mask=split < splits, other=float("-inf"))
    peak = tl.max(weight, 0)
    share = tl.exp2(weight - tl.where(peak == float("-inf"), 0.0, peak))
    inside = (split < splits)[:, None]
    part = tl.load(part_ptr + (place * splits + split)[:, None] * D + dim[None, :], mask=inside, other=0.0)
    total = tl.sum(share, 0)
    result = tl.sum(part * share[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(out_ptr + place * D + dim, result.to(out_ptr.dtype.element_ty))


@triton.jit(do_not_specialize=["splits"])
def combine_ordered_kernel(part_ptr, weight_ptr, out_ptr, splits, D: tl.constexpr, EARLY: tl.constexpr):
    """Splits one by one in ascending order; grid ``(queries * heads,)``.

    Splits that saw nothing add exact zeros, so the bits do not depend on how many of them there are.
    """
    if EARLY:
        gdc_wait()
    place = tl.program_id(0).to(tl.int64)
    dim = tl.arange(0, D)
    only = tl.arange(0, 1)
    peak = tl.full([1], float("-inf"), tl.float32)
    for split in range(splits):
        peak = tl.maximum(peak, tl.load(weight_ptr + place * splits + split + only))
    peak = tl.where(peak == float("-inf"), 0.0, peak)
    acc = tl.zeros([D], tl.float32)
    total = tl.zeros([1], tl.float32)
    for split in range(splits):
        weight = tl.load(weight_ptr + place * splits + split + only)
        share = tl.exp2(weight - peak)
        acc += tl.load(part_ptr + (place * splits + split) * D + dim) * share
        total += share
    result = acc / tl.where(total > 0, total, 1.0)
    tl.store(out_ptr + place * D + dim, result.to(out_ptr.dtype.element_ty))
