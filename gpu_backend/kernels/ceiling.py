"""Kernels that do nothing but read or copy: the ceilings that the bench divides by."""

# pyright: reportGeneralTypeIssues=false
# The types of a kernel are Triton's, not Python's.

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_backend.kernels.launch import Launch


@triton.jit
def _xor(left, right):
    return left ^ right


@triton.jit
def read_kernel(source_ptr, out_ptr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    """Read ``ROUNDS`` blocks and keep their parity; grid ``(elements / ROUNDS / BLOCK,)``."""
    program = tl.program_id(0).to(tl.int64)
    parity = tl.zeros([BLOCK], tl.int32)
    for step in tl.range(0, ROUNDS, num_stages=4):
        parity ^= tl.load(source_ptr + (program * ROUNDS + step) * BLOCK + tl.arange(0, BLOCK))
    tl.store(out_ptr + program, tl.reduce(parity, 0, _xor))


@triton.jit
def copy_kernel(source_ptr, target_ptr, BLOCK: tl.constexpr):
    """Copy one block; grid ``(elements / BLOCK,)``."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target_ptr + place, tl.load(source_ptr + place))


@triton.jit
def empty_kernel(source_ptr):
    """Nothing: the cost of a node in a graph."""


def read_launch(source: torch.Tensor, out: torch.Tensor, block: int, rounds: int, warps: int) -> Launch:
    """Read int32 ``source``, whose length is a multiple of ``block * rounds``; ``out`` int32 takes the parities."""
    constants = {"ROUNDS": rounds, "BLOCK": block, "num_warps": warps}
    return Launch("read", read_kernel, (len(source) // block // rounds,), (source, out), constants)


def copy_launch(source: torch.Tensor, target: torch.Tensor, block: int = 4096) -> Launch:
    """Copy int32 ``source``, whose length is a multiple of ``block``."""
    return Launch("copy", copy_kernel, (len(source) // block,), (source, target), {"BLOCK": block, "num_warps": 8})


def empty_launch(source: torch.Tensor) -> Launch:
    """A kernel without work."""
    return Launch("empty", empty_kernel, (1,), (source,))
