"""From the ops of a scenario file to ops of the model."""

from __future__ import annotations

from model.config import RequestSpec
from model.linkops import Abort, Arrive, Send
from model.ops import At, Cancel, Dispatch, Fail, Land, Lose, Op, Settle, Shrink, Submit, Suspend, Warmup
from model.tokens import named_seed
from scenarios.ops_schema import (
    AbortOp,
    ArriveOp,
    CancelOp,
    DispatchOp,
    LandOp,
    LoseOp,
    OpSpec,
    SendOp,
    SettleOp,
    ShrinkOp,
    SubmitOp,
    SuspendOp,
    WarmupOp,
)
from scenarios.workload_build import Prompts, scope_of
from scenarios.workload_schema import PrefixSpec


def build_ops(specs: list[OpSpec], prefixes: dict[str, PrefixSpec], seed: int, vocabulary: int) -> list[At | Op]:
    """Ops in order, each for its worker where one is named.

    Fresh tokens and outputs are named by the request's id; ``FieldError`` for unusable prompts.
    """
    prompts = Prompts(prefixes, seed, vocabulary, "prefixes")
    ops = [_build(spec, prompts, seed, place) for place, spec in enumerate(specs)]
    return [op if spec.worker is None else At(spec.worker, op) for spec, op in zip(specs, ops, strict=True)]


def _build(spec: OpSpec, prompts: Prompts, seed: int, place: int) -> Op:
    if isinstance(spec, SubmitOp):
        return Submit(_request(spec, prompts, seed, place))
    if isinstance(spec, DispatchOp):
        return Dispatch(spec.skip)
    if isinstance(spec, SettleOp):
        return Settle(tuple(spec.accepted))
    if isinstance(spec, CancelOp):
        return Cancel(spec.request)
    if isinstance(spec, SuspendOp):
        return Suspend(spec.request)
    if isinstance(spec, ShrinkOp):
        return Shrink(spec.pool, spec.pages)
    if isinstance(spec, SendOp):
        return Send(spec.request)
    if isinstance(spec, ArriveOp):
        return Arrive(spec.request)
    if isinstance(spec, AbortOp):
        return Abort(spec.request, spec.recompute)
    if isinstance(spec, LandOp):
        return Land(spec.copy_)
    if isinstance(spec, LoseOp):
        return Lose(spec.copy_)
    if isinstance(spec, WarmupOp):
        return Warmup(spec.batch, spec.tokens)
    return Fail()


def _request(spec: SubmitOp, prompts: Prompts, seed: int, place: int) -> RequestSpec:
    output = named_seed("output", seed, "ops", spec.request) if spec.output_seed is None else spec.output_seed
    return RequestSpec(
        request_id=spec.request,
        prompt=prompts.segments(spec.prompt, ("ops", spec.request), ("ops", place, "prompt")),
        max_new_tokens=spec.output,
        output_seed=output,
        conversation=spec.conversation,
        scope=scope_of(spec.scope),
        priority=spec.priority,
        drafts=spec.drafts,
    )
