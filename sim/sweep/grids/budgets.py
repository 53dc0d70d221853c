"""Grids over how a context is cut: chunk units and token budgets, and publication policies."""

from __future__ import annotations

from model.config import PublishPolicy
from sim.sweep.case import Case, Drive
from sim.sweep.grid import Grid
from sim.sweep.toy import Toy, ask, own, said, shared

TO_END = Drive()


def _chunks(kind: str, unit: int, room: int, chunked: bool, common: int, rest: int, together: bool) -> Case | None:
    """Chunks of ``unit`` under a budget of one unit, the drafts and ``room`` more; readers one by one or at once."""
    drafts = 2
    budget = unit + drafts + room
    if not chunked:
        if unit > 1:
            return None
        budget = common + rest + 4
    toy = Toy(kind=kind, chain=2, drafts=drafts, unit=unit, budget=budget, chunked=chunked)
    first, second = (ask(number, shared(common), own(number, rest)) for number in (0, 1))
    third = ask(2, shared(common), own(2, rest + 3))
    between = () if together else (TO_END,)
    if not chunked and together:
        return None
    script = (first, *between, second, *between)
    return Case(toy, (*script, TO_END) if not chunked else (*script, third, TO_END))


CHUNKS = Grid(
    "chunks",
    "every chunk unit and token budget, for readers one after the other and at the same time",
    ("joint_claims", "deferrals"),
    {
        "kind": ("dspark", "mtp"),
        "unit": (1, 3, 4, 8),
        "room": (0, 1),
        "chunked": (True, False),
        "common": (5, 8),
        "rest": (2,),
        "together": (False, True),
    },
    {
        "kind": ("dspark", "mtp", "pard"),
        "unit": range(1, 9),
        "room": (0, 1, 3),
        "chunked": (True, False),
        "common": range(3, 14, 2),
        "rest": (1, 4),
        "together": (False, True),
    },
    _chunks,
)


def _policies(policy: PublishPolicy, turns: int, kind: str, window: int | None, prompt: int, rest: int) -> Case | None:
    """Three turns of one conversation, and a stranger who branches off the first of them."""
    if turns > 1 and policy is not PublishPolicy.PER_CONVERSATION:
        return None
    toy = Toy(policy=policy, turns=turns, kind=kind, window=window)
    one = (shared(prompt), own(0, rest))
    two = (*one, said(0, 2), own(1, rest))
    three = (*two, said(1, 2), own(2, rest))
    script = []
    for number, prompts in enumerate((one, two, three)):
        script += [ask(number, *prompts, output=2, conversation=5), TO_END]
    return Case(toy, (*script, ask(3, shared(prompt), own(3, rest)), TO_END))


POLICIES = Grid(
    "policies",
    "every publication policy and number of kept turns, for the turns of a conversation and a stranger",
    ("cached_tokens", "partial_claims"),
    {
        "policy": tuple(PublishPolicy),
        "turns": (1, 2),
        "kind": ("dspark", "mtp"),
        "window": (6,),
        "prompt": (3, 4, 7, 9),
        "rest": (1, 3),
    },
    {
        "policy": tuple(PublishPolicy),
        "turns": (1, 2, 3),
        "kind": ("dspark", "mtp", "eagle3"),
        "window": (None, 3, 6),
        "prompt": range(2, 12),
        "rest": (1, 2, 3, 5),
    },
    _policies,
)
