"""From the memory of one rank to pools in pages, as the rules of a build split it."""

from __future__ import annotations

from model.budget import Layout, Pair, SplitAsk, pool_sizes
from model.config import EngineConfig, Memory, PoolSize
from model.drafter import KINDS
from model.geometry import Lifecycle
from model.rules.base import Rules
from model.rules.layout import Shape
from scenarios.engine_schema import PoolBytes

_LAYOUTS: dict[Shape, Layout] = {Shape.SEPARATE: "separate", Shape.PAIRED: "paired", Shape.UNIFIED: "unified"}


def layout_for(config: EngineConfig, rules: Rules) -> Layout:
    """How a build lays out the pools of an engine; a drafter that cannot pair has a pool beside the target's."""
    kind, layout = KINDS[config.drafter.kind], rules.layout
    if not config.draft or not rules.pairing.allows(kind, config.drafter, config.limits.page_size):
        return "separate"
    if layout.shape is Shape.UNIFIED and (layout.fused or layout.shares_pool):
        return "fused" if layout.fused else "shared"
    return _LAYOUTS[layout.shape]


def ask_of(memory: PoolBytes, page_bytes: Pair, config: EngineConfig, rules: Rules) -> tuple[SplitAsk, Layout]:
    """What the split of ``memory`` starts from: what is kept below a window, sinks too, is charged where one is."""
    kind, page = KINDS[config.drafter.kind], config.limits.page_size
    layout = layout_for(config, rules)
    windowed = [life for life in config.draft if life.window is not None]
    windows = [life.window for life in config.target]

    def kept(life: Lifecycle) -> int:
        return rules.retention.trail(life, kind, page) + life.sink_blocks(page) * page  # sinks are whole pages

    ask = SplitAsk(
        page_bytes,
        memory.device,
        memory.host,
        config.limits,
        config.drafter,
        trail=max((kept(life) for life in windowed), default=0),
        draft_pages_per_slot=memory.draft_pages_per_slot,
        host_draft=memory.host_draft if layout == "unified" else 0,
        target_window=None if None in windows else max(window or 0 for window in windows),
    )
    return ask, layout


def split(layout: Layout, ask: SplitAsk, rules: Rules) -> dict[str, PoolSize]:
    """Pools in pages; ``BudgetError`` for memory that they do not fit in."""
    return pool_sizes(layout, ask, rules.budget)


def memory_of(layout: Layout, ask: SplitAsk) -> Memory:
    """The memory beside the pools that were split from it."""
    target, draft = ask.page_bytes
    if layout == "shared":
        pages = (("target", max(ask.page_bytes)),)
    else:
        pages = (("target", target), ("draft", draft)) if draft else (("target", target),)
    by_hand = ask.draft_pages_per_slot is not None and layout in ("separate", "paired")
    return Memory(ask.device, ask.host, pages, by_hand)
