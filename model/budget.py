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
from typing import Literal, NamedTuple, Protocol, get_args

from model.config import Drafter, Limits, PoolSize
from model.geometry import cdiv

GIB = 1 << 30

Layout = Literal["separate", "paired", "unified", "shared", "fused"]


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


class HostShare(enum.Enum):
    """What a drafter's pool gets of the host tier."""

    SLOPES = "by the slopes"  # a cost that does not grow with the tokens gets none
    FUNDING = "as much as on the device, at most half"  # seed 000
    GIVEN = "what it is given"  # seed 003: the unified layout leaves the rest to the target


class BudgetRule(Protocol):
    """Answers at the steps of :func:`pool_sizes`; ``model.rules.budget`` has the answers."""

    def share(self, limits: Limits, drafter: Drafter, trail: int, target_window: int | None) -> int:
        """Pages of the window-sized share."""
        ...

    def on_device(self, budget: int, total: Cost, target: Cost) -> Pair:
        """Device bytes of both pools."""
        ...

    def on_host(self, host: int, total: Cost, target: Cost, draft_device: int, given: int) -> Pair:
        """Host bytes of both pools; ``given`` of them are set aside for the drafter."""
        ...


@dataclass(frozen=True, slots=True)
class SplitAsk:
    """What a split starts from, on one rank: memory in bytes and the figures that the shares follow from.

    ``trail`` is what the layout keeps below the drafter's window, in tokens. ``draft_pages_per_slot`` replaces the
    window-sized share of a drafter's pool of its own (341 in the paired pool that seed 003 measured, cause unknown).
    ``host_draft`` of the ``host`` bytes are the drafter's in the unified layout. ``target_window`` is the target's own.
    """

    page_bytes: Pair
    device: int
    host: int
    limits: Limits
    drafter: Drafter
    trail: int = 0
    draft_pages_per_slot: int | None = None
    host_draft: int = 0
    target_window: int | None = None


def pool_sizes(layout: Layout, ask: SplitAsk, rule: BudgetRule) -> dict[str, PoolSize]:
    """Pages of the pools ``target`` and ``draft`` from the memory of ``ask``.

    A drafter with a window gets a fixed share, one with full attention as many tokens as the target, one whose page has
    no bytes no pool at all. In the ``fused`` layout both have equally many pages; in the ``shared`` one both names
    stand for the same pool, of pages that either of them fits in.

    ``BudgetError`` if a pool would have no page.
    """
    _check(layout, ask)
    page_bytes, device, host = ask.page_bytes, ask.device, ask.host
    if page_bytes.draft == 0:
        return {"target": _pool("target", page_bytes.target, device, host)}
    if layout in ("shared", "fused"):
        both = _pool("target", max(page_bytes) if layout == "shared" else sum(page_bytes), device, host)
        return {"target": both, "draft": both}
    target = Cost(page_bytes.target)
    if ask.drafter.window is None and not _own_share(layout, ask):
        total = Cost(page_bytes.target + page_bytes.draft)
    else:
        total = Cost(page_bytes.target, _draft_share(layout, ask, rule) * page_bytes.draft)
    on_device = rule.on_device(device, total, target)
    on_host = rule.on_host(host, total, target, on_device.draft, ask.host_draft)
    return {
        "target": _pool("target", page_bytes.target, on_device.target, on_host.target),
        "draft": _pool("draft", page_bytes.draft, on_device.draft, on_host.draft),
    }


def _check(layout: str, ask: SplitAsk) -> None:
    """Refuse figures that no split makes sense of."""
    page_bytes, device, host = ask.page_bytes, ask.device, ask.host
    if layout not in get_args(Layout):
        raise BudgetError(f"layout {layout!r} is not one of {', '.join(get_args(Layout))}")
    if page_bytes.target <= 0 or page_bytes.draft < 0:
        raise BudgetError(f"a page cannot have {page_bytes.target:,} (target) and {page_bytes.draft:,} (draft) bytes")
    if device <= 0 or host < 0:
        raise BudgetError(f"{device:,} bytes on the device and {host:,} on the host are no budget")
    if not 0 <= ask.host_draft <= host or (ask.host_draft and layout != "unified"):
        raise BudgetError(
            f"the drafter cannot be given {ask.host_draft:,} of {host:,} host bytes in the {layout} layout"
        )


def _own_share(layout: str, ask: SplitAsk) -> bool:
    """Whether the drafter's pool is one of its own, with a share that was given by hand."""
    return layout != "unified" and ask.draft_pages_per_slot is not None


def _draft_share(layout: str, ask: SplitAsk, rule: BudgetRule) -> int:
    """Pages of a drafter with a fixed share. A pool of its own has its own resume gate to stay below."""
    if layout == "unified":
        return rule.share(ask.limits, ask.drafter, ask.trail, ask.target_window)
    if ask.draft_pages_per_slot is not None:
        return ask.draft_pages_per_slot * ask.limits.max_batch
    share = rule.share(ask.limits, ask.drafter, ask.trail, ask.target_window)
    return below_resume_gate(share, ask.limits.max_util_for_resume)


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
