"""Warm-up: a batch of dummies at full length runs once so that graphs can be captured, before any request.

All or nothing: the pages that the dummies will take are estimated first, and where one of them finds no pages all
that came before it give theirs back. The row slots are as before, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from model.plan import StepPlan

if TYPE_CHECKING:
    from model.engine import Engine


class Warmed(NamedTuple):
    """How a warm-up began: ``need`` pages by pool were estimated; without a plan ``why`` it could not run."""

    need: dict[str, int]
    batch: int
    admitted: bool
    plan: StepPlan | None = None
    why: str = ""


def begin(engine: Engine, batch: int, tokens: int) -> Warmed:
    """Add ``batch`` dummies of ``tokens`` and hand out their plan; :func:`end` when it ran."""
    dummies = engine.dummies
    need = dummies.estimate(tokens, batch)
    short = dummies.short(need)
    if short:
        return Warmed(need, batch, False, why=short)
    owners: list[int] = []
    for place in range(batch):
        owner = dummies.add(tokens)
        if owner is None or not dummies.can_queue(owner):
            owners.extend(() if owner is None else (owner,))
            if engine.rules.dummy.undoes_partial:
                for added in owners:
                    dummies.remove(added)
            return Warmed(need, batch, True, why=f"dummy {place + 1} of {batch} found no pages")
        owners.append(owner)
    rows = dummies.bind(owners)
    plan = StepPlan(engine.iteration, engine.recorder.take(), [], [], engine.rules_of_device)
    plan.dummies = rows
    engine.iteration += 1
    engine.log.planned(plan)
    return Warmed(need, batch, True, plan)


def end(engine: Engine, plan: StepPlan) -> None:
    """The warm-up ran: its dummies go."""
    engine.dummies.end(plan.dummies)
