"""Engines: page sizes, drafters, layers and limits at which rules meet. Pools are sized later, when requests are known.

Sizes of the toy profile are those of semantics 14; the realistic one has pages of 128 and a window of 4096.
"""

from __future__ import annotations

from model.config import Drafter, EngineConfig, Limits, PoolSize
from model.drafter import KINDS
from model.geometry import Lifecycle
from property_tests.fuzz.choices import Choices, T
from property_tests.fuzz.generate.mix import Mix

ROOMY = 64  # pages of a pool in which nothing is short
WINDOWS = (6, 3, 8, 4, 1, 12, 5, 2, 7, 10, 9, 11)
DRAFTS = (2, 1, 3, 1, 5, 7, 4)
VOCABULARIES = (4096, 4096, 4096, 4096, 2, 3)  # with few token ids prompts part and meet again anywhere
GATES = (0.97, 1.0, 0.97, 0.5, 0.75)
LONGEST = 160  # tokens of a toy request, when nothing limits it more tightly
PATIENCE = 16  # passes that move nothing, until the deadlock detector speaks


def heaviest(choices: Choices, entries: tuple[tuple[T, int], ...]) -> T:
    """One of the weighted ``entries``."""
    return entries[choices.weighted([weight for _, weight in entries])][0]


def page_size(choices: Choices) -> int:
    """Tokens of a page."""
    return choices.pick((4, 2, 8, 4))


def drafter(choices: Choices, mix: Mix) -> Drafter:
    """A drafter of any kind, K and window."""
    kind = heaviest(choices, mix.kinds)
    drafts = choices.pick(DRAFTS)
    window = None if choices.chance(mix.windowless) else choices.pick(WINDOWS)
    chain = choices.between(1, 3) if kind == "mtp" else 1
    return Drafter(kind, drafts, window, chain)


def lifecycles(
    choices: Choices, mix: Mix, chosen: Drafter, page: int
) -> tuple[tuple[Lifecycle, ...], tuple[Lifecycle, ...]]:
    """The target's layers, full and perhaps windowed in one pool or two, and the drafter's."""
    target = [Lifecycle("full", "target", "target")]
    if choices.chance(mix.layers):
        pool, sinks = choices.pick(("target", "target", "swa")), choices.pick((0, 0, page))
        target.append(Lifecycle("swa", pool, "target", choices.pick(WINDOWS), sinks))
    if not KINDS[chosen.kind].has_pool:
        return tuple(target), ()
    sinks = page * choices.pick(mix.sinks) if chosen.window else 0
    span = KINDS[chosen.kind].tag_span(chosen.chain)
    draft = [Lifecycle("draft", "draft", "draft", chosen.window, sinks, lookahead=span)]
    if choices.chance(8):
        draft.append(Lifecycle("wide", "draft", "draft", choices.pick((None, 5, 16)), lookahead=span))
    return tuple(target), tuple(draft)


def limits(choices: Choices, mix: Mix, drafts: int, page: int) -> Limits:
    """Limits of one engine: budgets of hardly more than a chunk are as likely as ample ones."""
    unit = choices.pick((page, page, page, 2 * page, 1, 3))
    whole = choices.chance(12)
    budget = unit + drafts + choices.pick((24, 8, 2 * page, page, 0, 1, 5, 40))
    batch = choices.pick((4, 3, 2, 5, 1))
    graphs: tuple[int, ...] = ()
    if choices.chance(mix.graphs):
        graphs = choices.pick(((batch,), tuple(sorted({1, batch})), tuple(sorted({max(1, batch - 1), batch}))))
    return Limits(
        page_size=page,
        max_batch=batch,
        max_num_tokens=choices.pick((LONGEST, LONGEST, LONGEST // 4)) if whole else budget,
        max_seq_len=LONGEST,
        chunk_unit=unit,
        chunked_prefill=not whole,
        extra_tokens=choices.pick((0, 0, drafts + 1, 3)),
        max_util_for_resume=choices.pick(GATES),
        run_ahead=int(choices.chance(mix.run_ahead)),
        stall_passes=PATIENCE,
        partial_children=choices.pick(mix.children),
        deferral=not choices.chance(20),
        graph_batches=graphs,
    )


def engine(choices: Choices, mix: Mix) -> EngineConfig:
    """An engine of toy sizes with roomy pools."""
    page = page_size(choices)
    chosen = drafter(choices, mix)
    bounds = limits(choices, mix, chosen.drafts, page)
    target, draft = lifecycles(choices, mix, chosen, page)
    policy = heaviest(choices, mix.policies)
    host = choices.pick((6, 12, 3, 24)) if choices.chance(mix.host) else 0
    copies = bool(host) and choices.chance(mix.copies)
    return EngineConfig(
        target=target,
        draft=draft,
        drafter=chosen,
        limits=bounds,
        pools={life.pool: PoolSize(ROOMY, host) for life in (*target, *draft)},
        policy=policy,
        max_num_turns=choices.pick((1, 1, 2)),
        vocabulary=choices.pick(VOCABULARIES),
        asynchronous_copies=copies,
    )


def realistic(choices: Choices, mix: Mix) -> EngineConfig:
    """An engine with pages of 128 tokens and a drafter window of 4096, for the arithmetic of large numbers."""
    kind = heaviest(choices, mix.kinds)
    chosen = Drafter(kind, choices.pick((7, 3)), choices.pick((4096, 2048, None)), 1)
    target = (Lifecycle("full", "target", "target"),)
    span = KINDS[kind].tag_span(chosen.chain)
    draft = (Lifecycle("draft", "draft", "draft", chosen.window, lookahead=span),) if KINDS[kind].has_pool else ()
    bounds = Limits(
        page_size=128,
        max_batch=8,
        max_num_tokens=choices.pick((8192, 4096, 2048)),
        max_seq_len=131_072,
        chunk_unit=128,
        extra_tokens=choices.pick((0, 8)),
        run_ahead=int(choices.chance(mix.run_ahead)),
        stall_passes=PATIENCE,
    )
    pools = {life.pool: PoolSize(1024) for life in (*target, *draft)}
    policy = heaviest(choices, mix.policies)
    return EngineConfig(target, draft, chosen, bounds, pools, policy)
