"""ROLLBACK, ADMIT and PROGRESS: what a pass may leave behind, what it promised, and whether anything moves."""

from __future__ import annotations

from model.engine import Engine
from model.eviction import PageState
from model.geometry import cdiv
from model.invariants.base import Docket, Violation
from model.plan import StepPlan
from model.request import Request
from model.sequence import Status

Image = tuple[tuple[int, int, int, int], ...]


class StepLaws:
    """Checks around one dispatch."""

    def __init__(self, engine: Engine, docket: Docket) -> None:
        self.engine, self.docket = engine, docket
        self._before: dict[int, tuple[int, bool, tuple[Image, int, int]]] = {}
        self.idle_passes = 0

    # -- ROLLBACK ------------------------------------------------------------------------------------------------

    def remember(self) -> None:
        """Take an image of every started request before a pass that will not run."""
        self._before = {}
        for request in self.engine.scheduler.active:
            if request.started:
                behind = self._behind(request)
                self._before[request.request_id] = (request.owner, behind, self._state(request, behind))

    def _behind(self, request: Request) -> bool:
        """Whether a step settled while the request was suspended: its next resume applies it."""
        settled = request.settled_position()
        return any(request.owed) or any(seq.history < settled for seq in self.engine.twin.sequences(request))

    def _state(self, request: Request, behind: bool) -> tuple[Image, int, int]:
        """(lengths and pages of each sequence with all settled steps applied, cursor, base page of the slot)."""
        image = []
        for place, sequence in enumerate(self.engine.twin.sequences(request)):
            capacity = sequence.capacity - request.owed[place]
            history = max(sequence.history, request.settled_position())
            blocks = cdiv(capacity, sequence.manager.page_size) if behind else sequence.blocks
            pages = -1 if behind else sum(table.count() for table in sequence.tables)
            image.append((capacity, history, blocks, pages))
        return tuple(image), request.cursor, self._slot_base(request)

    def _slot_base(self, request: Request) -> int:
        slots = self.engine.slots
        return slots.base.get(request.owner, slots.parked.get(request.owner, -1))

    def undone(self) -> None:
        """After a pass that evicted nobody and did not run, every request is as it was."""
        self.docket.count("ROLLBACK")
        for request in self.engine.scheduler.active:
            request_id = request.request_id
            if not request.started:
                self._nothing_held(request)
                continue
            before = self._before.get(request_id)
            if before is None or before[0] != request.owner:
                continue
            now = self._state(request, before[1])
            if before[2] != now:
                self._kept(request, str(before[2]), str(now))

    def _nothing_held(self, request: Request) -> None:
        held = self.engine.twin.sequences(request)
        if held or request.cursor:
            pages = sum(table.count() for sequence in held for table in sequence.tables)
            self._kept(request, "no pages, cursor 0", f"{pages} pages, cursor {request.cursor}")

    def _kept(self, request: Request, expected: str, found: str) -> None:
        pool = self.engine.twin.columns[0].pool.name
        message = "a step that did not run left something behind"
        self.docket.report(
            Violation("ROLLBACK", message, request.request_id, pool, -1, -1, self.engine.iteration, expected, found)
        )

    def refused(self, refused: list[Request]) -> None:
        """A request whose first chunk was refused holds nothing."""
        for request in refused:
            self.docket.count("ROLLBACK")
            if request.request_id in self.engine.live and not request.started:
                self._nothing_held(request)

    # -- ADMIT ---------------------------------------------------------------------------------------------------

    def admitted(self, plan: StepPlan) -> None:
        """Every row of a plan is backed in every pool: its chunk, its verify row, its drafter's context."""
        engine = self.engine
        self.docket.count("ADMIT", len(plan.context) + len(plan.generation))
        for row in plan.context:
            self._backed(row.owner, row.request_id, (row.end, row.end), plan)
        for row in plan.generation:
            history = engine.twin.target.sequences[row.owner].history
            flying = len(engine.owners[row.owner].grown)
            self._backed(row.owner, row.request_id, (history + row.width * flying, history), plan)

    def justified(self, request: Request, end: int, last: bool) -> None:
        """A refused chunk really lacks a page in some pool, or a pool is above the resume gate."""
        self.docket.count("ADMIT")
        twin = self.engine.twin
        limits, drafts = self.engine.config.limits, self.engine.config.drafter.drafts
        if any(pool.host_pages for pool in twin.pools.values()) or not twin.target.gate_open():
            return
        if twin.draft is not None and not twin.draft.gate_open():
            return
        need: dict[str, int] = {}
        for column in twin.columns:
            sequence = column.manager.sequences[request.owner]
            blocks = max(cdiv(end + (drafts if last else 0) + limits.extra_tokens, limits.page_size), sequence.blocks)
            table = sequence.tables[column.column]
            stale = column.lifecycle.stale_range(sequence.history, limits.page_size)[1]
            grow = blocks - max(table.end(), stale)
            grow += not sequence.resumed and sequence.claimed % limits.page_size != 0
            need[column.pool.name] = need.get(column.pool.name, 0) + max(0, grow)
        for name, pages in need.items():
            state = twin.pools[name].state
            if pages > sum(1 for value in state if value <= PageState.DROPPABLE):
                return
        message, step = "refused though every pool could give the pages", self.engine.iteration
        self.docket.report(
            Violation("ADMIT", message, request.request_id, step=step, expected=str(need), found="refused")
        )

    def _backed(self, owner: int, request_id: int, needs: tuple[int, int], plan: StepPlan) -> None:
        for place, manager in enumerate(self.engine.twin.managers):
            sequence = manager.sequences[owner]
            if sequence.capacity < needs[place] or sequence.status is not Status.ACTIVE:
                self.docket.report(
                    Violation(
                        "ADMIT",
                        f"admitted without its {manager.role} pages" + self._why(),
                        request_id,
                        manager.pools[0].name,
                        step=plan.iteration,
                        expected=f"{needs[place]} tokens backed",
                        found=f"{sequence.capacity} tokens, {sequence.status.name.lower()}",
                    )
                )

    def _why(self) -> str:
        error = self.engine.twin.resize_error
        return f": {error}" if error else ""

    # -- PROGRESS ------------------------------------------------------------------------------------------------

    def passed(self, moved: bool) -> bool:
        """Count passes without any movement; ``False`` once there are too many in a row."""
        self.docket.count("PROGRESS")
        engine = self.engine
        if moved or engine.plans or not engine.live:
            self.idle_passes = 0
            return True
        self.idle_passes += 1
        if self.idle_passes < engine.config.limits.stall_passes:
            return True
        self.stalled(f"{self.idle_passes} passes scheduled nothing")
        return False

    def stalled(self, why: str) -> None:
        """Report requests that wait though nothing runs."""
        waiting = list(self.engine.live)
        self.docket.report(
            Violation(
                "PROGRESS",
                why,
                waiting[0] if waiting else -1,
                step=self.engine.iteration,
                expected="every request that fits alone finishes",
                found=f"{len(waiting)} requests wait",
            )
        )
