"""REUSE and AL: how deep a request may start, from what the memory holds, and how much of its window its drafter sees.

A claim is judged against the memory as it was at that moment, whatever the prefix trees found. That a claim is too
shallow is said at once. That it is deeper than the rule allows is said after the drafter's first pass, and only if no
other law broke by then: too deep a claim that reads what is not there has a better name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from model.config import PublishPolicy
from model.geometry import cdiv
from model.invariants.base import Docket, Violation
from model.invariants.holdings import PromptHoldings, PublishedPages, Snapshot
from model.pages import UNCACHED
from model.plan import CLAIM, GenerationRow, StepPlan
from model.reader import Reader
from model.rules.claim import TargetOnly

if TYPE_CHECKING:
    from model.cells import CellStore
    from model.engine import Engine
    from model.joint import Column
    from model.request import Request


@dataclass(slots=True)
class Claimed:
    """A claim as it was made; ``scheduled`` once its first chunk is in a plan. Lengths in tokens."""

    owner: int
    request_id: int
    length: int
    prompt_length: int
    tokens: int
    fresh: bool
    branch: int
    partial: bool
    drafts: bool  # whether it runs with the drafter
    space: int  # root of its keys: pages under other keys are not for it
    columns: list[bytes]  # per pool, the column that caches each page
    places: list[bytes]  # per pool with a host tier, the slot of each page
    losses: int = 0  # copies between the tiers that had been lost by then
    life: int = 0  # of its request's id, see :class:`Docket`
    binds: int = 0  # row slots that it had since
    scheduled: bool = False
    most: int = -1  # deepest claim that the rule allows
    match: int = 0  # what the target surely holds
    wrote: set[tuple[int, int]] = field(default_factory=set)  # (column, block) that it published


class Held:
    """Holdings of one claim, as the rules ask for them (see :class:`model.rules.promise.Holdings`)."""

    def __init__(self, law: ReuseLaw, entry: Claimed, pages: PromptHoldings) -> None:
        twin = law.engine.twin
        self.pages, self.length = pages, entry.length
        self.page_size, self.window = pages.page_size, twin.window
        self.branches = twin.rules.publish.publishes_branch(twin.config.policy)
        self.drafts, self.span = twin.has_drafter, law.span if entry.drafts else 0
        self.limit = max(0, pages.limit - self.span)
        self._target, self._all, self._draft = law.target_columns, law.columns, law.draft_columns
        self.split = twin.draft is not None

    def target(self, end: int, sure: bool, boundary: bool = False) -> int:
        return self.pages.deepest(self._target, end, sure, boundary)

    def joint(self, end: int, sure: bool, boundary: bool = False) -> int:
        if self.span and sure:  # the last D matched tokens are evidence, also for a window that reads nothing there
            matched = self.target(self.pages.limit, True)
            if self.split:
                matched = min(matched, self.pages.deepest(self._draft, self.pages.limit, True, False))
            end = min(end, max(0, matched - self.span))
            while self.split:  # the partner looks up what was claimed and its evidence: perhaps a block in part
                end = self.pages.deepest(self._all, end, sure, boundary)
                block, rest = divmod(end + self.span, self.page_size)
                if not end or not rest or self.pages.only_child(self._all, block):
                    break
                end = max(0, end - rest)
        return self.pages.deepest(self._all, end, sure, boundary)

    def settles(self, end: int) -> bool:
        if not self.split:
            return True
        windowed = any(column.lifecycle.window is not None for column in self._target)
        if windowed:
            return self._settles_once(self.target(end, True))
        if not self.span:
            return self._settles_once(self.target(end, True)) and self._settles_once(self.target(end, False))
        # The target gives what the drafter asks for, unless its evidence ends in a block that has siblings.
        drafted = self.pages.deepest(self._draft, self.target(end, True), True, False)
        block, rest = divmod(drafted + self.span, self.page_size)
        agreed = drafted == self.pages.deepest(self._draft, self.target(end, False), False, False)
        return agreed and (not rest or self.pages.only_child(self._all, block))

    def _settles_once(self, matched: int) -> bool:
        """Whether the drafter's endpoint below the target's match ``matched``, clipped once by the target, is agreed.

        The drafter may take a block in part of which the target has too many siblings to do so.
        """
        for sure in (True, False):
            claimed = self.target(self.pages.deepest(self._draft, matched, sure, False), True)
            if self.pages.deepest(self._draft, claimed, True, False) != claimed:
                return False
        return True


class ReuseLaw:
    """Judge of the claims of one engine. Its memory reports publications, moves, claims and first drafter passes."""

    def __init__(self, engine: Engine, docket: Docket, memory: CellStore) -> None:
        twin = engine.twin
        self.engine, self.docket, self.memory = engine, docket, memory
        self.columns = twin.columns if twin.paired else tuple(column for column in twin.columns if not column.draft)
        self.target_columns = tuple(column for column in twin.columns if not column.draft)
        self.draft_columns = tuple(column for column in twin.columns if column.draft)
        self.span = twin.tag_span if twin.paired else 0
        self.published_pages = PublishedPages(memory)
        self.whole = twin.claim_rule.window_valid(twin.paired, twin.window)
        self._fresh: dict[int, Claimed] = {}  # owner -> claim of the pass that runs
        self._open: dict[int, Claimed] = {}  # owner -> claim whose first drafter pass is to come
        if twin.config.policy is not PublishPolicy.NONE:
            engine.scheduler.on_claimed = self.noted

    # -- around a pass -------------------------------------------------------------------------------------------

    def noted(self, request: Request) -> None:
        """A request claimed what the pools hold of it: remember what is cached at this moment."""
        pools, claim, keys = self.memory.pools, request.claim, request.keys
        assert keys is not None
        entry = Claimed(
            request.owner,
            request.request_id,
            request.context_length,
            request.prompt_length,
            claim.tokens,
            claim.fresh,
            claim.branch,
            keys.partial,
            request.spec.drafts,
            keys.seed,
            [bytes(pool.column) for pool in pools],
            [pool.slot.tobytes() if pool.host_pages else b"" for pool in pools],
            self.engine.totals.lost_copies,
            self.docket.life(request.request_id),
        )
        self._fresh[request.owner] = entry
        self.engine.recorder.records.append((CLAIM, request.owner, request, entry))

    def passed(self, plan: StepPlan | None) -> None:
        """A pass is over: only claims whose first chunk is in its plan are judged."""
        if not self._fresh:
            return
        for row in plan.context if plan is not None else ():
            entry = self._fresh.pop(row.owner, None)
            if entry is not None:
                entry.scheduled = True
        for entry in self._fresh.values():
            entry.columns, entry.places = [], []
        self._fresh = {}

    # -- in stream order -----------------------------------------------------------------------------------------

    def published(self, column: Column, slots: NDArray[np.int32], reader: Reader | None, block: int) -> None:
        """Pages from ``block`` on entered the tree."""
        self.published_pages.publish(column, slots, reader, block)
        entry = self._open.get(reader.owner) if reader is not None else None
        if entry is not None and entry.branch >= 0 and column.draft:
            entry.wrote.update((column.index, block + place) for place in range(len(slots)))

    def claimed(self, entry: Claimed, reader: Reader) -> None:
        """Judge a claim now that the memory stands where it stood when the claim was made.

        It never will if a copy between the tiers was lost since: what that was to bring was there for the claim.
        """
        twin = self.engine.twin
        if entry.losses != self.engine.totals.lost_copies:
            entry.columns, entry.places = [], []
            return
        self.docket.count("REUSE")
        span = self.span if entry.drafts else 0
        limit = min(entry.length - 1 + span, entry.prompt_length)
        limits = twin.config.limits
        pages = PromptHoldings(
            self.published_pages, reader, limit, self._cached(entry), entry.partial, limits.partial_children
        )
        held = Held(self, entry, pages)
        limit = held.limit
        promise = (twin.claim_rule if entry.drafts else TargetOnly()).promise(held)  # no drafter, no limit but the keys
        entry.most, entry.match = promise.most, held.target(limit, False)
        entry.columns, entry.places = [], []
        self._open[entry.owner] = entry
        if entry.tokens < promise.least:
            words = f"the memory holds {held.target(limit, True)} tokens for the target, "
            words += f"{held.joint(limit, True)} for the drafter too"
            self._report(entry, "claims less than the pools hold of its prompt", f"at least {promise.least}", words)

    def _cached(self, entry: Claimed) -> Snapshot:
        snapshot = []
        for columns, places in zip(entry.columns, entry.places, strict=True):
            cached = np.frombuffer(columns, dtype=np.uint8) != UNCACHED
            if places:
                by_slot = np.zeros(len(cached), dtype=np.bool_)
                by_slot[np.frombuffer(places, dtype=np.int32)[cached]] = True
                cached = by_slot
            snapshot.append(cached)
        return snapshot

    def bound(self, owner: int) -> None:
        """A request got a row slot: its first one, or another one after it missed an iteration."""
        entry = self._open.get(owner)
        if entry is not None:
            entry.binds += 1

    def drafted(self, row: GenerationRow, reader: Reader, hidden: int, after: int) -> None:
        """The first drafter pass after a claim, at context ``after``: what it sees, what is left behind.

        ``hidden``: the position from which its slot shows the drafter's cells.
        """
        entry = self._open.pop(reader.owner, None)
        if entry is None:
            return
        self._window(entry, hidden, after)
        self._branch_published(entry, reader)
        self._retained(entry, row)
        self._depth(entry)

    def ended(self, owner: int) -> None:
        """A request ended, or was preempted: what its drafter never read is only a matter of depth."""
        entry = self._open.pop(owner, None)
        if entry is not None:
            self._depth(entry)

    def void(self, owner: int) -> None:
        """What a request claimed was lost on its way to it: nothing of it is judged."""
        self._open.pop(owner, None)

    # -- verdicts ------------------------------------------------------------------------------------------------

    def _window(self, entry: Claimed, hidden: int, after: int) -> None:
        """AL: no more of the drafter's window is hidden than the claim rule declares.

        A fresh mirror that starts at the end of the match, inside a page, hides that whole page.
        """
        if not self.whole or not entry.drafts:
            return
        if entry.binds > 1 and not self.engine.rules.slots.parks:
            return  # a slots rule that keeps no base of an absent request takes the window from it
        self.docket.count("AL")
        page, twin = self.memory.page, self.engine.twin
        window = twin.window or 0
        allowed = 0
        if entry.fresh and entry.tokens == entry.match and entry.tokens <= entry.length + 1 - window:
            allowed = cdiv(entry.tokens, page) * page
        for column in self.draft_columns:
            low = column.lifecycle.read_from(after)
            if hidden <= max(low, allowed) or self._broken(entry):
                continue
            valid = max(0, after - hidden) / (after - low)
            self.docket.report(
                Violation(
                    "AL",
                    "the drafter's first pass after a claim sees less of its window than a cold one",
                    entry.request_id,
                    column.pool.name,
                    -1,
                    low,
                    self.memory.iteration,
                    expected=f"the window [{low}, {after}) behind a claim of {entry.tokens}",
                    found=f"hidden below {hidden}: {valid:.2f} of it is valid",
                )
            )

    def _branch_published(self, entry: Claimed, reader: Reader) -> None:
        """Who recomputed the window before a branch point has published it there."""
        if entry.branch < 0 or self._broken(entry):
            return
        page, pool_of = self.memory.page, self.memory.pool_of
        for column in self.draft_columns:
            pool = pool_of[column.index]
            index = self.published_pages.slots[pool]
            firsts = reader.views[column.index]
            first = column.lifecycle.read_from(entry.branch) // page
            for block in range(first, cdiv(entry.branch, page)):
                if (column.index, block) in entry.wrote or firsts[block * page] in index:
                    continue
                self._report(
                    entry,
                    "recomputed a window before a branch point and did not publish it",
                    f"block {block} of {column.lifecycle.name} published: the branch is at {entry.branch}",
                    "not published",
                )
                return

    def _retained(self, entry: Claimed, row: GenerationRow) -> None:
        """What is published at the end of a prompt is what a longer one can ask for: its window D tokens earlier."""
        twin, page = self.engine.twin, self.memory.page
        asked = entry.prompt_length - self.span
        if not twin.paired or not entry.partial or entry.length != entry.prompt_length or asked <= entry.tokens:
            return
        for column in self.draft_columns:
            life, table = column.lifecycle, row.tables[column.index]
            if twin.rules.publish.per_chunk(column.manager.role, twin.config.policy):
                continue  # every page was published before its window had passed
            block = max(life.read_from(asked) // page, life.sink_blocks(page))
            if block < table.base and not self._broken(entry):
                message = "keeps the window of an endpoint that no lookup can ask for"
                self._report(entry, message, f"block {block}, for a claim of {asked}", f"kept from block {table.base}")
                return

    def _depth(self, entry: Claimed) -> None:
        if entry.tokens > entry.most and not self._broken(entry):
            self._report(entry, "claims deeper than its rule allows", f"at most {entry.most}", "")

    def _broken(self, entry: Claimed) -> bool:
        return self.docket.broken(entry.request_id, entry.life)

    def _report(self, entry: Claimed, message: str, expected: str, why: str) -> None:
        found = f"a claim of {entry.tokens} of {entry.length}" + (f"; {why}" if why else "")
        pool = self.columns[-1].pool.name
        step = self.memory.iteration
        self.docket.report(Violation("REUSE", message, entry.request_id, pool, -1, entry.tokens, step, expected, found))
