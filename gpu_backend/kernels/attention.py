"""Paged attention in Triton: one kernel for target verify rows, context chunks and drafter blocks.

A program owns one tile of query rows of one KV head (the query heads that share it are packed into the tile) and one
split of the key range. Softmax is online, in base 2. Inside the kernel positions are absolute: a row of base page
``b`` starts at ``b * PAGE``, so the block table is indexed by ``position // PAGE`` whatever the base is.

The key range has three parts: a masked left edge, an unmasked middle, a masked right edge. Slots outside
``[start, length)`` are never touched, which is what makes poisoned memory a check. Both kinds of block use one explicit
``fma`` form, so that a row's bits do not depend on which of them a key falls into.
"""

from __future__ import annotations

import triton
import triton.language as tl


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
        else:
            share = tl.cdiv(last - first, splits)
            begin = tl.minimum(first + split * share, last)
            end = tl.minimum(begin + share, last)
    return begin, end


@triton.jit
def _load_block(
    k_ptr, v_ptr, k_desc, v_desc, table, block, low, high, head, page_stride, token_stride, head_stride,
    D: tl.constexpr, PAGE: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr, BULK: tl.constexpr,
):  # fmt: skip
    """K and V of one block of keys, ``[BLOCK_N, D]`` each; masked out rows are not read."""
    key = block * BLOCK_N + tl.arange(0, BLOCK_N)
    if BULK and not MASKED:
        page = tl.load(table + block * BLOCK_N // PAGE)
        token = page * PAGE + block * BLOCK_N % PAGE
        k = k_desc.load([token, head * D])
        v = v_desc.load([token, head * D])
    else:
        inside = (key >= low) & (key < high)
        if BLOCK_N <= PAGE:
            page = tl.load(table + block * BLOCK_N // PAGE).to(tl.int64)
        elif MASKED:
            page = tl.load(table + key // PAGE, mask=inside, other=0).to(tl.int64)
        else:
            page = tl.load(table + key // PAGE).to(tl.int64)
        token = page * page_stride + (key % PAGE).to(tl.int64) * token_stride
        offset = token[:, None] + head * head_stride + tl.arange(0, D)[None, :]
        if MASKED:
            k = tl.load(k_ptr + offset, mask=inside[:, None], other=0.0)
            v = tl.load(v_ptr + offset, mask=inside[:, None], other=0.0)
        else:
            k = tl.load(k_ptr + offset)
            v = tl.load(v_ptr + offset)
    return k, v


@triton.jit
def _fold_block(
    acc, peak, total, q, k, v, block, row_low, row_high, scale,
    BLOCK_N: tl.constexpr, MASKED: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Fold one block of keys into the running softmax (Milakov and Gimelshein 2018, in base 2)."""
    if UPCAST:
        k = k.to(tl.float32)
        v = v.to(tl.float32)
    score = tl.dot(q, tl.trans(k), input_precision="ieee")
    if MASKED:
        key = block * BLOCK_N + tl.arange(0, BLOCK_N)
        seen = (key[None, :] >= row_low[:, None]) & (key[None, :] < row_high[:, None])
        new_peak = tl.maximum(peak, tl.max(tl.where(seen, score, float("-inf")), 1) * scale)
        shift = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        weight = tl.where(seen, tl.exp2(tl.fma(score, scale, -shift[:, None])), 0.0)
    else:
        new_peak = tl.maximum(peak, tl.max(score, 1) * scale)
        shift = new_peak
        weight = tl.exp2(tl.fma(score, scale, -shift[:, None]))
    fade = tl.exp2(peak - shift)
    total = total * fade + tl.sum(weight, 1)
    acc = tl.dot(weight.to(v.dtype), v, acc * fade[:, None], input_precision="ieee")
    return acc, new_peak, total


@triton.jit
def _fold_range(
    acc, peak, total, q, begin, end, row_low, row_high, low, high, k_ptr, v_ptr, k_desc, v_desc, table, head,
    scale, page_stride, token_stride, head_stride,
    D: tl.constexpr, PAGE: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr, BULK: tl.constexpr,
    UPCAST: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Fold the key blocks ``[begin, end)``."""
    for block in tl.range(begin, end, num_stages=STAGES):
        k, v = _load_block(
            k_ptr, v_ptr, k_desc, v_desc, table, block, low, high, head, page_stride, token_stride, head_stride,
            D, PAGE, BLOCK_N, MASKED, BULK,
        )  # fmt: skip
        acc, peak, total = _fold_block(
            acc, peak, total, q, k, v, block, row_low, row_high, scale, BLOCK_N, MASKED, UPCAST
        )
    return acc, peak, total


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
def _write_tile(
    acc, peak, total, out_ptr, part_ptr, weight_ptr, query, head, valid, begin, end, out_stride, splits, heads,
    D: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Write the tile's output, or its normalised partial and base-2 log-sum-exp; rows that see nothing give zeros."""
    dim = tl.arange(0, D)
    divisor = tl.where(total > 0, total, 1.0)
    if SPLIT:
        place = (query * heads + head) * splits + tl.program_id(2)
        if end > begin:
            tl.store(part_ptr + place[:, None] * D + dim[None, :], acc / divisor[:, None], mask=valid[:, None])
        weight = tl.where(total > 0, peak + tl.log2(divisor), float("-inf"))
        tl.store(weight_ptr + place, weight, mask=valid)
    else:
        result = (acc / divisor[:, None]).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + query[:, None] * out_stride + head[:, None] * D + dim[None, :], result, mask=valid[:, None])


@triton.jit(do_not_specialize=["splits", "window_left", "table_stride", "chunk_blocks"])
def paged_attention_kernel(
    q_ptr, k_ptr, v_ptr, k_desc, v_desc, out_ptr, part_ptr, weight_ptr, table_ptr, cu_query_ptr, length_ptr, base_ptr,
    start_ptr, tile_row_ptr, tile_token_ptr, scale, table_stride, page_stride, token_stride, head_stride, q_stride,
    splits, window_left, chunk_blocks,
    GROUP: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, LEFT: tl.constexpr, SPLIT: tl.constexpr, BULK: tl.constexpr,
    UPCAST: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One tile of query rows of one KV head over one split; grid ``(tiles, kv_heads, splits)``."""
    row = tl.load(tile_row_ptr + tl.program_id(0))
    first_token = tl.load(tile_token_ptr + tl.program_id(0))
    kv_head = tl.program_id(1)
    query_begin = tl.load(cu_query_ptr + row)
    width = tl.load(cu_query_ptr + row + 1) - query_begin
    origin = tl.load(base_ptr + row) * PAGE
    length = origin + tl.load(length_ptr + row)
    start = origin + tl.load(start_ptr + row)
    lane = tl.arange(0, BLOCK_M)
    token = first_token + lane // GROUP
    head = kv_head * GROUP + lane % GROUP
    TOKENS: tl.constexpr = BLOCK_M // GROUP
    valid = (token < width) & (lane < TOKENS * GROUP)
    query = (query_begin + token).to(tl.int64)
    dim = tl.arange(0, D)
    q = tl.load(q_ptr + query[:, None] * q_stride + head[:, None] * D + dim[None, :], mask=valid[:, None], other=0.0)
    if UPCAST:
        q = q.to(tl.float32)
    row_first = length - width + first_token
    row_last = length - width + tl.minimum(first_token + TOKENS, width) - 1
    row_low, row_high = _row_bounds(length - width + token, start, length, window_left, CAUSAL, WINDOWED)
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
        acc, peak, total = _fold_range(
            acc, peak, total, q, part_begin, part_end, row_low, row_high, low, high, k_ptr, v_ptr, k_desc, v_desc,
            table, kv_head, scale, page_stride, token_stride, head_stride,
            D, PAGE, BLOCK_N, part != 1, BULK, UPCAST, STAGES if part == 1 else 1,
        )  # fmt: skip
    heads = tl.num_programs(1) * GROUP
    _write_tile(
        acc, peak, total, out_ptr, part_ptr, weight_ptr, query, head, valid, begin, end, q_stride, splits, heads,
        D, SPLIT,
    )  # fmt: skip
