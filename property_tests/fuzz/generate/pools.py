"""Pools: a few pages short of comfort, sized by what the engine says that the requests need, or split from bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from model.budget import BudgetError, Pair
from model.builds import Build
from model.config import EngineConfig, PoolSize, RequestSpec
from model.dummies import PAD_TOKENS
from model.engine import Engine
from model.events import EventLog
from model.geometry import Lifecycle
from model.rules.admission import Admission
from property_tests.fuzz.choices import Choices
from property_tests.fuzz.generate.engine import ROOMY
from scenarios.budget_build import ask_of, memory_of, split
from scenarios.engine_schema import PoolBytes


def needs(config: EngineConfig, build: Build, specs: Sequence[RequestSpec], pads: bool) -> Counter[str]:
    """Pages by pool without which some of ``specs`` would be refused; ``pads``: beside the dummies of a fleet."""
    rules = replace(build.rules, admission=Admission())  # what is needed, whatever the build counts
    engine = Engine(replace(config, asynchronous_copies=False), rules, EventLog(False))
    need: Counter[str] = Counter()
    for spec in specs:
        for name, pages in engine.pages_needed(spec).items():
            need[name] = max(need[name], pages)
    for name in need:
        if pads:
            need[name] += engine.dummies.estimate(PAD_TOKENS, config.limits.run_ahead).get(name, 0)
    if build.rules.layout.fused:
        need["target"] = max(need.values(), default=1)  # fused pages are the target's
    return need


def fitted(config: EngineConfig, need: Counter[str], slack: dict[str, int]) -> EngineConfig:
    """``config`` with pools of ``need`` pages and ``slack`` more; one that nobody needs pages of stays roomy."""
    pools = {
        name: PoolSize(max(1, need[name] + slack.get(name, 0)) if need[name] else ROOMY, size.host_pages)
        for name, size in config.pools.items()
    }
    return replace(config, pools=pools)


def slack(choices: Choices, tight: bool, short: bool) -> int:
    """Pages above what the largest request needs, or below it: that one is to be refused."""
    if short:
        return choices.pick((-1, -2, -3))
    return choices.pick((0, 1, 2, 3, 0, 1, 5) if tight else (ROOMY, 8, 20))


def from_bytes(choices: Choices, config: EngineConfig, build: Build) -> EngineConfig | None:
    """``config`` with pools split from the memory of a rank by the build's rule; ``None`` if nothing useful fits."""
    if {life.pool for life in (*config.target, *config.draft)} - {"target", "draft"}:
        return None
    page = config.limits.page_size
    cell = choices.pick((Pair(4, 1), Pair(2, 1), Pair(3, 3), Pair(8, 1)))

    def sized(lives: tuple[Lifecycle, ...], size: int) -> tuple[Lifecycle, ...]:
        return tuple(replace(life, bytes_per_token=size) for life in lives)

    draft = config.draft[:1]  # a share is that of one window
    config = replace(config, target=sized(config.target, cell.target), draft=sized(draft, cell.draft))
    pages = Pair(cell.target * page * len(config.target), cell.draft * page * len(config.draft))
    device = choices.between(24, 96) * sum(pages)
    host = choices.between(4, 24) * sum(pages) if any(size.host_pages for size in config.pools.values()) else 0
    try:
        ask, layout = ask_of(PoolBytes(device=device, host=host), pages, config, build.rules)
        pools = split(layout, ask, build.rules)
    except BudgetError:
        return None
    return replace(config, pools={name: pools[name] for name in config.pools}, memory=memory_of(layout, ask))
