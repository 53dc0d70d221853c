"""Copy of the first tokens of a page within one pool, in every layer, with the tags and states of what was copied.

Pages are stored token by token, so a prefix of a page is one contiguous run per layer and K/V.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gpu_backend.calls import CopyCall
from gpu_backend.kernels.launch import Launch
from gpu_backend.kernels.tiles import power_of_two
from model.geometry import cdiv


@triton.jit
def page_copy_kernel(
    kv_ptr, tags_ptr, states_ptr, source_ptr, target_ptr, tokens_ptr, plane_stride, page_stride,
    WIDTH: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr, CELLS: tl.constexpr,
):  # fmt: skip
    """One run of ``BLOCK`` elements of one plane of one copy; grid ``(chunks, planes, copies)``."""
    chunk = tl.program_id(0)
    plane = tl.program_id(1)
    copy = tl.program_id(2)
    tokens = tl.load(tokens_ptr + copy)
    source = tl.load(source_ptr + copy).to(tl.int64)
    target = tl.load(target_ptr + copy).to(tl.int64)
    if chunk * BLOCK < tokens * WIDTH:
        element = chunk * BLOCK + tl.arange(0, BLOCK)
        inside = element < tokens * WIDTH
        origin = kv_ptr + plane.to(tl.int64) * plane_stride
        values = tl.load(origin + source * page_stride + element, mask=inside)
        tl.store(origin + target * page_stride + element, values, mask=inside)
        if plane + chunk == 0:
            token = tl.arange(0, CELLS)
            copied = token < tokens
            tag = tl.load(tags_ptr + source * PAGE + token, mask=copied)
            state = tl.load(states_ptr + source * PAGE + token, mask=copied)
            tl.store(tags_ptr + target * PAGE + token, tag, mask=copied)
            tl.store(states_ptr + target * PAGE + token, state, mask=copied)


def page_copy_launch(call: CopyCall, block: int = 8192, warps: int = 8) -> Launch:
    """The launch of ``call``; ``block`` elements (a power of two) a program."""
    layers, planes, _, page_size, heads, dim = call.kv.shape
    width = heads * dim
    block = min(block, power_of_two(page_size * width))
    arguments = (
        call.kv, call.cells.tags, call.cells.states, call.source, call.target, call.tokens,
        call.kv.stride(1), call.kv.stride(2),
    )  # fmt: skip
    constants = {
        "WIDTH": width,
        "PAGE": page_size,
        "BLOCK": block,
        "CELLS": power_of_two(page_size),
        "num_warps": warps,
    }
    grid = (cdiv(page_size * width, block), layers * planes, len(call.source))
    return Launch("page copy", page_copy_kernel, grid, arguments, constants)
