"""Tensor-parallel ranks: every rank holds its share of each page and runs the same ops, so all have to decide alike.

Each rank has an engine, pools and trees of its own. What may differ between them, the memory a rank has and the pages
that it lost, they agree on by the *ranks* rule; from equal states equal decisions follow. Ranks whose plans differ
meet in no collective: the group hangs and takes no further op.
"""

from __future__ import annotations

from collections.abc import Sequence

from model.builds import Build
from model.cluster import At, Cluster
from model.config import EngineConfig
from model.invariants.ranks import RankLaw
from model.ops import Dispatch, Fail, Op, Outcome, Shrink, Submit, World

HUNG = "the ranks hang in a collective: they decided differently"


class RankGroup(Cluster):
    """Ranks ``0 .. n - 1``; ``configs`` say what memory each one has."""

    def __init__(
        self,
        configs: Sequence[EngineConfig],
        build: Build,
        *,
        check: str = "incremental",
        keep_events: bool = False,
        record_ops: bool = False,
    ) -> None:
        agreed = build.rules.ranks.agreed(configs)
        super().__init__(agreed, build, check=check, keep_events=keep_events, record_ops=record_ops)
        self.law = RankLaw(self.docket)
        self.hung = False

    @property
    def books(self) -> tuple[World, ...]:
        """Rank 0: every rank serves every request."""
        return self.workers[:1]

    def carry_out(self, op: At | Op) -> Outcome:
        """An op for all ranks. Only pages may be lost on a single one."""
        if self.hung:
            return Outcome(False, HUNG)
        if isinstance(op, At):
            if not isinstance(op.op, Shrink):
                return Outcome(False, f"{type(op.op).__name__.lower()} concerns all ranks, not one")
            if not self.build.rules.ranks.existence:
                return super().carry_out(op)
            if not 0 <= op.worker < len(self.workers):
                return Outcome(False, f"there is no worker {op.worker}")
            op = op.op
        outcomes = [world.apply(op) for world in self.workers]
        if self.check != "off" and not isinstance(op, Shrink):
            self._judge(op, outcomes)
        return outcomes[0]

    def _judge(self, op: Op, outcomes: list[Outcome]) -> None:
        step = self.workers[0].engine.iteration
        if isinstance(op, Dispatch | Fail):
            alike = self.law.plans([outcome.plan for outcome in outcomes], step - (outcomes[0].plan is not None))
        else:
            request = op.spec.request_id if isinstance(op, Submit) else getattr(op, "request_id", -1)
            alike = self.law.answers(f"a {type(op).__name__.lower()}", request, [o.applied for o in outcomes], step)
        self.hung = not alike
