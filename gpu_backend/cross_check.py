"""Optional second opinion: FlashInfer's fa2 on the same inputs, where FlashInfer is installed.

Its tables are compressed rows of page ids, so block tables and base pages are resolved here before it sees them; it
checks the arithmetic, not the addressing. Shapes that a known bug of it breaks are refused.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

import torch

from gpu_backend.calls import AttentionCall
from gpu_backend.contracts.attention import AttentionCase
from model.geometry import cdiv

AGREEMENT = 5e-3
WORKSPACE_BYTES = 256 << 20


class Refused(ValueError):
    """A case that FlashInfer is not asked for; the text says why."""


def available() -> bool:
    """Whether FlashInfer and a GPU are there."""
    return torch.cuda.is_available() and importlib.util.find_spec("flashinfer") is not None


def require_supported(case: AttentionCase) -> None:
    """``Refused`` for what fa2 cannot do or is known to get wrong.

    With a window and no causal mask its split count covers one query tile only (FlashInfer issue 4972), so blocks of
    more than 128 packed rows come out wrong.
    """
    packed = max(case.widths) * (case.heads // case.kv_heads)
    if case.window_left >= 0 and not case.causal and packed > 128:
        raise Refused(f"non-causal rows with a window and {packed} > 128 packed queries (FlashInfer issue 4972)")
    if any(case.starts):
        raise Refused("a first readable position has no counterpart in FlashInfer")
    if case.released:
        raise Refused("FlashInfer is given the pages of whole rows, and some were released")
    if case.parked:
        raise Refused("FlashInfer needs at least as many keys as queries")
    if case.dtype not in (torch.float16, torch.bfloat16):
        raise Refused(f"no kernels for {case.dtype}")
    if case.dim not in (64, 128, 256):
        raise Refused(f"no kernels for heads of {case.dim}")


def wrapper(case: AttentionCase, call: AttentionCall) -> Any:
    """A planned fa2 wrapper for ``call``; the window is passed at plan time, where the mask is chosen.

    Rows of one width are announced as such: in a graph fa2 would else choose its query tile for a ragged batch.
    """
    flashinfer: Any = importlib.import_module("flashinfer")
    page_size = case.page_size
    lengths, bases = call.length.tolist(), call.base.tolist()
    counts = [cdiv(length, page_size) for length in lengths]
    indices = [
        call.table[row, base : base + count] for row, (base, count) in enumerate(zip(bases, counts, strict=True))
    ]
    bounds = torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()], dtype=torch.int32, device=call.q.device)
    last = torch.tensor([(length - 1) % page_size + 1 for length in lengths], dtype=torch.int32, device=call.q.device)
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=call.q.device)
    rows = torch.cat(indices).contiguous()
    planned = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
        workspace, "NHD", use_cuda_graph=True, qo_indptr_buf=torch.empty_like(bounds),
        paged_kv_indptr_buf=torch.empty_like(bounds), paged_kv_indices_buf=torch.empty_like(rows),
        paged_kv_last_page_len_buf=torch.empty_like(last), backend="fa2",
    )  # fmt: skip
    uniform = case.widths[0] if len(set(case.widths)) == 1 else None
    planned.plan(
        call.cu_query, bounds, rows, last, case.heads, case.kv_heads, case.dim, page_size, causal=case.causal,
        window_left=case.window_left, q_data_type=case.dtype, kv_data_type=case.dtype, uniform_q_len=uniform,
    )  # fmt: skip
    return planned


def fa2_output(case: AttentionCase, call: AttentionCall) -> torch.Tensor:
    """The output of fa2, shape of ``call.q``; :class:`Refused` for unsupported cases."""
    require_supported(case)
    return wrapper(case, call).run(call.q, (call.k_cache, call.v_cache))


def fa2_time(case: AttentionCase, calls: Sequence[AttentionCall]) -> float | None:
    """Median microseconds of fa2 on one of ``calls``; ``None`` where FlashInfer is missing or refuses the case."""
    if not available():
        return None
    from gpu_backend.timing import time_graph

    try:
        require_supported(case)
    except Refused:
        return None
    planned = [(wrapper(case, call), call, torch.empty_like(call.q)) for call in calls]

    def run() -> None:
        for fa2, call, out in planned:
            fa2.run(call.q, (call.k_cache, call.v_cache), out=out)

    return time_graph(run, len(planned)).median_us
