"""One rank's world: it applies an op when all ranks do, and runs a plan when all have the same."""

from __future__ import annotations

import hashlib
from collections import Counter

from gpu_backend.parallel.meeting import Absent, Meeting
from model.builds import Build
from model.config import EngineConfig
from model.invariants.base import Violation
from model.invariants.ranks import RankLaw, plan_hash, rows_of
from model.ops import At, Dispatch, Fail, Op, Outcome, Shrink, World
from model.plan import StepPlan
from model.ranks import HUNG
from sim.opcodec import encode_op
from sim.run import name_of


def word_of(text: str) -> int:
    """63 bits that stand for ``text``."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


class RankWorld(World):
    """The world of rank ``rank``. Without a ``meeting`` it is by itself: the one that the others are compared with.

    All ranks bring the op at hand and their answer to the one before, then the hash of their plan: its minimum and
    maximum over them have to be equal. Where they differ, all ranks know, and none goes on.
    """

    def __init__(
        self, config: EngineConfig, build: Build, rank: int, meeting: Meeting | None, *, check: str = "incremental"
    ) -> None:
        super().__init__(config, build, check=check)
        self.rank, self.meeting = rank, meeting
        self.law = RankLaw(self.docket)
        self.hung = False
        self.compared = 0  # plans
        self._applied = 0  # ops
        self._answer = ("", True)  # the op before, and whether it was carried out
        self._met = False

    def apply(self, op: At | Op) -> Outcome:
        if self.hung:
            return Outcome(False, HUNG)
        try:
            return self._together(op)
        except Absent as absent:
            self._alone(absent)
            return Outcome(False, HUNG)

    def follow(self, plan: StepPlan | None) -> None:
        if self._same_plan(plan):
            super().follow(plan)

    def drain(self) -> None:
        """As one world's; a rank that hangs leaves everything as it is."""
        if not self.hung:
            super().drain()

    def lose(self, op: Shrink) -> None:
        """Lose pages on this rank alone, which no other rank hears of."""
        super().apply(op)

    def leave(self, memory: str) -> None:
        """The run is over, here and everywhere, and ``memory``, the digest of what it left, is one: a rank that goes on
        meets nobody."""
        if self.meeting is None or self.hung:
            return
        try:
            text = f"{self._applied} {self._answer} end {memory}"
            if not self.meeting.same(word_of(text), lambda: f"the end, after op {self._applied}"):
                self._differing_op("end", memory)
        except Absent as absent:
            self._alone(absent)

    def refuse(self, why: str) -> bool:
        """This rank cannot run the scenario; whether that is so for all ranks, which is no fault of theirs."""
        if self.meeting is None:
            return True
        try:
            if self.meeting.same(word_of(why), lambda: "the first op"):
                return True
            self._applied += 1
            self._differing_op(f"refusal ({why})", why)
        except Absent as absent:
            self._alone(absent)
        return False

    def violate(self, message: str, expected: str, found: str) -> None:
        """Report RANK at the step at hand."""
        self.docket.report(Violation("RANK", message, step=self.engine.iteration, expected=expected, found=found))

    def _together(self, op: At | Op) -> Outcome:
        self._applied += 1
        if not self._same_op(op):
            return Outcome(False, HUNG)
        own = self._own(op)
        self._met = False
        outcome = own if isinstance(own, Outcome) else super().apply(own)
        if isinstance(own, Dispatch | Fail) and not self._met:
            self._same_plan(None)
        # Where each rank keeps its own losses, a shrink finds something on one rank and nothing on another.
        lossy = isinstance(op.op if isinstance(op, At) else op, Shrink)
        self._answer = (name_of(op), outcome.applied or lossy)
        return Outcome(False, HUNG) if self.hung else outcome

    def _own(self, op: At | Op) -> Op | Outcome:
        """What an op is for this rank. Only pages may be lost on a single one, and then to all by the right rule."""
        if not isinstance(op, At):
            return op
        if not isinstance(op.op, Shrink):
            return Outcome(False, f"{type(op.op).__name__.lower()} concerns all ranks, not one")
        if self.build.rules.ranks.existence or op.worker == self.rank:
            return op.op
        return Outcome(True)

    # -- what the ranks compare ----------------------------------------------------------------------------------

    def _same_op(self, op: At | Op) -> bool:
        if self.meeting is None:
            return True
        text = f"{self._applied} {encode_op(op)} {self._answer}"
        if self.meeting.same(word_of(text), lambda: f"op {self._applied} ({name_of(op)})"):
            return True
        self._differing_op(name_of(op), str(encode_op(op)))
        return False

    def _differing_op(self, name: str, contents: str) -> None:
        """The ranks bring different ops: say which, and go no further."""
        assert self.meeting is not None
        self.docket.count("RANK")
        told = self.meeting.told((self._applied, name, *self._answer, contents), lambda: "a comparison of ops")
        odd = self._odd(told)
        texts = [_words(*one[:4]) for one in told]
        if texts[odd] == texts[0]:
            texts = [f"{text}, {one[4]}" for text, one in zip(texts, told, strict=True)]
        same_end = all(one[:2] == (self._applied, "end") for one in told)
        self._hang("the ranks leave different memories" if same_end else "the ranks run different ops", odd, texts)

    def _same_plan(self, plan: StepPlan | None) -> bool:
        self._met = True
        if self.meeting is None:
            return True
        step = self.engine.iteration - (plan is not None)
        self.compared += 1
        if self.meeting.same(int(plan_hash(plan)[:15], 16), lambda: f"the plan of step {step}"):
            self.docket.count("RANK")
            return True
        rows = self.meeting.told(None if plan is None else rows_of(plan), lambda: "a comparison of plans")
        self.law.steps(rows, step)
        self.hung, self.follower = True, None
        return False

    @staticmethod
    def _odd(told: list[tuple]) -> int:
        """The first rank that differs from most; from rank 0 if as many are with it."""
        ((usual, _),) = Counter(told).most_common(1)
        return next((rank for rank, one in enumerate(told) if one != usual), 0) or next(
            (rank for rank, one in enumerate(told) if one != told[0]), 0
        )

    def _hang(self, message: str, odd: int, texts: list[str]) -> None:
        self.violate(message, f"rank 0: {texts[0]}", f"rank {odd}: {texts[odd]}")
        self.hung, self.follower = True, None

    def _alone(self, absent: Absent) -> None:
        """A rank did not come. Who waits nowhere is missing; if all wait, they wait at different places."""
        apart = {rank: place for rank, place in absent.seen.items() if place != absent.where}
        found = [
            f"rank {rank}: " + ("does not come" if place is None else f"waits at {place}")
            for rank, place in sorted(apart.items(), key=lambda item: item[1] is not None)
        ]
        text = ", ".join(found) or "all ranks wait there, and one came too late"
        self.violate(str(absent), f"rank {self.rank}: waits at {absent.where}", text)
        self.hung, self.follower = True, None


def _words(number: int, name: str, before: str, applied: bool) -> str:
    answer = f" after a {before} that it {'took' if applied else 'did not take'}" if before else ""
    what = "the end" if name == "end" else f"op {number}, a {name}"
    return what + answer
