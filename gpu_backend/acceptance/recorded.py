"""What a recorded trace says about acceptance: its ops are applied once more, without a device, and looked at."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gpu_backend.acceptance.metrics import Measured, Steps
from model.builds import Build
from model.cluster import Cluster
from model.ops import At, Op, Settle, Submit, World
from model.plan import StepPlan
from sim.optrace import Trace

TARGET, DRAFTER = "target", "draft"


@dataclass(slots=True)
class _Seen:
    """One request, by the order of submission."""

    number: int
    output: tuple[int, ...]
    place: int
    generated: int = 0
    prefilled: dict[str, int] = field(default_factory=lambda: {TARGET: 0, DRAFTER: 0})


def measured(trace: Trace, build: Build) -> Measured:
    """Steps, outputs and prefilled tokens of a recorded ``trace``, whose requests come in the order of submission.

    Prompt tokens that a chunk computes count for the target and, where its drafter folds them, for the drafter; those
    of chunks whose results came too late count as well, since they ran.
    """
    if trace.workers is None:
        world: World | Cluster = World(trace.config, build, check="off")
    else:
        world = trace.workers.open(build, check="off")
    requests: list[_Seen] = []
    current: dict[int, _Seen] = {}
    rows: list[tuple[int, int, int, bool]] = []
    for op in trace.ops:
        inner = op.op if isinstance(op, At) else op
        plan = _oldest(world, op) if isinstance(inner, Settle) else None
        outcome = world.apply(op)
        if isinstance(inner, Submit) and outcome.applied:
            spec = inner.spec
            current[spec.request_id] = _Seen(spec.request_id, spec.output, len(requests))
            requests.append(current[spec.request_id])
        if isinstance(inner, Settle) and plan is not None and outcome.applied:
            for row in plan.context:
                seen = current[row.request_id]
                seen.prefilled[TARGET] += row.end - row.start
                seen.prefilled[DRAFTER] += row.end - row.start if row.drafts else 0
            counts = (1,) * len(plan.context) + plan.committed(inner.accepted)
            for settled, count, verified in zip(outcome.settled, counts, _verifies(plan), strict=True):
                seen = current[settled.request_id]
                if verified and settled.tokens:
                    rows.append((seen.place, seen.generated - 1, count, settled.drafted))
                seen.generated += settled.tokens
    prefilled = {
        pool: np.array([seen.prefilled[pool] for seen in requests], dtype=np.int64) for pool in (TARGET, DRAFTER)
    }
    outputs = tuple(seen.output[: seen.generated] for seen in requests)
    numbers = tuple(seen.number for seen in requests)
    return Measured(Steps.of(rows), outputs, prefilled, numbers, trace.config.drafter.drafts)


def _oldest(world: World | Cluster, op: At | Op) -> StepPlan | None:
    worker = op.worker if isinstance(op, At) else 0
    if not 0 <= worker < len(world.workers):
        return None
    plans = world.workers[worker].engine.plans
    return plans[0] if plans else None


def _verifies(plan: StepPlan) -> list[bool]:
    """By row of a plan, chunks first: whether it is a generation step of a request that drafts."""
    return [False] * len(plan.context) + [row.drafts and row.width > 1 for row in plan.generation]
