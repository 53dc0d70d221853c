"""What the engine believes of the row slots of a generation step, beside what the device has: all rows at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu_backend.replay.memory import DeviceMemory
from gpu_backend.replay.segments import Segment
from model.engine import Engine
from model.plan import StepPlan
from model.request import GENERATION


def as_believed(
    engine: Engine, memory: DeviceMemory, segment: Segment, plan: StepPlan, state: NDArray[np.int64]
) -> bool:
    """Whether every generation row is comparable and its slot as the engine believes.

    ``state`` int64 ``[4, rows]`` is that of :func:`gpu_backend.replay.segments.slots_state`. False is no finding yet:
    rows of requests that went on, or of bindings on their way, are told apart one by one.
    """
    if not plan.generation:
        return True
    _, owners, slots, _, _, _, drafts = zip(*plan.generation, strict=True)
    requests = list(map(engine.owners.get, owners))
    bound, lag, bases = segment.bound, segment.lag, engine.slots.base
    if None in requests or [bound.get(slot) for slot in slots] != list(owners):
        return False
    length, drafted, base, strange = state[:, list(slots)].tolist()
    wanted = [
        request.prompt_length + request.generated - 1
        for request, owner in zip(requests, owners, strict=True)
        if request is not None and request.owner == owner and request.state is GENERATION
    ]
    if length != wanted or any(strange) or base != [bases.get(owner) for owner in owners]:
        return False
    if not memory.draft_columns:
        return True
    if memory.twin.kind.slot and any(lag):
        wanted = [tokens - lag[slot] for tokens, slot in zip(wanted, slots, strict=True)]
    return all(drafts) and drafted == wanted
