"""Small real objects that the tests of this room share: key views, managers and worlds with pages of 4 tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from model.builds import BUILDS, Build
from model.config import Drafter, EngineConfig, Limits, PoolSize, PublishPolicy, RequestSpec, Scope
from model.geometry import Lifecycle
from model.joint import Twin
from model.manager import Manager
from model.ops import Dispatch, Settle, Submit, World
from model.pages import PagePool
from model.plan import Recorder, StepPlan
from model.request import Request, RequestRecord, State, Totals
from model.rules.base import Rules
from model.rules.claim import Claim
from model.rules.keys import KeysRule, KeyView, MatchBackoff
from model.sequence import SequenceCache
from model.table import NO_PAGE
from model.tokens import Segment, TokenStream
from model.tree import Match

PAGE = 4
UNSCOPED = Scope()
NOTHING = Match([], 0)
LIMITS = Limits(PAGE, max_batch=4, max_num_tokens=32, max_seq_len=256, chunk_unit=PAGE, stall_passes=20)


def unknown(start: int, count: int) -> NDArray[np.uint32]:
    """Ids behind a prompt, for tests that never look at them by value."""
    return np.arange(start, start + count, dtype=np.uint32) + np.uint32(900)


def stream(ids: Sequence[int]) -> TokenStream:
    """The token stream of a prompt."""
    return TokenStream(np.array(ids, dtype=np.uint32), unknown)


def view(
    ids: Sequence[int],
    *,
    page: int = PAGE,
    lookahead: int = 0,
    rule: KeysRule | None = None,
    scope: Scope | None = None,
) -> KeyView:
    """The keys of a prompt."""
    return (rule or MatchBackoff()).view(stream(ids), len(ids), scope or Scope(), lookahead, page)


def lifecycle(name: str = "target", window: int | None = None, **fields: object) -> Lifecycle:
    """A lifecycle with a pool of its own name."""
    values = {"pool": name, "role": "target", **fields}
    return Lifecycle(name, window=window, **values)  # pyright: ignore[reportArgumentType]


def manager(
    *lives: Lifecycle, pages: int = 16, host: int = 0, rules: Rules | None = None, limits: Limits = LIMITS
) -> Manager:
    """A manager of these lifecycles with ``pages`` device and ``host`` host pages in each pool."""
    lives = lives or (lifecycle(),)
    names = dict.fromkeys(life.pool for life in lives)
    pools = {name: PagePool(name, index, pages, host) for index, name in enumerate(names)}
    return Manager("target", lives, pools, limits, rules or Rules(), Recorder())


def opened(manager: Manager, owner: int, ids: Sequence[int], **keys: object) -> SequenceCache:
    """A running sequence that reuses nothing and is backed for the whole prompt, with no cell written yet."""
    sequence = manager.create(owner, view(ids, **keys), NOTHING, 0)  # pyright: ignore[reportArgumentType]
    assert sequence.resume()
    assert sequence.resize(len(ids), 0)
    return sequence


def published(manager: Manager, owner: int, ids: Sequence[int], *, keep: bool = False) -> SequenceCache:
    """Compute a whole prompt and publish it, its partial last page included; the pages are only cached afterwards."""
    sequence = opened(manager, owner, ids)
    sequence.wrote(len(ids))
    manager.commit(sequence, len(ids), final=True)
    sequence.settle(len(ids))
    if not keep:
        manager.free(owner)
    return sequence


def claimed(manager: Manager, owner: int, ids: Sequence[int], limit: int | None = None) -> SequenceCache:
    """A suspended sequence that claims what the manager holds of a prompt, at most ``limit`` tokens."""
    keys = view(ids)
    probe = manager.probe(keys, limit)
    return manager.create(owner, keys, probe.match, probe.tokens)


# -- worlds -----------------------------------------------------------------------------------------------------------


def config(
    *,
    drafter: Drafter | None = None,
    pages: int = 64,
    draft_pages: int = 64,
    host: int = 0,
    target: tuple[Lifecycle, ...] = (),
    policy: PublishPolicy = PublishPolicy.ALL_REUSABLE,
    **limits: object,
) -> EngineConfig:
    """An engine on toy sizes: full-attention target, DFlash drafter with K = 3 and a window of 8 tokens."""
    drafter = drafter or Drafter("dflash", 3, 8)
    target = target or (Lifecycle("target", "target", "target"),)
    values: dict[str, object] = {
        "page_size": PAGE,
        "max_batch": 4,
        "max_num_tokens": 32,
        "max_seq_len": 256,
        "chunk_unit": PAGE,
        "stall_passes": 20,
        **limits,
    }
    pools = {life.pool: PoolSize(pages, host) for life in target}
    draft = (Lifecycle("draft", "draft", "draft", window=drafter.window),)
    return EngineConfig(
        target,
        draft,
        drafter,
        Limits(**values),  # pyright: ignore[reportArgumentType]
        {**pools, "draft": PoolSize(draft_pages, host)},
        policy,
        vocabulary=4096,
    )


def world(settings: EngineConfig, build: str | Build = "unified", **options: object) -> World:
    """A world that checks everything after everything."""
    build = BUILDS[build] if isinstance(build, str) else build
    values: dict[str, object] = {"check": "exhaustive", **options}
    return World(settings, build, **values)  # pyright: ignore[reportArgumentType]


def spec(request_id: int, ids: Sequence[int] | int, output: int = 4, **fields: object) -> RequestSpec:
    """A request: token ids as given, or that many ids that no other request shares."""
    prompt = Segment(7000 + request_id, ids) if isinstance(ids, int) else Segment.of(tuple(ids))
    return RequestSpec(request_id, (prompt,), output, 500 + request_id, **fields)  # pyright: ignore[reportArgumentType]


def submit(world: World, *specs: RequestSpec) -> None:
    """Send requests."""
    for one in specs:
        outcome = world.apply(Submit(one))
        assert outcome.applied, outcome.why


def dispatch(world: World) -> StepPlan:
    """Dispatch one iteration that has something to run."""
    outcome = world.apply(Dispatch())
    assert outcome.plan is not None, outcome.why
    return outcome.plan


def settle(world: World, accepted: int = 1) -> None:
    """Settle the oldest iteration, every row with the same count."""
    rows = len(world.engine.plans[0].generation)
    assert world.apply(Settle((accepted,) * rows)).applied


def step(world: World, accepted: int = 1) -> StepPlan:
    """Dispatch an iteration and settle it at once."""
    plan = dispatch(world)
    settle(world, accepted)
    return plan


def serve(world: World, *specs: RequestSpec, accepted: int = 2) -> World:
    """Send requests and serve everything to its end, the host as far ahead of the device as it may be."""
    submit(world, *specs)
    while world.engine.has_work():
        if not world.apply(Dispatch()).applied:
            settle(world, accepted)
    world.drain()
    return world


def codes(world: World) -> set[str]:
    """Codes of the laws that were broken."""
    return {violation.code for violation in world.violations}


# -- pairs of pools ---------------------------------------------------------------------------------------------------


def twin_of(settings: EngineConfig, build: str | Build = "paired-22") -> Twin:
    """The managers of one engine without the engine."""
    build = BUILDS[build] if isinstance(build, str) else build
    return Twin(settings, build.rules, Recorder())


def arrived(twin: Twin, owner: int, ids: Sequence[int], output: int = 4) -> Request:
    """A request whose tokens and keys are known and that holds nothing yet."""
    request = Request(spec(owner, ids, output), owner, RequestRecord(owner, -1, len(ids)))
    request.owner = owner
    request.stream = stream(ids)
    request.context_length = len(ids)
    twin.make_keys(request)
    return request


def claim_of(twin: Twin, owner: int, ids: Sequence[int]) -> Claim:
    """Where a request would start, without keeping what it claims."""
    request = arrived(twin, owner, ids)
    claim = twin.claim(request, Totals())
    twin.free(request)
    return claim


def admitted(twin: Twin, owner: int, ids: Sequence[int], totals: Totals | None = None) -> Request:
    """A request that claimed what it could."""
    request = arrived(twin, owner, ids)
    request.claim = twin.claim(request, totals or Totals())
    request.cursor = request.claim.tokens
    return request


def prefilled(twin: Twin, owner: int, ids: Sequence[int], *, keep: bool = False) -> Request:
    """A request whose whole context was computed in one chunk; afterwards its pages are only cached."""
    request = admitted(twin, owner, ids)
    assert twin.grow_context(request, len(ids), last=True)
    twin.advance(request, len(ids), last=True)
    request.cursor = len(ids)
    request.started, request.state = True, State.GENERATION
    request.generated = 1
    if not keep:
        twin.free(request)
    return request


def lose(manager: Manager, ids: Sequence[int], *blocks: int, column: int = 0) -> None:
    """A pool takes the pages that it still has of some blocks of a cached prompt."""
    keys = view([*ids, 4095])
    nodes = manager.tree.match(keys.seed, keys.keys, keys.items, keys.lookup(None)).nodes
    for block in blocks:
        if block < len(nodes) and nodes[block].pages[column] != NO_PAGE:
            manager.tree.lose(nodes[block], column)
