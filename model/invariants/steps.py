"""ROLLBACK, ADMIT and PROGRESS: what a pass may leave behind, what it promised, and whether anything moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from model.engine import Engine
from model.eviction import DROPPABLE, FREE, HELD
from model.geometry import cdiv
from model.invariants.base import Docket, Violation
from model.invariants.gate import gate_open
from model.pages import PagePool
from model.plan import StepPlan
from model.request import GENERATION, Request
from model.sequence import ACTIVE

Image = tuple[tuple[int, int, int, int], ...]


class StepLaws:
    """Checks around one dispatch."""

    def __init__(self, engine: Engine, docket: Docket) -> None:
        self.engine, self.docket = engine, docket
        self._before: dict[int, tuple[int, bool, tuple[Image, int, int]]] = {}
        self.on_stalled: Callable[[int], None] | None = None  # looks at the pages first: they may tell why
        self.idle_passes = 0
        self.fruitless_passes = 0
        drafts = engine.config.drafter.drafts
        self._width = 1 + drafts
        self._reserve = drafts + engine.config.limits.extra_tokens  # tokens backed behind what rows in flight write

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
                images = zip(before[2][0], now[0], strict=False)
                other = -1 if before[2][2] != now[2] else 0  # a base page is the drafter's
                place = next((place for place, (old, new) in enumerate(images) if old != new), other)
                self._kept(request, self._in_words(before[2]), self._in_words(now), place)

    def _in_words(self, state: tuple[Image, int, int]) -> str:
        image, cursor, base = state
        words = []
        for manager, (capacity, history, blocks, pages) in zip(self.engine.twin.managers, image, strict=False):
            held = f" on {pages} pages" if pages >= 0 else ""
            words.append(f"{manager.role} capacity {capacity}, history {history}, {blocks} blocks{held}")
        return "; ".join((*words, f"cursor {cursor}", f"base page {base}" if base >= 0 else "no base page"))

    def _nothing_held(self, request: Request) -> None:
        held = self.engine.twin.sequences(request)
        if held or request.cursor:
            words = []
            for sequence in held:
                pages = sum(table.count() for table in sequence.tables)
                words.append(
                    f"a {sequence.manager.role} sequence with a claim of {sequence.claimed} tokens, {pages} pages"
                )
            self._kept(request, "no sequence, no pages, cursor 0", "; ".join((*words, f"cursor {request.cursor}")))

    def _kept(self, request: Request, expected: str, found: str, place: int = 0) -> None:
        """Report what is left in the pools of manager ``place``."""
        pool = self.engine.twin.managers[place].pools[0].name
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

    def unchanged(self, request: Request) -> None:
        """A chunk that found no pages gave back what it had grown: nothing is backed past the cursor but headroom."""
        if not request.started:
            return
        self.docket.count("ROLLBACK")
        reach = request.cursor + self.engine.config.limits.extra_tokens
        for place, sequence in enumerate(self.engine.twin.sequences(request)):
            if sequence.capacity > reach:
                self._kept(request, f"at most {reach} tokens backed", f"{sequence.capacity} tokens backed", place)

    def stepped_aside(self) -> None:
        """A suspended generation request keeps what its rows in flight and its drafts need, and nothing more."""
        engine = self.engine
        for request in engine.scheduler.active:
            if request.state is not GENERATION:
                continue
            for place, sequence in enumerate(engine.twin.sequences(request)):
                if sequence.status is ACTIVE:
                    continue
                self.docket.count("ROLLBACK")
                flying = sum(row.owner == request.owner for plan in engine.plans for row in plan.generation)
                settled = max(sequence.history, request.settled_position(), request.cursor)
                reach = settled + self._reserve + self._width * flying
                held = sequence.capacity - request.owed[place]
                if held > reach:
                    self._kept(request, f"at most {reach} tokens backed", f"{held} tokens backed", place)

    def slotless(self, requests: list[Request]) -> None:
        """A request that found no sequence slot waits only while as many others as a batch holds have theirs."""
        batch = self.engine.config.limits.max_batch
        for request in requests:
            self.docket.count("ADMIT")
            for manager in self.engine.twin.managers:
                served = sum(owner in self.engine.owners for owner in manager.sequences)
                dummies = len(manager.sequences) - served
                if served < batch and len(manager.sequences) >= manager.index_slots:
                    self.docket.report(
                        Violation(
                            "ADMIT",
                            f"the {manager.role} manager has no sequence slot for a request that a batch has room for",
                            request.request_id,
                            manager.pools[0].name,
                            step=self.engine.iteration,
                            expected=f"slots for {batch} requests and every dummy",
                            found=f"{manager.index_slots} slots: {served} requests, {dummies} dummies",
                        )
                    )

    # -- ADMIT ---------------------------------------------------------------------------------------------------

    def admitted(self, plan: StepPlan) -> None:
        """Every row of a plan is backed in every pool: its chunk, its verify row, its drafter's context; and no pool
        reserves more than K drafts and the headroom behind them."""
        engine, twin = self.engine, self.engine.twin
        self.docket.count("ADMIT", len(plan.context) + len(plan.generation))
        extra, reserve = engine.config.limits.extra_tokens, self._reserve
        for row in plan.context:
            self._backed(row.owner, row.request_id, (row.end, row.end), plan)
            self._reserved(row.owner, row.request_id, row.end + (reserve if row.last else extra), plan)
        targets = twin.target.sequences
        drafts = twin.draft.sequences if twin.draft is not None else targets
        flying = Counter([row.owner for other in engine.plans if other is not plan for row in other.generation])
        for row in plan.generation:
            owner = row.owner
            target, draft = targets[owner], drafts[owner]
            history = target.history
            need = history + row.width * (1 + flying.get(owner, 0))
            room, other = target.capacity, draft.capacity
            if room < need or other < history or target.status is not ACTIVE or draft.status is not ACTIVE:
                self._backed(owner, row.request_id, (need, history), plan)
            most = need + reserve
            if room > most or other > most:
                self._reserved(owner, row.request_id, most, plan)

    def justified(self, request: Request, end: int, last: bool) -> None:
        """A refused chunk really lacks a page in some pool, or a pool is above the resume gate.

        Not evaluated, and not counted, above the gate.
        """
        if not self._judges_refusals(gate=True):
            return
        limits, drafts = self.engine.config.limits, self.engine.config.drafter.drafts
        need: dict[str, int] = {}
        for column in self.engine.twin.columns:
            sequence = column.manager.sequences[request.owner]
            blocks = max(cdiv(end + (drafts if last else 0) + limits.extra_tokens, limits.page_size), sequence.blocks)
            table = sequence.tables[column.column]
            stale = column.lifecycle.stale_range(sequence.history, limits.page_size)[1]
            grow = blocks - max(table.end(), stale)
            grow += not sequence.resumed and sequence.claimed % limits.page_size != 0
            need[column.pool.name] = need.get(column.pool.name, 0) + max(0, grow)
        self._lacks(request, need)

    def starved(self, request: Request) -> None:
        """A generation request steps aside only when some pool really lacks a page for its next verify row."""
        sequences = self.engine.twin.sequences(request)
        if not self._judges_refusals(gate=any(sequence.status is not ACTIVE for sequence in sequences)):
            return
        page, settled = self.engine.config.limits.page_size, request.settled_position()
        flying = sum(row.owner == request.owner for plan in self.engine.plans for row in plan.generation)
        need: dict[str, int] = {}
        for column in self.engine.twin.columns:
            sequence = column.manager.sequences[request.owner]
            position = max(settled, sequence.history, request.cursor)
            table, stale = sequence.tables[column.column], column.lifecycle.stale_range(position, page)[1]
            blocks = cdiv(position + self._reserve + self._width * (flying + 1), page)
            need[column.pool.name] = need.get(column.pool.name, 0) + max(0, blocks - max(table.end(), stale))
        self._lacks(request, need)

    def _judges_refusals(self, gate: bool) -> bool:
        """Whether what a pool can give is known from its pages alone; ``gate``: the resume gate has a say."""
        return not gate or gate_open(self.engine.twin)

    def _lacks(self, request: Request, need: dict[str, int]) -> None:
        """Some pool cannot give the pages that a request was refused."""
        self.docket.count("ADMIT")
        for name, pages in need.items():
            if pages > _available(self.engine.twin.pools[name], self._own(request, name)):
                return
        message, step = "refused though every pool could give the pages", self.engine.iteration
        pool = max(need, key=lambda name: need[name])
        expected = ", ".join(f"{pages} pages of {name}" for name, pages in need.items())
        self.docket.report(
            Violation("ADMIT", message, request.request_id, pool, step=step, expected=expected, found="refused")
        )

    def _own(self, request: Request, pool: str) -> list[int]:
        """Pages of one pool that the request's tables name."""
        pages: list[int] = []
        for column in self.engine.twin.columns:
            if column.pool.name == pool:
                table = column.manager.sequences[request.owner].tables[column.column]
                pages += (*table.sinks, *table.pages)
        return pages

    def _backed(self, owner: int, request_id: int, needs: tuple[int, int], plan: StepPlan) -> None:
        for place, manager in enumerate(self.engine.twin.managers):
            sequence = manager.sequences[owner]
            if sequence.capacity < needs[place] or sequence.status is not ACTIVE:
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

    def _reserved(self, owner: int, request_id: int, most: int, plan: StepPlan) -> None:
        for manager in self.engine.twin.managers:
            sequence = manager.sequences[owner]
            if sequence.capacity > most:
                self.docket.report(
                    Violation(
                        "ADMIT",
                        f"reserves more {manager.role} pages than it can use",
                        request_id,
                        manager.pools[0].name,
                        step=plan.iteration,
                        expected=f"at most {most} tokens backed",
                        found=f"{sequence.capacity} tokens",
                    )
                )

    def _why(self) -> str:
        error = self.engine.twin.resize_error
        return f": {error}" if error else ""

    # -- PROGRESS ------------------------------------------------------------------------------------------------

    def passed(self, moved: bool, new: bool) -> bool:
        """Count passes that moved nothing, and passes that computed nothing ``new``; ``False`` once there are too many.

        Every live request may have to compute its context once more before any of them is where it was.
        """
        self.docket.count("PROGRESS")
        engine = self.engine
        patience = engine.config.limits.stall_passes
        waits = moved or engine.plans or not engine.live or engine.awaits()  # another worker may have to move first
        self.idle_passes = 0 if waits else self.idle_passes + 1
        if new or not engine.live:
            self.fruitless_passes = 0
        elif moved or not engine.plans:  # a pass that waits for a step that flies is no attempt
            self.fruitless_passes += 1
        if self.idle_passes >= patience:
            self.stalled(f"{self.idle_passes} passes scheduled nothing")
            return False
        if self.fruitless_passes >= patience:
            again = sum(request.context_length for request in engine.live.values())
            if self.fruitless_passes >= patience + again:
                self.stalled(f"{self.fruitless_passes} passes computed nothing new")
                return False
        return True

    def stalled(self, why: str) -> None:
        """Report requests that wait though nothing runs."""
        if self.on_stalled is not None:
            self.on_stalled(self.engine.iteration)
        waiting = list(self.engine.live)
        first = self.engine.live[waiting[0]] if waiting else None
        stands = ""
        if first is not None:
            stands = f", request {first.request_id} too: it stands at {first.cursor} of {first.context_length} tokens"
            stands += f" with a claim of {first.claim.tokens}"
        self.docket.report(
            Violation(
                "PROGRESS",
                why,
                waiting[0] if waiting else -1,
                step=self.engine.iteration,
                expected="every request that fits alone finishes" + stands,
                found=f"{len(waiting)} requests wait",
            )
        )


def _available(pool: PagePool, own: list[int]) -> int:
    """Device pages that a request holding ``own`` pages could get beside them, from the pages' states and slots.

    Held pages of others may fall into the host tier as far as there is room, which its own returning pages leave too.
    Negative where not even its own pages have room.
    """
    state = np.frombuffer(pool.state, np.uint8)
    if not pool.host_pages:
        return int((state <= DROPPABLE).sum())
    below = np.frombuffer(pool.slot, np.int32) >= pool.device_pages
    mine = np.zeros(pool.total, np.bool_)
    mine[own] = True
    cheap = pool.device_pages - int((~below & (state > DROPPABLE)).sum())
    held = int((~below & (state == HELD) & ~mine).sum())
    room = pool.host_pages - int((below & (state > DROPPABLE)).sum())
    returning = int((below & mine & (state != FREE)).sum())
    if cheap + min(held, room):
        room += returning
    return cheap + min(held, room) - returning
