"""Attention data parallelism: ranks with requests of their own that forward in lock step.

One iteration of the fleet: every rank schedules; one that took nothing adds a pad dummy; all forward if all can queue
and the benchmark gate is open, otherwise every rank withdraws all that it grew, on every way out. Each rank settles
its own plan, and the next iteration waits for the slowest one.
"""

from __future__ import annotations

from collections.abc import Sequence

from model.builds import Build
from model.cluster import At, Cluster
from model.config import EngineConfig
from model.dummies import PAD_TOKENS
from model.engine import Stalled
from model.events import Kind
from model.invariants.ranks import RankLaw
from model.ops import Dispatch, Fail, Op, Outcome, Warmup, World
from model.plan import StepPlan
from model.ranks import HUNG
from model.scheduler import Scheduled


class Fleet(Cluster):
    """Ranks ``0 .. n - 1``. Steps are withdrawn until ``gate`` requests are in the fleet (0: there is no gate)."""

    def __init__(
        self,
        configs: Sequence[EngineConfig],
        build: Build,
        *,
        check: str = "incremental",
        keep_events: bool = False,
        record_ops: bool = False,
        gate: int = 0,
    ) -> None:
        agreed = build.rules.ranks.agreed(configs)
        super().__init__(agreed, build, check=check, keep_events=keep_events, record_ops=record_ops)
        self.law = RankLaw(self.docket)
        self.gate = gate
        self.hung = False
        self._open = [gate == 0] * len(self.workers)
        for world in self.workers:
            world.engine.reserve_for_pads()
            if world.watch is not None:
                world.watch.pads = True

    def carry_out(self, op: At | Op) -> Outcome:
        """Dispatches and warm-ups concern all ranks, everything else one of them."""
        if self.hung:
            return Outcome(False, HUNG)
        if isinstance(op, At):
            if isinstance(op.op, Dispatch | Fail):
                return Outcome(False, f"{type(op.op).__name__.lower()} concerns all ranks, not one")
            return super().carry_out(op)
        if isinstance(op, Dispatch):
            return self._pass("gate" if op.skip else "")
        if isinstance(op, Fail):
            return self._pass("forward")
        if isinstance(op, Warmup):
            outcomes = [world.apply(op) for world in self.workers]
            return next((outcome for outcome in outcomes if not outcome.applied), outcomes[0])
        return super().carry_out(op)

    # -- one iteration -------------------------------------------------------------------------------------------

    def _pass(self, skip: str) -> Outcome:
        worlds = self.workers
        if self.in_flight > self.config.limits.run_ahead:
            return Outcome(False, "the oldest iteration of some rank has to settle first")
        if not any(world.engine.live for world in worlds):
            return Outcome(False, "no request is live")
        for world in worlds:
            if world.watch is not None:
                world.watch.before_pass("gate")
        taken: list[Scheduled] = []
        for world in worlds:
            try:
                world.engine.schedule()
            except Stalled as stall:
                if world.watch is not None:
                    world.watch.stalled(str(stall))
                self._withdraw(taken, [None] * len(worlds), "veto")
                return Outcome(False, str(stall))
            taken.append(world.engine.last_pass)
        pads = [self._pad(world, own) for world, own in zip(worlds, taken, strict=True)]
        vetoes = [rank for rank, own in enumerate(taken) if own.empty() and not self._padded(rank, pads[rank])]
        self._look_at_gate()
        if skip or vetoes or not any(self._open):
            why = skip or ("veto" if vetoes else "gate")
            self._withdraw(taken, pads, why)
            if self.check != "off":
                for rank in vetoes:
                    self.law.veto(rank, worlds[rank].engine)
            self._count(moved=bool(skip) or why == "gate" or any(own.evicted for own in taken))
            if skip:
                return Outcome(True, plans=(None,) * len(worlds))
            reason = f"rank {vetoes[0]} has nothing to queue" if vetoes else "the benchmark gate is shut"
            return Outcome(False, reason)
        return self._launch(taken, pads)

    def _pad(self, world: World, taken: Scheduled) -> int | None:
        """A dummy for a rank that has nothing to run, if the rule sees that and the pools can give its pages."""
        engine = world.engine
        idle = taken.empty() if engine.rules.dummy.pads_unscheduled else not engine.live
        return engine.dummies.add(PAD_TOKENS) if idle else None

    def _padded(self, rank: int, pad: int | None) -> bool:
        return pad is not None and self.workers[rank].engine.dummies.can_queue(pad)

    def _look_at_gate(self) -> None:
        """Open the benchmark gate once enough requests are there: for all ranks, or by the rank's own count."""
        live = [len(world.engine.live) for world in self.workers]
        enough = [sum(live) >= self.gate] * len(live)
        if not self.build.rules.ranks.gate:
            enough = [own * len(live) >= self.gate for own in live]
        self._open = [was or now for was, now in zip(self._open, enough, strict=True)]

    def _launch(self, taken: list[Scheduled], pads: list[int | None]) -> Outcome:
        plans: list[StepPlan | None] = []
        for rank, world in enumerate(self.workers):
            if not self._open[rank]:
                self._leave(rank, taken[rank], pads[rank], "gate")
                plans.append(None)
                continue
            pad = pads[rank]
            plan = world.engine.launch(taken[rank], () if pad is None else (pad,))
            plans.append(plan)
            if world.watch is not None:
                world.watch.after_pass("", plan)
            world.follow(plan)
        if self.check != "off":
            self.hung = not self.law.forwards(plans, self.workers[0].engine.iteration - 1)
        self._count(moved=True)
        return Outcome(True, plans=tuple(plans))

    def _withdraw(self, taken: list[Scheduled], pads: list[int | None], why: str) -> None:
        """Every rank that scheduled undoes it; ranks behind the last of ``taken`` did not come to it."""
        for rank, own in enumerate(taken):
            self._leave(rank, own, pads[rank], why)

    def _leave(self, rank: int, taken: Scheduled, pad: int | None, why: str) -> None:
        world = self.workers[rank]
        engine = world.engine
        if not taken.empty():
            engine.withdraw(taken, failed=why == "forward", gate=why == "gate")
        elif pad is not None:
            engine.log.note(Kind.SKIP, engine.iteration, why == "forward")
        if pad is not None and engine.rules.dummy.leaves_with_skip:
            engine.dummies.remove(pad)
        if world.watch is not None:
            world.watch.after_pass("gate", None)
        world.follow(None)

    def _count(self, moved: bool) -> None:
        """Tell the law whether the fleet moves; with a step in flight on any rank something will."""
        if self.check == "off":
            return
        waiting = [request_id for world in self.workers for request_id in world.engine.live]
        patience = self.config.limits.stall_passes
        self.law.passed(moved or self.in_flight > 0, waiting, patience, self.workers[0].engine.iteration)
