"""Paged attention in Triton: one kernel for target verify rows, context chunks and drafter blocks.

A program owns one tile of query rows of one KV head (the query heads that share it are packed into the tile) and one
split of the key range. Softmax is online, in base 2. Inside the kernel positions are absolute: a row of base page
``b`` starts at ``b * PAGE``, so the block table is indexed by ``position // PAGE`` whatever the base is.

The key range has three parts: a masked left edge, an unmasked middle, a masked right edge. Slots outside
``[start, length)`` are never touched, which is what makes poisoned memory a check. Both kinds of block use one explicit
``fma`` form, so that a row's bits do not depend on which of them a key falls into.
"""

# pyright: reportGeneralTypeIssues=false, reportArgumentType=false
# The types of a kernel are Triton's, not Python's.

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents


@triton.jit
def _key_range(row_first, row_last, start, length, window_left, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr):
    """Keys ``[low, high)`` that a tile may see, and ``[full_low, full_high)`` that all of its rows see."""
    low = start
    full_low = start
    high = length
    full_high = length
    if CAUSAL:
        high = tl.minimum(row_last + 1, length)
        full_high = tl.minimum(row_first + 1, length)
    if WINDOWED:
        low = tl.maximum(row_first - window_left, start)
        full_low = tl.maximum(row_last - window_left, start)
    return low, high, full_low, full_high


@triton.jit
def _split_range(low, high, splits, chunk_blocks, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr):
    """Key blocks ``[begin, end)`` of this program: an even share, or one chunk anchored at an absolute multiple."""
    first = low // BLOCK_N
    last = tl.maximum(tl.cdiv(high, BLOCK_N), first)
    begin = first
    end = last
    if SPLIT:
        split = tl.program_id(2)
        if chunk_blocks > 0:
            anchor = (first // chunk_blocks + split) * chunk_blocks
            begin = tl.minimum(tl.maximum(anchor, first), last)
            end = tl.minimum(tl.maximum(anchor + chunk_blocks, begin), last)
            if split == splits - 1:
                end = last  # longer rows than planned stay right, only their bits depend on the plan
        else:
            begin = first + (last - first) * split // splits
            end = first + (last - first) * (split + 1) // splits
    return begin, end


@triton.jit
def _load_block(
    pointer, descriptor, table, block, low, high, head, page_stride, token_stride, head_stride,
    D: tl.constexpr, PAGE: tl.constexpr, BLOCK_N: tl.constexpr, LEFT: tl.constexpr, MASKED: tl.constexpr,
    BULK: tl.constexpr,
):  # fmt: skip
    """K or V of one block of keys, ``[BLOCK_N, D]``; masked out rows are not read."""
    if BULK and not MASKED:
        page = tl.load(table + block * BLOCK_N // PAGE)
        values = descriptor.load([page * PAGE + block * BLOCK_N % PAGE, head * D])
    else:
        key = block * BLOCK_N + tl.arange(0, BLOCK_N)
        inside = key < high
        if LEFT:
            inside = inside & (key >= low)
        if BLOCK_N <= PAGE:
            page = tl.load(table + block * BLOCK_N // PAGE).to(tl.int64)
        elif MASKED:
            page = tl.load(table + key // PAGE, mask=inside, other=0).to(tl.int64)
        else:
            page = tl.load(table + key // PAGE).to(tl.int64)
        token = page * page_stride + (key % PAGE).to(tl.int64) * token_stride
        place = pointer + (token[:, None] + head * head_stride + tl.arange(0, D)[None, :])
        values = tl.load(place, mask=inside[:, None], other=0.0) if MASKED else tl.load(place)
    return values


@triton.jit
def _weigh_block(
    peak, total, score, block, row_low, row_high, scale,
    BLOCK_N: tl.constexpr, LEFT: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Weights of one block of scores in the running softmax (Milakov and Gimelshein 2018, in base 2)."""
    if MASKED:
        key = block * BLOCK_N + tl.arange(0, BLOCK_N)
        seen = key[None, :] < row_high[:, None]
        if LEFT:
            seen = seen & (key[None, :] >= row_low[:, None])
        score = tl.where(seen, score, float("-inf"))
    new_peak = tl.maximum(peak, tl.max(score, 1) * scale)
    shift = new_peak
    if MASKED:
        shift = tl.where(new_peak == float("-inf"), 0.0, new_peak)
    weight = tl.exp2(tl.fma(score, scale, -shift[:, None]))
    fade = tl.exp2(peak - shift)
    return weight, fade, new_peak, total * fade + tl.sum(weight, 1)


@triton.jit
def _tokens(first_token, again_ptr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, FRUGAL: tl.constexpr):
    """Query token of each row of the tile, ``[BLOCK_M]``, counted from its row's first.

    A frugal tile reads ``first_token`` anew, by a volatile load from the tile list under another name: kept alive
    through the loop over the unmasked keys, what the edges and the output need would push registers to the stack.
    """
    if FRUGAL:
        first_token = tl.load(again_ptr + 2 * tl.program_id(0) + 1, volatile=True)
    return first_token + tl.arange(0, BLOCK_M) // GROUP


@triton.jit
def _row_bounds(position, start, length, window_left, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr):
    """Keys ``[low, high)`` that each query row sees; ``position`` is ``[BLOCK_M]``."""
    low = position * 0 + start
    high = position * 0 + length
    if CAUSAL:
        high = tl.minimum(position + 1, length)
    if WINDOWED:
        low = tl.maximum(position - window_left, start)
    return low, high


@triton.jit
def _fold_range(
    acc, peak, total, q, begin, end, token, first, start, length, window_left, low, high, k_ptr, v_ptr, k_desc, v_desc,
    table, head, scale, page_stride, token_stride, head_stride,
    D: tl.constexpr, PAGE: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
    LEFT: tl.constexpr, MASKED: tl.constexpr, BULK: tl.constexpr, UPCAST: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Fold the key blocks ``[begin, end)`` into the tile's output; ``first`` is the position of the row's token 0."""
    row_low, row_high = _row_bounds(first + token, start, length, window_left, CAUSAL, WINDOWED)
    for block in tl.range(begin, end, num_stages=STAGES):
        k = _load_block(
            k_ptr, k_desc, table, block, low, high, head, page_stride, token_stride, head_stride,
            D, PAGE, BLOCK_N, LEFT, MASKED, BULK,
        )  # fmt: skip
        v = _load_block(
            v_ptr, v_desc, table, block, low, high, head, page_stride, token_stride, head_stride,
            D, PAGE, BLOCK_N, LEFT, MASKED, BULK,
        )  # fmt: skip
        if UPCAST:
            k = k.to(tl.float32)
            v = v.to(tl.float32)
        score = tl.dot(q, tl.trans(k), input_precision="ieee")
        weight, fade, peak, total = _weigh_block(
            peak, total, score, block, row_low, row_high, scale, BLOCK_N, LEFT, MASKED
        )  # fmt: skip
        acc = tl.dot(weight.to(v.dtype), v, acc * fade[:, None], input_precision="ieee")
    return acc, peak, total


@triton.jit
def _write_tile(
    acc, peak, total, out_ptr, part_ptr, weight_ptr, query_begin, width, token, out_stride, splits,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Write the tile's output, or its normalised partial and base-2 log-sum-exp; rows that see nothing give zeros."""
    lane = tl.arange(0, BLOCK_M)
    head = tl.program_id(1) * GROUP + lane % GROUP
    heads = tl.num_programs(1) * GROUP
    valid = (token < width) & (lane < BLOCK_M // GROUP * GROUP)
    dim = tl.arange(0, D)
    divisor = tl.where(total > 0, total, 1.0)
    acc = acc * (1.0 / divisor)[:, None]
    if SPLIT:
        place = (token * heads + head) * splits + tl.program_id(2)
        part_ptr += query_begin * heads * splits * D
        weight_ptr += query_begin * heads * splits
        tl.store(part_ptr + place.to(tl.int64)[:, None] * D + dim[None, :], acc, mask=valid[:, None])
        weight = tl.where(total > 0, peak + tl.log2(divisor), float("-inf"))
        tl.store(weight_ptr + place, weight, mask=valid)
    else:
        result = acc.to(out_ptr.dtype.element_ty)
        offset = token[:, None] * out_stride + head[:, None] * D + dim[None, :]
        tl.store(out_ptr + query_begin * out_stride + offset, result, mask=valid[:, None])


@triton.jit(do_not_specialize=["splits", "window_left", "table_stride", "chunk_blocks"])
def paged_attention_kernel(
    q_ptr, k_ptr, v_ptr, k_desc, v_desc, out_ptr, part_ptr, weight_ptr, table_ptr, cu_query_ptr, length_ptr, base_ptr,
    start_ptr, tiles_ptr, again_ptr, scale, table_stride, page_stride, token_stride, head_stride, q_stride,
    splits, window_left, chunk_blocks,
    GROUP: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, LEFT: tl.constexpr, SPLIT: tl.constexpr, DIRECT: tl.constexpr,
    FRUGAL: tl.constexpr, EARLY: tl.constexpr, BULK: tl.constexpr, UPCAST: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One tile of query rows of one KV head over one split; grid ``(tiles, kv_heads, splits)``."""
    row = tl.program_id(0)
    first_token = 0
    if not DIRECT:  # more than one tile a row
        row = tl.load(tiles_ptr + 2 * tl.program_id(0))
        first_token = tl.load(tiles_ptr + 2 * tl.program_id(0) + 1)
    kv_head = tl.program_id(1)
    query_begin = tl.load(cu_query_ptr + row).to(tl.int64)
    width = (tl.load(cu_query_ptr + row + 1) - query_begin).to(tl.int32)
    origin = tl.load(base_ptr + row) * PAGE
    length = origin + tl.load(length_ptr + row)
    start = origin + tl.load(start_ptr + row)
    TOKENS: tl.constexpr = BLOCK_M // GROUP
    lane = tl.arange(0, BLOCK_M)
    token = first_token + lane // GROUP
    head = kv_head * GROUP + lane % GROUP
    valid = (token < width) & (lane < TOKENS * GROUP)
    offset = token[:, None] * q_stride + head[:, None] * D + tl.arange(0, D)[None, :]
    q = tl.load(q_ptr + query_begin * q_stride + offset, mask=valid[:, None], other=0.0)
    if UPCAST:
        q = q.to(tl.float32)
    first = length - width
    row_first = first + first_token
    row_last = first + tl.minimum(first_token + TOKENS, width) - 1
    low, high, full_low, full_high = _key_range(row_first, row_last, start, length, window_left, CAUSAL, WINDOWED)
    begin, end = _split_range(low, high, splits, chunk_blocks, BLOCK_N, SPLIT)
    full_begin = tl.minimum(tl.maximum(tl.cdiv(full_low, BLOCK_N), begin), end)
    full_end = tl.maximum(tl.minimum(tl.maximum(full_high, 0) // BLOCK_N, end), full_begin)
    table = table_ptr + row.to(tl.int64) * table_stride
    peak = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    for part in tl.static_range(0 if LEFT else 1, 3):
        part_begin = begin if part == 0 else (full_begin if part == 1 else full_end)
        part_end = full_begin if part == 0 else (full_end if part == 1 else end)
        if part != 1:
            token = _tokens(first_token, again_ptr, GROUP, BLOCK_M, FRUGAL)
        acc, peak, total = _fold_range(
            acc, peak, total, q, part_begin, part_end, token, first, start, length, window_left, low, high,
            k_ptr, v_ptr, k_desc, v_desc, table, kv_head, scale, page_stride, token_stride, head_stride,
            D, PAGE, BLOCK_N, CAUSAL, WINDOWED, LEFT, part != 1, BULK, UPCAST, STAGES if part == 1 else 1,
        )  # fmt: skip
    if EARLY:  # the combination may be launched now; it waits until this grid is done
        gdc_launch_dependents()
    token = _tokens(first_token, again_ptr, GROUP, BLOCK_M, FRUGAL)
    _write_tile(
        acc, peak, total, out_ptr, part_ptr, weight_ptr, query_begin, width, token, q_stride, splits,
        GROUP, D, BLOCK_M, SPLIT,
    )  # fmt: skip
