"""Single steps by which a trace becomes simpler: smaller arguments of its ops, plainer constants of its world.

A change takes a trace and returns a simpler one, or ``None`` where it has nothing to lower there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from model.config import EngineConfig, Limits, PoolSize, PublishPolicy, RequestSpec, Scope
from model.drafter import KINDS
from model.linkops import Abort, Arrive, Send
from model.ops import At, Cancel, Dispatch, Fail, Land, Lose, Op, Settle, Shrink, Submit, Suspend, Warmup
from model.tokens import Segment
from model.topology import Topology
from property_tests.fuzz.generate.engine import LONGEST
from property_tests.fuzz.generate.given import could_be_generated
from sim.optrace import Trace

Change = Callable[[Trace], Trace | None]
OF_REQUEST = (Cancel, Suspend, Send, Arrive, Abort)  # ops that name a request


def inner(op: At | Op) -> Op:
    """An op without the worker that it is for."""
    return op.op if isinstance(op, At) else op


def around(op: At | Op, changed: Op) -> At | Op:
    """``changed`` for the worker of ``op``."""
    return At(op.worker, changed) if isinstance(op, At) else changed


def without_request(trace: Trace, number: int) -> Trace:
    """``trace`` without the request ``number`` and all that names it."""

    def concerns(op: Op) -> bool:
        if isinstance(op, Submit):
            return op.spec.request_id == number
        return isinstance(op, OF_REQUEST) and op.request_id == number

    return replace(trace, ops=tuple(op for op in trace.ops if not concerns(inner(op))))


# -- ops ---------------------------------------------------------------------------------------------------------


def simpler_ops(trace: Trace) -> Iterator[Change]:
    """Changes of the ops of ``trace``, place by place."""
    for place, op in enumerate(trace.ops):
        kind = inner(op)
        if isinstance(kind, Submit):
            yield from _of_spec(place, len(kind.spec.prompt))
        elif isinstance(kind, Settle):
            yield _op(place, lambda settle: Settle((1,) * len(settle.accepted)))
            for row in range(len(kind.accepted)):
                yield _op(place, lambda settle, row=row: _fewer(settle, row))
        elif isinstance(kind, Fail | Dispatch):
            yield _op(place, lambda _: Dispatch())
        elif isinstance(kind, Shrink):
            yield _op(place, lambda shrink: Shrink(shrink.pool, 0))
        elif isinstance(kind, Lose):
            yield _op(place, lambda lose: Land(lose.copy))
        elif isinstance(kind, Abort):
            yield _op(place, lambda abort: Abort(abort.request_id))
        elif isinstance(kind, Warmup):
            yield _op(place, lambda warmup: Warmup(1, warmup.tokens))
            yield _op(place, lambda warmup: Warmup(max(1, warmup.batch - 1), warmup.tokens))
            yield _op(place, lambda warmup: Warmup(warmup.batch, 1))
            yield _op(place, lambda warmup: Warmup(warmup.batch, max(1, warmup.tokens // 2)))
        if isinstance(op, At) and op.worker and isinstance(kind, Submit):
            yield lambda trace, place=place: _at_first(trace, place)


def _op(place: int, change: Callable[[Any], Op]) -> Change:
    def apply(trace: Trace) -> Trace | None:
        if place >= len(trace.ops):
            return None
        op = trace.ops[place]
        try:
            changed = change(inner(op))
        except AttributeError:  # another op has come to this place
            return None
        return _with_op(trace, place, around(op, changed))

    return apply


def _with_op(trace: Trace, place: int, op: At | Op) -> Trace:
    return replace(trace, ops=(*trace.ops[:place], op, *trace.ops[place + 1 :]))


def _at_first(trace: Trace, place: int) -> Trace | None:
    op = trace.ops[place] if place < len(trace.ops) else None
    return _with_op(trace, place, At(0, op.op)) if isinstance(op, At) and isinstance(op.op, Submit) else None


def _fewer(settle: Settle, row: int) -> Settle:
    counts = settle.accepted
    return Settle((*counts[:row], max(1, counts[row] - 1), *counts[row + 1 :])) if row < len(counts) else settle


def _of_spec(place: int, runs: int) -> Iterator[Change]:
    """Changes of the request that is submitted at ``place``: its prompt of ``runs`` runs, its output, its fields."""
    for output in (lambda tokens: 1, lambda tokens: tokens // 2, lambda tokens: tokens - 1):
        yield _spec(place, lambda spec, output=output: _output(spec, output(spec.max_new_tokens)))
    for run in range(runs)[::-1]:
        yield _spec(place, lambda spec, run=run: _prompt(spec, run, 0))
        yield _spec(place, lambda spec, run=run: _prompt(spec, run, _length(spec, run) // 2))
        yield _spec(place, lambda spec, run=run: _prompt(spec, run, _length(spec, run) - 1))
        yield _spec(place, lambda spec, run=run: _plain_run(spec, run))
    for plain in ({"scope": Scope()}, {"priority": 0}, {"drafts": True}):
        yield _spec(place, lambda spec, plain=plain: replace(spec, **plain))


def _spec(place: int, change: Callable[[RequestSpec], RequestSpec]) -> Change:
    return _op(place, lambda submit: Submit(change(submit.spec)))


def _output(spec: RequestSpec, tokens: int) -> RequestSpec:
    return replace(spec, max_new_tokens=max(1, tokens))


def _length(spec: RequestSpec, run: int) -> int:
    return spec.prompt[run].length if run < len(spec.prompt) else 0


def _prompt(spec: RequestSpec, run: int, tokens: int) -> RequestSpec:
    """``spec`` with ``tokens`` tokens of one run of its prompt; none drops the run, unless it is the last one left."""
    if run >= len(spec.prompt) or tokens >= spec.prompt[run].length or (tokens < 1 and len(spec.prompt) == 1):
        return spec
    old = spec.prompt[run]
    short = Segment.of(old.literal[:tokens]) if old.literal else old._replace(length=tokens)
    return replace(spec, prompt=(*spec.prompt[:run], *((short,) if tokens > 0 else ()), *spec.prompt[run + 1 :]))


def _plain_run(spec: RequestSpec, run: int) -> RequestSpec:
    """``spec`` with a run that begins like its stream."""
    if run >= len(spec.prompt) or spec.prompt[run].first < 0:
        return spec
    return replace(spec, prompt=(*spec.prompt[:run], spec.prompt[run]._replace(first=-1), *spec.prompt[run + 1 :]))


def renumbered(trace: Trace) -> Trace | None:
    """``trace`` with its requests numbered from 1 in order of arrival, and conversations named after their first."""
    names: dict[int, int] = {}
    talks: dict[int, int] = {}
    for op in map(inner, trace.ops):
        if isinstance(op, Submit):
            names.setdefault(op.spec.request_id, 1 + len(names))
            talks.setdefault(op.spec.conversation, names[op.spec.request_id])

    def named(op: Op) -> Op:
        if isinstance(op, Submit):
            spec = op.spec
            return Submit(replace(spec, request_id=names[spec.request_id], conversation=talks[spec.conversation]))
        if isinstance(op, OF_REQUEST):
            return op._replace(request_id=names.get(op.request_id, op.request_id))
        return op

    return replace(trace, ops=tuple(around(op, named(inner(op))) for op in trace.ops))


# -- the world ---------------------------------------------------------------------------------------------------


def plainer_worlds(trace: Trace) -> Iterator[Change]:
    """Changes of what the ops of ``trace`` run on: workers, tiers, policies, limits, layers, pools.

    None of them leads from engines that the generator could give to one that it could not.
    """
    return (_given(change) for change in _plainer_worlds(trace))


def _given(change: Change) -> Change:
    def apply(trace: Trace) -> Trace | None:
        changed = change(trace)
        return None if changed is not None and given(trace) and not given(changed) else changed

    return apply


def given(trace: Trace) -> bool:
    """Whether the generator could have given the engines of ``trace``."""
    configs = (trace.config,) if trace.workers is None else trace.workers.configs
    return all(map(could_be_generated, configs))


def _plainer_worlds(trace: Trace) -> Iterator[Change]:
    if trace.workers is not None:
        for worker in range(len(trace.workers.configs)):
            yield lambda trace, worker=worker: _alone(trace, worker)
            yield lambda trace, worker=worker: _merged(trace, worker)
        yield _fewer_workers
        yield _even_workers
        yield _plain_options
    for changes in (
        {"asynchronous_copies": False},
        {"memory": None},
        {"policy": PublishPolicy.ALL_REUSABLE},
        {"max_num_turns": 1},
        {"vocabulary": 4096},
    ):
        yield _config(lambda config, changes=changes: replace(config, **changes))
    yield _config(lambda config: _pools(config, lambda size: PoolSize(size.device_pages)))
    for layers in range(2):
        yield _config(lambda config, layers=layers: _one_layer(config, layers))
    yield from _of_limits()
    yield from _of_drafter()
    for name in trace.config.pools:
        for fewer in (lambda pages: pages // 2, lambda pages: pages - 4, lambda pages: pages - 1):
            yield _config(lambda config, name=name, fewer=fewer: _pool(config, name, fewer))


def _of_limits() -> Iterator[Change]:
    for changes in (
        {"graph_batches": ()},
        {"extra_tokens": 0},
        {"max_util_for_resume": 1.0},
        {"partial_children": 32},
        {"deferral": True},
        {"chunked_prefill": True},
        {"max_seq_len": LONGEST},
        {"max_num_tokens": 64},
        {"run_ahead": 0},
    ):
        yield _limits(lambda limits, changes=changes: changes)
    yield _limits(lambda limits: {"chunk_unit": limits.page_size})
    yield _limits(_smaller_batch)


def _smaller_batch(limits: Limits) -> dict[str, Any]:
    most = max(1, limits.max_batch - 1)
    return {"max_batch": most, "graph_batches": tuple(sorted({min(most, size) for size in limits.graph_batches}))}


def _of_drafter() -> Iterator[Change]:
    yield _config(_single_chain)
    yield _config(lambda config: replace(config, draft=tuple(replace(life, sinks=0) for life in config.draft)))
    yield _config(lambda config: replace(config, target=tuple(replace(life, sinks=0) for life in config.target)))
    for drafts in (1, 2, 4):
        yield _config(lambda config, drafts=drafts: _drafts(config, drafts))
    yield _config(_without_window)


def _config(change: Callable[[EngineConfig], EngineConfig]) -> Change:
    """``change`` on every worker."""

    def apply(trace: Trace) -> Trace | None:
        workers = trace.workers
        if workers is not None:
            workers = replace(workers, configs=tuple(map(change, workers.configs)))
        return replace(trace, config=change(trace.config), workers=workers)

    return apply


def _limits(changes: Callable[[Any], dict[str, Any]]) -> Change:
    return _config(lambda config: replace(config, limits=replace(config.limits, **changes(config.limits))))


def _single_chain(config: EngineConfig) -> EngineConfig:
    span = KINDS[config.drafter.kind].tag_span(1)
    draft = tuple(replace(life, lookahead=span) for life in config.draft)
    return replace(config, draft=draft, drafter=replace(config.drafter, chain=1))


def _drafts(config: EngineConfig, drafts: int) -> EngineConfig:
    if config.drafter.drafts <= drafts:
        return config
    return replace(config, drafter=replace(config.drafter, drafts=drafts))


def _without_window(config: EngineConfig) -> EngineConfig:
    draft = tuple(replace(life, window=None, sinks=0) for life in config.draft)
    return replace(config, draft=draft, drafter=replace(config.drafter, window=None))


def _one_layer(config: EngineConfig, side: int) -> EngineConfig:
    """``config`` with the first layer of one side alone, and the pools that are still named."""
    target, draft = (config.target[:1], config.draft) if side == 0 else (config.target, config.draft[:1])
    names = {life.pool for life in (*target, *draft)}
    return replace(
        config, target=target, draft=draft, pools={n: size for n, size in config.pools.items() if n in names}
    )


def _pools(config: EngineConfig, change: Callable[[PoolSize], PoolSize]) -> EngineConfig:
    return replace(config, pools={name: change(size) for name, size in config.pools.items()})


def _pool(config: EngineConfig, name: str, fewer: Callable[[int], int]) -> EngineConfig:
    """``config`` with fewer device pages of one pool; as bytes of memory say where there are any."""
    size = config.pools.get(name)
    if size is None or config.memory is not None:
        return config
    return replace(config, pools={**config.pools, name: PoolSize(max(1, fewer(size.device_pages)), size.host_pages)})


def _alone(trace: Trace, worker: int) -> Trace | None:
    """One of the workers with its own ops and those for all, as a single one."""
    if trace.workers is None or worker >= len(trace.workers.configs):
        return None
    ops = [op for op in trace.ops if not isinstance(op, At) or op.worker == worker or isinstance(op.op, Submit)]
    plain = tuple(inner(op) for op in ops if not isinstance(inner(op), Send | Arrive | Abort))
    return replace(trace, config=trace.workers.configs[worker], workers=None, ops=plain)


def _merged(trace: Trace, worker: int) -> Trace | None:
    """One of the workers with the ops of all of them, as a single one that sends nothing."""
    if trace.workers is None or worker >= len(trace.workers.configs):
        return None
    plain = tuple(op for op in map(inner, trace.ops) if not isinstance(op, Send | Arrive | Abort))
    return replace(trace, config=trace.workers.configs[worker], workers=None, ops=plain)


def _fewer_workers(trace: Trace) -> Trace | None:
    workers = trace.workers
    if workers is None or len(workers.configs) < 3:
        return None
    return replace(trace, workers=replace(workers, configs=workers.configs[:2]))


def _even_workers(trace: Trace) -> Trace | None:
    workers = trace.workers
    if workers is None:
        return None
    return replace(trace, workers=replace(workers, configs=workers.configs[:1] * len(workers.configs)))


def _plain_options(trace: Trace) -> Trace | None:
    workers: Topology | None = trace.workers
    if workers is None:
        return None
    options = (("drafts", 1),) if workers.kind == "disaggregated" else ()
    return replace(trace, workers=replace(workers, options=options))
