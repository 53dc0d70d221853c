"""Random small worlds: geometries on page edges, prompts that share prefixes, and a driver that gives no rest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from model.builds import BUILDS, Build
from model.config import Drafter, EngineConfig, Limits, PoolSize, PublishPolicy, RequestSpec, Scope
from model.drafter import KINDS
from model.geometry import Lifecycle
from model.ops import Cancel, Dispatch, Fail, Land, Lose, Op, Settle, Shrink, Submit, Suspend, World
from model.tokens import Segment

CORRECT = tuple(build.name for build in BUILDS.values() if build.correct)
VOCABULARIES = (4096, 4096, 4096, 2, 3)  # with few token ids prompts part and meet again anywhere
PATIENCE = 4000  # turns of the driver within which every toy world ends
_SHORT = re.compile(r"needs up to (\d+) pages of pool '(\w+)'")


@dataclass(frozen=True)
class Rates:
    """Chance of each disturbance in one turn of the driver."""

    suspend: float = 0.04
    skip: float = 0.03
    fail: float = 0.03
    cancel: float = 0.02
    shrink: float = 0.02
    again: float = 0.03  # an ended request's id is used for a new one
    early: float = 0.3  # the oldest step settles although another could be dispatched
    land: float = 0.5  # each copy under way lands, if it may
    lose: float = 0.04  # or fails


CALM = Rates(0, 0, 0, 0, 0, 0, 0, lose=0)


def random_config(rng: Random, kind: str | None = None) -> EngineConfig:
    """A toy engine; its pools are roomy until :func:`fitted` sizes them."""
    page = rng.choice((2, 4, 8))
    drafts = rng.choice((0, 1, 1, 2, 3, 3, 5, 7))
    kind = kind or rng.choice((*KINDS, "dflash", "dspark", "dspark", "eagle3"))
    drafter = Drafter(kind, drafts, rng.choice((None, 1, 3, 8, 8, 12)), rng.randint(1, 3))
    unit = rng.choice((page, page, 2 * page, 1, 3))
    limits = Limits(
        page_size=page,
        max_batch=rng.randint(1, 5),
        max_num_tokens=max(2, unit + drafts + rng.choice((0, 1, 5, 16, 40))),
        max_seq_len=160,
        chunk_unit=unit,
        chunked_prefill=rng.random() < 0.85,
        extra_tokens=rng.choice((0, drafts + 1, 3)),
        max_util_for_resume=rng.choice((0.97, 0.97, 1.0, 0.5)),
        run_ahead=rng.choice((0, 1, 1)),
        stall_passes=60,
        partial_children=rng.choice((32, 32, 2)),
        deferral=rng.random() < 0.8,
    )
    if not limits.chunked_prefill:
        limits = replace(limits, max_num_tokens=130)
    target, draft = _lifecycles(rng, drafter, page)
    host = rng.choice((0, 0, 0, 6, 20))
    names = dict.fromkeys(life.pool for life in (*target, *draft))
    return EngineConfig(
        target=target,
        draft=draft,
        drafter=drafter,
        limits=limits,
        pools={name: PoolSize(160, host) for name in names},
        policy=rng.choice((*PublishPolicy, PublishPolicy.ALL_REUSABLE, PublishPolicy.ALL_REUSABLE)),
        vocabulary=rng.choice(VOCABULARIES),
    )


def _lifecycles(rng: Random, drafter: Drafter, page: int) -> tuple[tuple[Lifecycle, ...], tuple[Lifecycle, ...]]:
    """The target's layers, full and perhaps windowed in one pool or two, and the drafter's."""
    target = [Lifecycle("full", "target", "target")]
    if rng.random() < 0.4:
        pool, sinks = rng.choice(("target", "swa")), rng.choice((0, 0, page, 3))
        target.append(Lifecycle("swa", pool, "target", rng.choice((1, 3, 6, 12)), sinks))
    if not KINDS[drafter.kind].has_pool:
        return tuple(target), ()
    sinks = rng.choice((0, 0, 0, page)) if drafter.window else 0
    draft = [Lifecycle("draft", "draft", "draft", drafter.window, sinks)]
    if rng.random() < 0.1:
        draft.append(Lifecycle("wide", "draft", "draft", rng.choice((None, 5, 16))))
    return tuple(target), tuple(draft)


def random_specs(rng: Random, count: int, longest: int = 60) -> list[RequestSpec]:
    """Requests whose prompts repeat, share starts of any length, and go on from earlier outputs."""
    specs: list[RequestSpec] = []
    systems = [rng.randint(2, longest // 2) for _ in range(2)]
    for request_id in range(count):
        kind = rng.random()
        earlier = rng.choice(specs) if specs else None
        if earlier is not None and kind < 0.2:
            prompt = earlier.prompt
        elif earlier is not None and kind < 0.4 and _length(earlier.prompt) + earlier.max_new_tokens < longest:
            said = Segment(earlier.output_seed, rng.randint(1, earlier.max_new_tokens))
            prompt = (*earlier.prompt, said, Segment(rng.randrange(3), rng.randint(1, 9)))
        else:
            shared = rng.choice((*systems, rng.randint(0, longest // 2)))
            prompt = (Segment(rng.randrange(3), shared),) if shared else ()
            middle = rng.choice((0, 0, rng.randint(1, 9)))
            prompt += (Segment(50 + rng.randrange(2), middle),) if middle else ()
            prompt += (Segment(100 + rng.randrange(4), rng.randint(1, rng.choice((4, longest // 3)))),)
        scope, priority = Scope(salt=rng.choice(("", "", "", "", "other"))), rng.choice((0, 0, 0, 1, -1))
        output, turn = (rng.randint(1, 18), 5000 + request_id), rng.randrange(-1, 3)
        specs.append(RequestSpec(request_id, prompt, *output, turn, scope, priority))
    return specs


def _length(prompt: Sequence[Segment]) -> int:
    return sum(segment.length for segment in prompt)


def fitted(config: EngineConfig, build: Build, specs: Sequence[RequestSpec], slack: int) -> EngineConfig:
    """``config`` with pools of just as many pages as the engine says that each of ``specs`` may need, and ``slack``."""
    pools = {name: PoolSize(1, size.host_pages) for name, size in config.pools.items()}
    for spec in specs:
        while True:
            why = World(replace(config, pools=pools), build, check="off").engine.refusal(spec)
            match = _SHORT.search(why or "")
            if match is None:
                break
            pages = int(match[1])
            name = match[2] if pools[match[2]].device_pages < pages else "target"  # fused pages are the target's
            pools[name] = PoolSize(pages, pools[name].host_pages)
    roomy = {name: PoolSize(size.device_pages + slack, size.host_pages) for name, size in pools.items()}
    return replace(config, pools=roomy)


class Driver:
    """Drives a world at random: submits, dispatches, settles, and disturbs by ``rates``."""

    def __init__(self, world: World, specs: Sequence[RequestSpec], rng: Random, rates: Rates) -> None:
        self.world, self.rng, self.rates = world, rng, rates
        self.todo = list(specs)
        self.sent: list[RequestSpec] = []
        self.copies = Random(len(specs))  # a source of its own: worlds without copies stay what they were
        self.encores = len(specs)  # how often an id may be used again, so that every run ends

    def run(self) -> bool:
        """Run until no work is left, then drain; whether it came to an end."""
        engine = self.world.engine
        for _ in range(PATIENCE):
            if not self.todo and not engine.has_work() and not engine.book:
                break
            self.turn()
        self.world.drain()
        return not self.todo and not engine.has_work()

    def turn(self) -> None:
        """One turn: perhaps a submission and disturbances, then a dispatch or a settle."""
        rng, engine = self.rng, self.world.engine
        if self.todo and (rng.random() < 0.5 or not engine.has_work()):
            self._submit(self.todo.pop(0))
        self._disturb()
        self._copies()
        if engine.in_flight and rng.random() < self.rates.early:
            self._settle()
            return
        applied = engine.in_flight <= self.world.config.limits.run_ahead and self.world.apply(Dispatch()).applied
        if engine.in_flight and not applied:
            self._settle()

    def _submit(self, spec: RequestSpec) -> None:
        if self.world.apply(Submit(spec)).applied:
            self.sent.append(spec)

    def _copies(self) -> None:
        """Copies under way land or fail, in no order."""
        world, rng, book = self.world, self.copies, self.world.engine.book
        for number in rng.sample(tuple(book.open), len(book.open)) if book is not None and book.open else ():
            if rng.random() < self.rates.land:
                world.apply(Lose(number) if rng.random() < self.rates.lose else Land(number))

    def _settle(self) -> None:
        plan, book = self.world.engine.plans[0], self.world.engine.book
        if book is not None and not book.open.keys().isdisjoint(plan.waits):
            return  # its copies have to end first
        rows = plan.generation
        self.world.apply(Settle(tuple(self.rng.randint(1, row.width) for row in rows)))

    def _disturb(self) -> None:
        rng, rates, world = self.rng, self.rates, self.world
        live = list(world.engine.live)
        ops: list[tuple[float, Op]] = [(rates.skip, Dispatch(skip=True)), (rates.fail, Fail())]
        if live:
            ops += [(rates.suspend, Suspend(rng.choice(live))), (rates.cancel, Cancel(rng.choice(live)))]
        if rates.shrink:
            ops.append((rates.shrink, Shrink(rng.choice(list(world.engine.twin.pools)), rng.randint(0, 6))))
        for chance, op in ops:
            if rng.random() < chance:
                world.apply(op)
        over = [spec for spec in self.sent if spec.request_id not in world.engine.live]
        if over and self.encores and rng.random() < rates.again:
            self.encores -= 1
            spec = rng.choice(over)
            self._submit(replace(spec, output_seed=spec.output_seed + 1000))


def random_world(seed: int, build: str, *, tight: bool = False, check: str = "exhaustive") -> tuple[World, Driver]:
    """The world and the driver of ``seed`` on ``build``; ``tight`` leaves only a few pages above what one needs."""
    rng = Random(seed)
    config = random_config(rng)
    specs = random_specs(rng, 8 if tight else 12)
    rates = Rates() if rng.random() < 0.7 else CALM
    slack = rng.randint(0, 3) if tight else rng.choice((3, 8, 20, 60))
    config = fitted(config, BUILDS[build], specs, slack)
    if any(size.host_pages for size in config.pools.values()):
        config = replace(config, asynchronous_copies=Random(~seed).random() < 0.6)
    world = World(config, BUILDS[build], check=check, record_ops=True)
    return world, Driver(world, specs, rng, rates)
