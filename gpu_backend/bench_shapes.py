"""Shapes that the bench times, with the work that bounds them and what each must reach on an H200.

Targets are ratios to a floor measured in the same run, microseconds where latency rules, or a share of another row.
The recorded figures of FlashInfer's fa2 (0.7.4, an H200 of the same kind, multiples of the read floor) stand beside the
rows at page 128, so that a run without FlashInfer still says who is slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from gpu_backend.calls import SlotOp
from gpu_backend.contracts.attention import AttentionCase
from gpu_backend.contracts.check import CheckCase
from gpu_backend.contracts.page_copy import CopyCase
from gpu_backend.contracts.slots import SlotCase
from gpu_backend.contracts.store import StoreCase
from gpu_backend.contracts.table import TableCase

BF16 = torch.bfloat16
VERIFY_ROWS = 8  # K + 1
FA2 = {
    ("verify", 1, 4096): 4.17,
    ("verify", 1, 32768): 1.47,
    ("verify", 1, 131072): 1.16,
    ("verify", 8, 4096): 1.69,
    ("verify", 8, 32768): 1.14,
    ("verify", 8, 131072): 1.20,
    ("verify", 64, 4096): 1.19,
    ("verify", 64, 32768): 1.09,
    ("verify", 64, 131072): 1.38,
    ("drafter", 1, 4096): 7.1,
    ("drafter", 8, 4096): 2.3,
    ("drafter", 64, 4096): 1.26,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """One row of the bench: a case of a contract, its floor, and its targets (``None``: reported only).

    ``floor`` is "read", "copy" or "flops"; ``ratio`` bounds time over floor, ``limit_us`` the time, ``share`` the time
    over that of the row named ``of``.
    """

    label: str
    contract: str
    case: Any
    floor: str
    ratio: float | None = None
    limit_us: float | None = None
    of: str = ""
    share: float | None = None
    fa2: float | None = None


def verify(batch: int, past: int, page_size: int = 128) -> AttentionCase:
    """Target verify rows of a model with 32 query heads on 8 KV heads of 128."""
    return AttentionCase(
        (VERIFY_ROWS,) * batch, (past,) * batch, page_size=page_size, heads=32, kv_heads=8, dim=128, dtype=BF16
    )


def drafter(batch: int, window: int = 4096) -> AttentionCase:
    """Drafter blocks: 32 query heads on 4 KV heads, no causal mask, behind 32k tokens of which ``window`` are seen."""
    return AttentionCase(
        (VERIFY_ROWS,) * batch, (32768,) * batch, page_size=128, heads=32, kv_heads=4, dim=128, causal=False,
        window_left=window - 1, dtype=BF16,
    )  # fmt: skip


def context(width: int, past: int, page_size: int = 128) -> AttentionCase:
    """One context chunk of ``width`` tokens."""
    return AttentionCase((width,), (past,), page_size=page_size, heads=32, kv_heads=8, dim=128, dtype=BF16)


def store(tokens: int, tagged: bool) -> StoreCase:
    """``tokens`` rows in up to 16 sequences, 8 KV heads of 128."""
    rows = 16 if tokens >= 8192 else 4
    return StoreCase((100,) * rows, (tokens // rows,) * rows, 128, 8, 128, tagged=tagged, dtype=BF16)


def _attention_shapes() -> Iterator[Shape]:
    for batch in (1, 8, 64):
        for past in (4096, 32768, 131072):
            bound = 1.10 if batch > 1 and past > 4096 else None
            yield Shape(
                f"verify B {batch} at {past // 1024}k, page 128", "attention", verify(batch, past), "read", bound,
                14.0 if (batch, past) == (1, 4096) else None, fa2=FA2["verify", batch, past],
            )  # fmt: skip
    yield Shape("verify B 8 at 32k, page 32", "attention", verify(8, 32768, 32), "read")
    exact = replace(verify(8, 32768), exact=True, chunk=2048)
    yield Shape("verify B 8 at 32k, exact", "attention", exact, "read")
    for batch, bound in ((1, None), (8, 2.0), (64, 1.2)):
        fa2 = FA2["drafter", batch, 4096]
        yield Shape(f"drafter B {batch}, W 4096", "attention", drafter(batch), "read", bound, fa2=fa2)
    yield Shape("context 2048 at 0", "attention", context(2048, 0), "flops")
    yield Shape("context 2048 at 30k", "attention", context(2048, 30720), "flops", 2.2)
    yield Shape("context 2048 at 30k, page 32", "attention", context(2048, 30720, 32), "flops", 2.2)
    yield Shape("context 8192 at 0", "attention", context(8192, 0), "flops")


def _memory_shapes() -> Iterator[Shape]:
    for tokens, bound in ((512, None), (8192, None), (65536, 1.15)):
        plain = f"store {tokens} rows"
        yield Shape(plain, "store", store(tokens, False), "copy", bound)
        yield Shape(f"{plain} and tags", "store", store(tokens, True), "copy", of=plain, share=1.025)
    copies = CopyCase((64,) * 64, layers=32, page_size=128, kv_heads=8, dim=128, dtype=BF16)
    yield Shape("copy 64 half pages, 32 layers", "page copy", copies, "copy", 1.3)
    mixed = tuple(range(1, 128, 2))
    yield Shape("copy 64 prefixes, 32 layers", "page copy", replace(copies, tokens=mixed), "copy", 1.3)
    for batch, past, share in ((8, 32768, 0.015), (64, 32768, 0.006), (64, 131072, None)):
        yield Shape(
            f"check B {batch} at {past // 1024}k", "check", CheckCase((0,) * batch, (past,) * batch, 128), "read",
            of=f"verify B {batch} at {past // 1024}k, page 128", share=share,
        )  # fmt: skip
    table = TableCase((100,) * 177, (4000,) * 177, 8193, (100,) * 177)
    yield Shape("table 177 x 8193", "table", table, "copy")
    slots = SlotCase(tuple((SlotOp.ADVANCE, slot, 3, 0) for slot in range(177)), slots=178)
    yield Shape("slots 177", "slots", slots, "copy")


SHAPES: dict[str, Shape] = {shape.label: shape for shape in (*_attention_shapes(), *_memory_shapes())}


def compile_twin(case: Any, splits: int | None = None, tile: Any = None) -> Any:
    """A small case that compiles to the same kernels as ``case``; attention takes the large one's plan."""
    if isinstance(case, AttentionCase):
        return replace(
            case, widths=case.widths[:1], past=(min(case.past[0], 512),), splits=splits, tile=tile, window_left=-1
            if case.window_left < 0 else 64,
        )  # fmt: skip
    if isinstance(case, StoreCase):
        return replace(case, begins=(0,), counts=(16,))
    if isinstance(case, CopyCase):
        return replace(case, tokens=case.tokens[:1], layers=1)
    if isinstance(case, CheckCase):
        return replace(case, starts=(0,), ends=(300,))
    return case
