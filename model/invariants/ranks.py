"""RANK: workers that have to decide alike do so, judged from the plans and results that they bring; and that a fleet
moves."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

from model.dummies import PAD_TOKENS
from model.engine import Engine
from model.eviction import DROPPABLE, LOCKED
from model.geometry import cdiv
from model.invariants.base import Docket, Violation
from model.invariants.gate import gate_open, slots_left
from model.pages import PagePool
from model.plan import StepPlan

Row = tuple[str, int, int, int]


def rows_of(plan: StepPlan | None) -> list[Row]:
    """What one rank runs in a step: its chunks ("chunk", request, start, end), then its verify rows ("verify",
    request, slot, width). Pages are left out: each rank numbers its own."""
    if plan is None:
        return []
    chunks = [("chunk", row.request_id, row.start, row.end) for row in plan.context]
    return chunks + [("verify", row.request_id, row.slot, row.width) for row in plan.generation]


def plan_hash(plan: StepPlan | None) -> str:
    """SHA-256 over the rows of one rank's plan, as hex; a rank that skips hashes nothing."""
    return hashlib.sha256(repr(None if plan is None else rows_of(plan)).encode()).hexdigest()


class RankLaw:
    """Judge of the workers of one cluster."""

    def __init__(self, docket: Docket) -> None:
        self.docket = docket
        self._fruitless = 0

    def plans(self, plans: Sequence[StepPlan | None], step: int) -> bool:
        """Ranks that run every request together bring equal plans; whether they do."""
        return self.steps([None if plan is None else rows_of(plan) for plan in plans], step)

    def steps(self, ranks: Sequence[Sequence[Row] | None], step: int) -> bool:
        """As :meth:`plans`, of each rank's :func:`rows_of`, ``None`` where a rank skips."""
        self.docket.count("RANK")
        odd = next((rank for rank, rows in enumerate(ranks) if rows != ranks[0]), 0)
        if odd:
            mine, other = ranks[0] or [], ranks[odd] or []
            first = next((pair for pair in zip_longest(mine, other) if pair[0] != pair[1]), (None, None))
            request = (first[0] or first[1] or ("", -1))[1]
            self._apart("the ranks run different steps", request, step, odd, _words(first[0]), _words(first[1]))
        return not odd

    def answers(self, what: str, request: int, answers: Sequence[bool], step: int) -> bool:
        """All ranks take an input, or none does; whether that is so."""
        self.docket.count("RANK")
        odd = next((rank for rank, answer in enumerate(answers) if answer != answers[0]), 0)
        if odd:
            words = ("taken", "not taken") if answers[0] else ("not taken", "taken")
            self._apart(f"the ranks answer {what} differently", request, step, odd, *words)
        return not odd

    def forwards(self, plans: Sequence[StepPlan | None], step: int) -> bool:
        """In a fleet all ranks forward or all skip; whether they do."""
        self.docket.count("RANK")
        odd = next((rank for rank, plan in enumerate(plans) if (plan is None) != (plans[0] is None)), 0)
        if odd:
            words = ("skips", "forwards") if plans[0] is None else ("forwards", "skips")
            request = next((rows[0][1] for rows in map(rows_of, plans) if rows), -1)
            self._apart("some ranks of the fleet forward, others skip", request, step, odd, *words)
        return not odd

    def veto(self, rank: int, engine: Engine) -> None:
        """PROGRESS: a rank that keeps the fleet's step back lacks the pages or the slots that a dummy needs."""
        self.docket.count("PROGRESS")
        twin, width = engine.twin, 1 + engine.config.drafter.drafts
        pages = cdiv(PAD_TOKENS + engine.config.limits.extra_tokens + width, engine.config.limits.page_size)
        need = Counter(column.pool.name for column in twin.columns for _ in range(pages))
        short = any(count > _obtainable(twin.pools[name]) for name, count in need.items())
        if short or not (gate_open(twin) and slots_left(twin)):
            return
        self.docket.report(
            Violation(
                "PROGRESS",
                f"rank {rank} keeps the fleet's step back though it could run a dummy along",
                next(iter(engine.live), -1),
                step=engine.iteration,
                expected=f"a dummy on {pages} pages of each pool",
                found="nothing that can be queued",
            )
        )

    def passed(self, moved: bool, waiting: Sequence[int], patience: int, step: int) -> None:
        """PROGRESS: count steps of a fleet that no rank ran though requests wait, and speak once there are too many."""
        self.docket.count("PROGRESS")
        self._fruitless = 0 if moved or not waiting else self._fruitless + 1
        if self._fruitless == patience:
            self.docket.report(
                Violation(
                    "PROGRESS",
                    f"{patience} steps of the fleet in a row were skipped: some rank has nothing that it can queue",
                    waiting[0],
                    step=step,
                    expected="a rank without a scheduled request runs a dummy along",
                    found=f"{len(waiting)} requests wait",
                )
            )

    def _apart(self, message: str, request: int, step: int, rank: int, expected: str, found: str) -> None:
        self.docket.report(
            Violation(
                "RANK", message, request, step=step, expected=f"rank 0: {expected}", found=f"rank {rank}: {found}"
            )
        )


def _obtainable(pool: PagePool) -> int:
    """Device pages that nobody has locked, as far as what is held on them fits into the host tier."""
    return min(sum(state <= DROPPABLE for state in pool.state), pool.device_pages - pool.state.count(LOCKED))


def _words(row: Row | None) -> str:
    if row is None:
        return "no such row"
    kind, request, first, second = row
    if kind == "chunk":
        return f"request {request} computes tokens {first} to {second}"
    return f"request {request} verifies {second} tokens in row slot {first}"
