"""A tiny scenario for compute-sanitizer: store, check, copy, attend, each on memory that the step before wrote.

With the argument ``stray`` the attention reads four slots that nobody wrote; with ``outside`` a table entry points past
the pool. A sanitizer must report both, and nothing without an argument.
"""

from __future__ import annotations

import sys

import torch

from gpu_backend.calls import AttentionCall, CheckCall, CopyCall, StoreCall, Verdict
from gpu_backend.cells import ONLY_FINAL, CellState
from gpu_backend.layout import PoolLayout
from gpu_backend.pool import DevicePool
from gpu_backend.triton_backend import TritonKernels

DEVICE = torch.device("cuda")
TOKENS = 37


def main(fault: str) -> None:
    """One request of 37 tokens: its prefix is copied to a second request's page, then both attend."""
    pool = DevicePool("target", PoolLayout(1, 2, 32, 16), 8, DEVICE)
    kernels = TritonKernels()
    table = torch.tensor([[3, 5, 2], [3, 5, 7]], dtype=torch.int32, device=DEVICE)
    base = torch.zeros(2, dtype=torch.int32, device=DEVICE)
    position = torch.arange(TOKENS, dtype=torch.int32, device=DEVICE)
    k, v = (torch.randn(TOKENS, 2, 32, device=DEVICE).bfloat16() for _ in range(2))
    tags = torch.arange(TOKENS, device=DEVICE) + (1 << 40)
    states = torch.full((TOKENS,), int(CellState.FINAL), dtype=torch.int8, device=DEVICE)
    kernels.store(
        StoreCall(
            k, v, pool.k(0), pool.v(0), torch.zeros_like(position), position, table, base, pool.cells, tags, states
        )
    )
    four = torch.tensor([4], dtype=torch.int32, device=DEVICE)
    kernels.copy(CopyCall(pool.kv, pool.cells, four // 2, four + 3, four))
    length = torch.tensor([TOKENS, 36], dtype=torch.int32, device=DEVICE)
    expected = torch.zeros((2, 48), dtype=torch.int64, device=DEVICE)
    expected[:, :TOKENS] = tags
    verdict = Verdict.clean(DEVICE)
    claimed = torch.zeros((2, 3), dtype=torch.int32, device=DEVICE)
    kernels.check(
        CheckCall(pool.cells, pool.generation, expected, claimed, table, base, base, length, verdict, ONLY_FINAL), 48
    )
    assert verdict.found() is None
    if fault == "stray":
        length[1] += 4
    if fault == "outside":
        table[1, 0] = 1 << 20
    q = torch.randn(8, 4, 32, device=DEVICE).bfloat16()
    cu_query = torch.tensor([0, 4, 8], dtype=torch.int32, device=DEVICE)
    call = AttentionCall(q, torch.empty_like(q), pool.k(0), pool.v(0), table, cu_query, length, base, base)
    kernels.attend(call, widths=(4, 4))
    torch.cuda.synchronize()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
