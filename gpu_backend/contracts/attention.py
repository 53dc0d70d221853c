"""Contract of the paged attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gpu_backend.calls import AttentionCall
from gpu_backend.contracts.base import Contract, Work, generator, int32, relative_error, shuffled_tables
from gpu_backend.kernels.attention_reference import attention_reference
from gpu_backend.kernels.tiles import Tile
from gpu_backend.layout import UNBACKED
from model.geometry import cdiv

TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 5e-3}


@dataclass(frozen=True, slots=True)
class AttentionCase:
    """Rows of ``widths`` query tokens behind ``past`` tokens each; bases in pages, starts and windows in tokens.

    Positions are counted from the row's base page. ``chunk``, ``tile`` and ``splits`` go to the plan. ``parked`` rows
    have length 0. ``released``: blocks that lie below all that a row may read have no page.
    """

    widths: tuple[int, ...]
    past: tuple[int, ...]
    page_size: int = 16
    heads: int = 4
    kv_heads: int = 2
    dim: int = 32
    causal: bool = True
    window_left: int = -1
    bases: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    parked: tuple[int, ...] = ()
    released: bool = False
    dtype: torch.dtype = torch.float32
    exact: bool = False
    chunk: int = 64
    tile: Tile | None = None
    splits: int | None = None

    def lengths(self) -> list[int]:
        """Tokens of each row."""
        pairs = enumerate(zip(self.past, self.widths, strict=True))
        return [0 if row in self.parked else past + width for row, (past, width) in pairs]


def build(case: AttentionCase, device: torch.device, seed: int) -> AttentionCall:
    """Random queries and keys; every slot that no row may read is NaN, and so is the output."""
    lengths = case.lengths()
    bases = list(case.bases or (0,) * len(lengths))
    starts = list(case.starts or (0,) * len(lengths))
    pages = [cdiv(length, case.page_size) for length in lengths]
    columns = max(base + count for base, count in zip(bases, pages, strict=True)) + 1
    table, total = shuffled_tables(pages, columns, bases, 2, device, seed)
    source = generator(device, seed)
    shape = (total, case.page_size, case.kv_heads, case.dim)
    readable = torch.zeros(shape[:2], dtype=torch.bool, device=device)
    for row, length in enumerate(lengths):
        low = starts[row]
        if case.window_left >= 0:
            low = max(low, length - case.widths[row] - case.window_left)
        key = torch.arange(low, max(low, length), device=device)
        readable[table[row, bases[row] + key // case.page_size].long(), key % case.page_size] = True
        if case.released:
            table[row, bases[row] : bases[row] + min(low, length) // case.page_size] = UNBACKED
    caches = []
    for _ in range(2):
        cache = torch.empty(shape, dtype=case.dtype, device=device).normal_(generator=source)
        cache[~readable] = float("nan")
        caches.append(cache)
    tokens = sum(case.widths)
    q = torch.empty((tokens, case.heads, case.dim), dtype=case.dtype, device=device).normal_(generator=source)
    cumulated = [sum(case.widths[:row]) for row in range(len(lengths) + 1)]
    return AttentionCall(
        q, torch.full_like(q, float("nan")), caches[0], caches[1], table, int32(cumulated, device),
        int32(lengths, device), int32(bases, device), int32(starts, device), case.causal, case.window_left,
        from_origin=not any(starts),
    )  # fmt: skip


def launches(case: AttentionCase, call: AttentionCall) -> list[Any]:
    """The launches, by a plan of their own."""
    from gpu_backend.kernels.attention_plan import AttentionPlan

    plan = AttentionPlan(
        case.widths, case.heads, case.kv_heads, case.dim, case.page_size, case.dtype, call.q.device,
        longest=max(case.lengths()), window_left=case.window_left, exact=case.exact, chunk=case.chunk, tile=case.tile,
        splits=case.splits,
    )  # fmt: skip
    return list(plan.launches(call))


def error(found: AttentionCall, wanted: AttentionCall) -> float:
    """Relative error of the output."""
    return relative_error(found.out, wanted.out)


def visible_keys(case: AttentionCase) -> int:
    """Pairs of query and key that the case computes."""
    total = 0
    for past, width in zip(case.past, case.widths, strict=True):
        for token in range(width):
            high = past + token + 1 if case.causal else past + width
            low = max(0, past + token - case.window_left) if case.window_left >= 0 else 0
            total += high - low
    return total


def work(case: AttentionCase) -> Work:
    """Keys and values of every row once, queries and outputs once; two matrix products a visible pair."""
    size = case.dtype.itemsize
    starts = case.starts or (0,) * len(case.past)
    keys = 0
    for length, width, start in zip(case.lengths(), case.widths, starts, strict=True):
        low = max(start, length - width - case.window_left) if case.window_left >= 0 else start
        keys += max(0, length - low)
    read = 2 * keys * case.kv_heads * case.dim * size
    moved = 2 * sum(case.widths) * case.heads * case.dim * size
    return Work(read_bytes=read + moved, flops=4 * visible_keys(case) * case.heads * case.dim)


CASES = {
    "verify rows": AttentionCase((4, 4), (70, 5)),
    "verify rows, split": AttentionCase((4, 4), (70, 133), splits=3),
    "ragged chunk": AttentionCase((4, 9, 1), (33, 0, 17), splits=1),
    "drafter block": AttentionCase((4, 4), (70, 95), page_size=32, heads=8, causal=False, window_left=20),
    "drafter block behind a base": AttentionCase(
        (4, 4), (70, 95), page_size=32, heads=8, causal=False, window_left=20, bases=(2, 1), starts=(40, 64)
    ),
    "base and start without window": AttentionCase(
        (3, 3), (70, 95), page_size=64, kv_heads=1, dim=64, causal=False, bases=(2, 1), starts=(40, 64)
    ),
    "wide chunk with a window": AttentionCase((5, 30), (131, 100), page_size=128, heads=2, window_left=17),
    "released pages": AttentionCase(
        (4, 3), (170, 95), page_size=32, causal=False, window_left=20, bases=(0, 2), released=True, splits=2
    ),
    "parked row": AttentionCase((4, 4, 4), (20, 0, 40), parked=(1,), bases=(0, 3, 1), splits=2),
    "exact": AttentionCase((4, 4), (70, 133), exact=True),
    "exact with a window": AttentionCase((4, 6), (170, 133), exact=True, window_left=90, bases=(0, 3)),
    "half precision": AttentionCase((4, 4), (70, 5), dtype=torch.float16),
    "bfloat16": AttentionCase((4, 4), (70, 133), dtype=torch.bfloat16, splits=2),
    "one head for all": AttentionCase((2,), (40,), heads=16, kv_heads=1),
}
ATTENTION = Contract(
    "attention",
    {
        "widths": "query tokens of each row",
        "past": "tokens before them, from the base page on",
        "page_size": "tokens",
        "heads": "query heads, a multiple of kv_heads",
        "dim": "of a head, a power of two",
        "bases": "base pages",
        "starts": "first readable position",
    },
    CASES,
    build,
    launches,
    attention_reference,
    error,
    lambda case: TOLERANCE[case.dtype],
    work,
)
