"""From bytes to pages: how device and host memory are divided between a target's pool and its drafter's.

Memory is in bytes, pools are in pages, sequences and windows in tokens; all figures are per rank. The cost of a pool
is affine in the tokens that it holds: full attention costs a slope, a window costs a fixed share. Sources: the budget
split of TensorRT-LLM's KVCacheManagerV2, the paired pool's host share (seed 000), the trailing page (seed 002), the
window-sized share of the unified layout and its figures (seed 003).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, get_args

from model.config import Drafter, Limits, PoolSize
from model.geometry import cdiv

GIB = 1 << 30

Layout = Literal["separate", "paired", "unified"]


class BudgetError(ValueError):
    """Memory that nothing useful fits in; the text is one sentence that names the figures."""


class HostOutcome(enum.IntEnum):
    """What a rank makes of its host tier; the ranks agree on the largest (TensorRT-LLM KVCacheManagerV2)."""

    KEEP_HOST = 0
    USE_NO_HOST = 1
    ABORT = 2


class Pair(NamedTuple):
    """One figure for each of the two pools."""

    target: int
    draft: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Affine cost of holding ``n`` tokens: ``slope * n + intercept`` bytes.

    A cost by the page works as well, as long as both sides of a split count alike.
    """

    slope: int
    intercept: int = 0

    def at(self, tokens: int) -> int:
        """Bytes for ``tokens`` tokens."""
        return self.slope * tokens + self.intercept


def gib(size: int) -> float:
    """``size`` bytes in GiB (seed 003: 6,092 pages of 655,360 bytes are 3.72)."""
    return size / GIB


def pages_for(size: int, page_bytes: int) -> int:
    """Whole pages of ``page_bytes`` bytes in ``size`` bytes."""
    return size // page_bytes


# --- what one sequence and one batch slot need -------------------------------------------------------------------


def window_pages(window: int, page_size: int) -> int:
    """Pages charged for a window of ``window`` tokens, where nothing is reserved past it.

    An average: a window that starts inside a page touches one page more (:meth:`model.geometry.Lifecycle.peak_blocks`).
    """
    return cdiv(window, page_size)


def drafter_window_pages(window: int, page_size: int, drafts: int, extra_tokens: int, trail: int = 0) -> int:
    """Pages of one sequence in the windowed pool of a DFlash or DSpark drafter (seed 003: 34).

    The window, the ``trail`` tokens kept below it and the headroom of one generation step (``drafts`` and the bonus
    token, and ``extra_tokens``) slide over pages of ``page_size`` tokens, so they may straddle one page more.
    """
    headroom = extra_tokens + drafts + 1
    return cdiv(window + trail + headroom - 1, page_size) + 1


def trailing_charge(page_bytes: int, requests: int = 1, windowed_lifecycles: int = 1) -> int:
    """Bytes of the trailing pages: one below each window of each request (seed 002: 320 KiB a request)."""
    return page_bytes * requests * windowed_lifecycles


def admissible_sequences(max_batch: int, run_ahead: int) -> int:
    """Sequences alive at once: ``run_ahead`` more for each batch slot, whose last output is still due, and the padding.

    Also the rows of the device's block table (seed 003: 177 for 88 slots under the overlap scheduler).
    """
    return (run_ahead + 1) * max_batch + 1


def table_columns(max_seq_len: int, page_size: int) -> int:
    """Columns of the device's block table, one past the longest sequence (seed 003: 8,193 for 1,048,576 tokens)."""
    return cdiv(max_seq_len, page_size) + 1


def window_share(limits: Limits, drafter: Drafter, trail: int = 0) -> int:
    """Pages of the drafter's window-sized share: a window for each admissible sequence, and one pass of context.

    Within 1.3 % of the draft groups of seed 003 (4,505 and 6,092 pages) at 8,192 tokens a pass. ``trail`` counts the
    tokens kept below the window. ``BudgetError`` if the drafter has no window.
    """
    if drafter.window is None:
        raise BudgetError("a drafter with full attention has no window-sized share")
    page_size = limits.page_size
    longest = cdiv(limits.max_seq_len + limits.extra_tokens + drafter.drafts + 1, page_size)
    one = drafter_window_pages(drafter.window, page_size, drafter.drafts, limits.extra_tokens, trail)
    sequences = admissible_sequences(limits.max_batch, limits.run_ahead)
    return min(sequences * one + cdiv(limits.max_num_tokens, page_size), sequences * longest)


def below_resume_gate(pages: int, max_util_for_resume: float) -> int:
    """Smallest pool in which ``pages`` pages in use still let a suspended sequence resume."""
    gate = Fraction(str(max_util_for_resume))  # the decimal as written, so that 97 pages at 0.97 give 100
    return -(-pages * gate.denominator // gate.numerator)


# --- splits ------------------------------------------------------------------------------------------------------


def draft_cost(total: Cost, target: Cost) -> Cost:
    """Cost of the drafter, ``total`` less ``target``; ``BudgetError`` if its slope or its intercept is negative."""
    cost = Cost(total.slope - target.slope, total.intercept - target.intercept)
    if cost.slope < 0 or cost.intercept < 0:
        raise BudgetError(f"the target alone costs more ({target}) than the target and its drafter together ({total})")
    return cost


def split_device(budget: int | None, total: Cost, target: Cost) -> Pair | None:
    """Split ``budget`` bytes so that target and drafter hold equally many tokens; the shares sum to the budget.

    ``None`` where there is nothing to split: no budget, or a drafter that costs nothing. What two fixed costs leave
    over goes to the target. ``BudgetError`` if the fixed costs leave no room for a cost that grows with the tokens.
    Source: TensorRT-LLM KVCacheManagerV2.
    """
    draft = draft_cost(total, target)
    if budget is None or draft == Cost(0, 0):
        return None
    room = budget - total.intercept
    if room < 0 or (total.slope > 0 and room == 0):
        raise BudgetError(f"a budget of {budget:,} bytes has no room beside fixed costs of {total.intercept:,} bytes")
    if total.slope == 0:
        return Pair(budget - draft.intercept, draft.intercept)
    share = target.intercept + target.slope * room // total.slope
    return Pair(share, budget - share)


def split_host(host: int, total: Cost, target: Cost) -> Pair:
    """Split ``host`` bytes by the ratio of the slopes; the shares sum to ``host``, a fixed-only drafter gets none."""
    draft_cost(total, target)
    share = host if total.slope == 0 else host * target.slope // total.slope
    return Pair(share, host - share)


def split_host_paired(host: int, draft_device: int) -> Pair:
    """Split ``host`` bytes for a paired drafter: as much as its device pool was funded with, at most half.

    Seed 003: 18.32 of 82.89 GiB, which leaves 64.57 to the target.
    """
    share = min(draft_device, host // 2)
    return Pair(host - share, share)


def pool_sizes(
    layout: Layout,
    page_bytes: Pair,
    device: int,
    host: int,
    limits: Limits,
    drafter: Drafter,
    *,
    trail: int = 0,
    draft_pages_per_slot: int | None = None,
    host_draft: int = 0,
) -> dict[str, PoolSize]:
    """Pages of the pools ``target`` and ``draft`` from ``device`` and ``host`` bytes of memory.

    A drafter with a window gets a fixed share, one with full attention as many tokens as the target, one whose page has
    no bytes no pool at all. ``trail`` is what the layout keeps below the window, in tokens. ``draft_pages_per_slot``
    replaces the window-sized share (341 in the paired pool that seed 003 measured, cause unknown). The unified
    layout leaves its host tier to the target (seed 003: 82.89 GiB) but for ``host_draft`` bytes.

    ``BudgetError`` if a pool would have no page.
    """
    _check(layout, page_bytes, device, host, host_draft)
    if page_bytes.draft == 0:
        return {"target": _pool("target", page_bytes.target, device, host)}
    target = Cost(page_bytes.target)
    if drafter.window is None and draft_pages_per_slot is None:
        total = Cost(page_bytes.target + page_bytes.draft)
    else:
        share = _draft_share(layout, limits, drafter, trail, draft_pages_per_slot)
        total = Cost(page_bytes.target, share * page_bytes.draft)
    on_device = split_device(device, total, target) or Pair(device, 0)
    if layout == "separate":
        on_host = split_host(host, total, target)
    elif layout == "paired":
        on_host = split_host_paired(host, on_device.draft)
    else:
        on_host = Pair(host - host_draft, host_draft)
    return {
        "target": _pool("target", page_bytes.target, on_device.target, on_host.target),
        "draft": _pool("draft", page_bytes.draft, on_device.draft, on_host.draft),
    }


def _check(layout: str, page_bytes: Pair, device: int, host: int, host_draft: int) -> None:
    """Refuse figures that no split makes sense of."""
    if layout not in get_args(Layout):
        raise BudgetError(f"layout {layout!r} is not one of {', '.join(get_args(Layout))}")
    if page_bytes.target <= 0 or page_bytes.draft < 0:
        raise BudgetError(f"a page cannot have {page_bytes.target:,} (target) and {page_bytes.draft:,} (draft) bytes")
    if device <= 0 or host < 0:
        raise BudgetError(f"{device:,} bytes on the device and {host:,} on the host are no budget")
    if not 0 <= host_draft <= host or (host_draft and layout != "unified"):
        raise BudgetError(f"the drafter cannot be given {host_draft:,} of {host:,} host bytes in the {layout} layout")


def _draft_share(layout: str, limits: Limits, drafter: Drafter, trail: int, pages_per_slot: int | None) -> int:
    """Pages of a drafter with a fixed share. A pool of its own has its own resume gate to stay below."""
    if pages_per_slot is not None:
        return pages_per_slot * limits.max_batch
    share = window_share(limits, drafter, trail)
    return share if layout == "unified" else below_resume_gate(share, limits.max_util_for_resume)


def _pool(name: str, page_bytes: int, device: int, host: int) -> PoolSize:
    """Whole pages of one pool."""
    pages = pages_for(device, page_bytes)
    if pages < 1:
        raise BudgetError(f"the {name} pool gets {device:,} bytes on the device, less than one page of {page_bytes:,}")
    return PoolSize(pages, pages_for(host, page_bytes))


# --- agreement over ranks ----------------------------------------------------------------------------------------


def agree_host(outcomes: Iterable[HostOutcome]) -> HostOutcome:
    """The worst outcome of all ranks: one rank without a host tier and none has one."""
    return max(outcomes, default=HostOutcome.KEEP_HOST)


def agree_sizes(
    ranks: Sequence[Mapping[str, PoolSize]], outcome: HostOutcome = HostOutcome.KEEP_HOST
) -> dict[str, PoolSize]:
    """Pool sizes that every rank can hold: the minimum over ``ranks``, pool by pool and tier by tier.

    Ranks that kept sizes of their own would disagree on who may resume and hang in a collective. ``BudgetError`` if
    the ranks have different pools, there is no rank, or the host tier's ``outcome`` is to abort.
    """
    if not ranks:
        raise BudgetError("no rank reported its pool sizes")
    if outcome is HostOutcome.ABORT:
        raise BudgetError("a rank could not set up its host tier and asked all ranks to abort")
    if any(rank.keys() != ranks[0].keys() for rank in ranks):
        names = sorted({name for rank in ranks for name in rank})
        raise BudgetError(f"not every rank has all of the pools {', '.join(names)}")
    keeps_host = outcome is HostOutcome.KEEP_HOST
    return {
        name: PoolSize(
            min(rank[name].device_pages for rank in ranks),
            min(rank[name].host_pages for rank in ranks) if keeps_host else 0,
        )
        for name in ranks[0]
    }
