"""Store of new K and V rows into pages, with the tags of their slots written by the same launch."""

from __future__ import annotations

import triton
import triton.language as tl

from gpu_backend.calls import StoreCall
from gpu_backend.kernels.launch import Launch
from gpu_backend.kernels.tiles import power_of_two
from model.geometry import cdiv


@triton.jit(do_not_specialize=["tokens", "columns"])
def store_kernel(
    k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, row_ptr, position_ptr, table_ptr, base_ptr, tags_ptr, states_ptr, tag_ptr,
    state_ptr, tokens, columns, table_stride, page_stride, token_stride,
    WIDTH: tl.constexpr, PAGE: tl.constexpr, TOKENS: tl.constexpr, BLOCK: tl.constexpr, TAGGED: tl.constexpr,
):  # fmt: skip
    """``TOKENS`` tokens a program, ``WIDTH`` elements (heads times dim) each; grid ``(cdiv(tokens, TOKENS),)``."""
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    given = token < tokens
    lane = tl.arange(0, BLOCK)
    wide = given[:, None] & (lane < WIDTH)[None, :]
    source = token.to(tl.int64)[:, None] * WIDTH + lane[None, :]
    row = tl.load(row_ptr + token, mask=given, other=-1)
    tag = token
    state = token
    if TAGGED:  # what does not wait for the table is loaded while the table is looked up
        tag = tl.load(tag_ptr + token, mask=given)
        state = tl.load(state_ptr + token, mask=given)
    k = tl.load(k_ptr + source, mask=wide)
    v = tl.load(v_ptr + source, mask=wide)
    real = given & (row >= 0)
    position = tl.load(position_ptr + token, mask=real, other=0)
    real = real & (position >= 0)
    position = tl.maximum(position, 0)
    block = tl.load(base_ptr + row, mask=real, other=0) + position // PAGE
    page = tl.load(table_ptr + row.to(tl.int64) * table_stride + block, mask=real & (block < columns), other=-1)
    backed = page >= 0
    page = page.to(tl.int64)
    offset = position % PAGE
    mask = backed[:, None] & (lane < WIDTH)[None, :]
    target = (page * page_stride + offset.to(tl.int64) * token_stride)[:, None] + lane[None, :]
    if TAGGED:
        tl.store(tags_ptr + page * PAGE + offset, tag, mask=backed)
        tl.store(states_ptr + page * PAGE + offset, state, mask=backed)
    tl.store(k_cache_ptr + target, k, mask=mask)
    tl.store(v_cache_ptr + target, v, mask=mask)


def store_launch(call: StoreCall, tokens_a_program: int = 1, warps: int = 2) -> Launch:
    """The launch of ``call``. ``tokens_a_program`` is a power of two."""
    tokens, heads, dim = call.k.shape
    page_size = call.k_cache.shape[1]
    tagged = call.cells is not None
    planes = (call.cells.tags, call.cells.states, call.tag, call.state) if call.cells is not None else (call.row,) * 4
    arguments = (
        call.k, call.v, call.k_cache, call.v_cache, call.row, call.position, call.table, call.base, *planes,
        tokens, call.table.shape[1], call.table.stride(0), call.k_cache.stride(0), call.k_cache.stride(1),
    )  # fmt: skip
    constants = {
        "WIDTH": heads * dim,
        "PAGE": page_size,
        "TOKENS": tokens_a_program,
        "BLOCK": power_of_two(heads * dim),
        "TAGGED": tagged,
        "num_warps": warps,
    }
    return Launch("store", store_kernel, (cdiv(tokens, tokens_a_program),), arguments, constants)
