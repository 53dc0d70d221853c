"""From an engine at work to the naive oracle: what was published, dropped and computed, in the oracle's own records.

The oracle is asked after each claim whether it is sound and complete, and after each publication whether it was due.
It is told of the pages that stand and of the life of the request in question; what fell before changes no answer.
What stands follows from events alone: a page falls with one that its pool gives up (evicted, retired with a turn's
endpoint, spoiled by a lost copy), or to a page of the same tokens that covers more. One that no key leads to any more
although nothing took it was lost, and that is objected to.
Scopes are those that requests name, tokens those of their streams: neither comes from the model's keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from model.builds import Build
from model.config import PublishPolicy
from model.engine import Engine
from model.eviction import FREE
from model.geometry import ReusePolicy
from model.invariants import Violation
from model.joint import Column, Twin
from model.plan import Record as Stream
from model.plan import StepPlan
from model.request import Request
from model.rules.claim import DropLastPage, JointMinimum, RecomputeTail, TargetOnly, WindowedPair
from model.rules.keys import LookaheadHash, ShiftedStream
from model.rules.layout import Shape
from model.table import NO_PAGE
from model.tree import Node, PrefixTree
from property_tests.fuzz import oracle
from property_tests.fuzz.oracle_records import Advanced, Claimed, Group, Policy, Published, Record, Rule, World

T = TypeVar("T")
ORACLE = "ORACLE"  # the law that an objection of the naive oracle breaks: it is none of the model's own
Life = tuple[int, int, int]  # pool, page, tenancy
CLAIMS = (TargetOnly, RecomputeTail, JointMinimum, DropLastPage, WindowedPair)  # whose completeness is known
POLICIES: dict[PublishPolicy, Policy] = {
    PublishPolicy.ALL_REUSABLE: "all_reusable",
    PublishPolicy.PER_REQUEST: "per_request",
    PublishPolicy.PER_CONVERSATION: "per_conversation",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the oracle is asked about a build: a world and a rule for requests that draft, others for plain ones.

    ``whole``: keys or rule know whole pages only, or the rule is none of :data:`CLAIMS` itself: a claim may
    be a page less one token below what it promises, and it is asked for soundness alone.
    """

    world: World
    rule: Rule
    plain: World
    whole: bool


def asked(twin: Twin, build: Build) -> Asked | None:
    """How the oracle sees ``twin``; ``None`` for a claim rule that it has no words for."""
    rules, config = build.rules, twin.config
    if config.policy is PublishPolicy.NONE:
        return None
    page, paired = config.limits.page_size, twin.paired
    groups = [group_of(column) for column in twin.columns if paired or not column.draft]
    target = tuple(group for group in groups if group.side == "target")
    shifted = isinstance(rules.keys, ShiftedStream | LookaheadHash) and paired
    children = config.limits.partial_children
    world = World(page, tuple(groups), twin.shape is Shape.UNIFIED and paired, shifted, children)
    rule = rule_of(twin, build)
    if rule is None:
        return None
    claim = twin.claim_rule
    whole = rule.drop or isinstance(rules.keys, LookaheadHash) or (isinstance(claim, TargetOnly) and claim.full_pages)
    whole = whole or type(claim) not in CLAIMS  # a rule of somebody else's may claim less on purpose
    return Asked(world, rule, World(page, target, children=children), whole or not rules.publish.partial_pages)


def group_of(column: Column) -> Group:
    """The layers of one column, in the oracle's words."""
    life = column.lifecycle
    stored = None if life.window is None else life.window + life.trail
    side = "draft" if column.draft else "target"
    return Group(name_of(column), side, life.window, life.sinks, life.lookahead if column.draft else 0, stored)


def name_of(column: Column) -> str:
    """Name of a column's layers; two lifecycles may be named alike."""
    return f"{column.index} {column.lifecycle.name}"


def rule_of(twin: Twin, build: Build) -> Rule | None:
    """The claim rule of a build, in the oracle's words."""
    claim = twin.claim_rule
    if not twin.paired and not isinstance(claim, RecomputeTail):
        return Rule("ignored") if isinstance(claim, TargetOnly) or not twin.has_drafter else None
    if isinstance(claim, TargetOnly):
        return Rule("ignored")
    if isinstance(claim, RecomputeTail):
        return Rule("ignored", tail=claim.tokens if claim.tokens is not None else twin.window or 0)
    if isinstance(claim, JointMinimum):
        return Rule("required")
    if isinstance(claim, DropLastPage):
        return Rule("required", boundary=True, drop=True)
    if isinstance(claim, WindowedPair):
        if twin.window is None:  # the drafter's prefill reads its own cache: no mirror starts without pages
            return Rule("required", claim.boundary)
        branch = claim.branch and build.rules.publish.publishes_branch(twin.config.policy)
        return Rule("window", claim.boundary, branch, claim.draft_first)
    return None


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A page that its pool gave up, as it was ``told`` (empty: by nobody known), and whether its ``branch`` goes."""

    life: Life
    tree: PrefixTree
    branch: bool
    told: tuple[Published, ...]

    def above(self, page: Published) -> bool:
        """Whether ``page`` may hang from this one: what both know of the tokens up to here is equal."""
        return any(
            page.first >= one.first and page.scope == one.scope and _agree(page, one, one.first + one.cells)
            for one in self.told
        )


def _agree(page: Published, other: Published, tokens: int) -> bool:
    """Whether two pages hold the same first ``tokens`` tokens, as far as both know them."""
    known = min(tokens, len(page.tokens), len(other.tokens))
    return page.tokens[:known] == other.tokens[:known]


def _supersedes(new: Published, old: Published) -> bool:
    """Whether ``new`` covers the block of ``old`` further, and begins like it."""
    same = (new.group, new.first, new.scope) == (old.group, old.first, old.scope)
    return same and new.cells > old.cells and _agree(new, old, old.first + old.cells)


@dataclass
class OracleFeed:
    """Tells the oracle what one engine does, and keeps its ``objections``; ``claims``, ``pages``: how often it spoke.

    Attach it before the first op and call :meth:`look` after each.
    """

    engine: Engine
    build: Build
    objections: list[str] = field(default_factory=list)
    claims: int = 0
    pages: int = 0
    depths: int = 0  # claims of more than nothing

    def __post_init__(self) -> None:
        engine = self.engine
        self.asked = asked(engine.twin, self.build)
        self.standing: dict[Life, list[Published]] = {}
        self.lives: dict[int, list[Record]] = {}  # owner -> its admission and what it computed since
        self._requests: dict[int, Request] = {}
        self._records, self._told = engine.recorder.records, dict[int, int]()  # slots of each record that were told
        self._pools = list(engine.twin.pools.values())
        self._column = {(self._pools.index(column.pool), column.column): column for column in engine.twin.columns}
        self._new: list[Published] = []  # since the last look
        self._given_up: list[GivenUp] = []  # likewise
        for manager in engine.twin.managers:
            self._hear(manager.tree)
        scheduler, planned = engine.scheduler, engine.on_planned
        claimed = scheduler.on_claimed
        scheduler.on_claimed = _both(self._claimed, claimed)
        engine.on_planned = _both(self._planned, planned)

    def look(self) -> None:
        """An op was applied: what it published is told, and what it took away."""
        self._take_up(self.engine.recorder.records)
        self._drop()

    def broken(self) -> Violation | None:
        """The first objection, as a broken law."""
        return Violation(ORACLE, self.objections[0]) if self.objections else None

    # -- in the order of the engine's decisions -------------------------------------------------------------------

    def _claimed(self, request: Request) -> None:
        """A request claimed: the oracle is asked with the pages that stand now."""
        self.look()
        self.claim(request)

    def claim(self, request: Request) -> None:
        """Ask about the claim that ``request`` has just made."""
        asked, claim = self.asked, request.claim
        self._requests[request.owner] = request
        if asked is None:
            return
        drafts = request.spec.drafts
        world, rule = (asked.world, asked.rule) if drafts else (asked.plain, Rule("ignored"))
        paired = drafts and any(group.side == "draft" for group in world.groups)
        reused = 0 if claim.fresh or not paired or rule.draft == "ignored" else claim.tokens
        prompt, keyed = self._prompt(request), request.record.prompt_tokens
        made = Claimed(request.owner, prompt, self._scope(request), claim.tokens, reused, keyed)
        self.lives[request.owner] = [made]
        names = {group.name for group in world.groups}
        history = [page for pages in self.standing.values() for page in pages if page.group in names]
        self.claims += 1
        self.depths += claim.tokens > 0
        why = oracle.sound(world, rule, history, made)
        if why is None and not asked.whole:
            why = oracle.complete(world, rule, history, made)
        if why is not None:
            self.objections.append(why)

    def _planned(self, plan: StepPlan) -> None:
        """A plan took the records along; its contexts move on next."""
        self._take_up(plan.records)
        self._records, self._told = self.engine.recorder.records, {}
        for row in plan.context:
            self.computed(row.owner, row.end)

    def computed(self, owner: int, end: int) -> None:
        """The context of ``owner`` is computed up to ``end``."""
        if owner in self.lives:
            self.lives[owner].append(Advanced(owner, end))

    def _take_up(self, records: list[tuple]) -> None:
        """Publications that were recorded since the last look; the last record of a column may have grown since."""
        if records is not self._records:
            self._records, self._told = records, {}
        told = self._told
        fresh = [
            number
            for number, record in enumerate(records)
            if record[0] == Stream.PUBLISH and len(record[2]) > told.get(number, 0)
        ]
        if not fresh:
            return
        places = [
            {slot: page for page, slot in enumerate(pool.slot) if pool.state[page] != FREE} for pool in self._pools
        ]
        found: list[tuple[tuple, int, list[int]]] = []
        for number in range(fresh[0], len(records))[::-1]:  # where a page lay before it moved
            record = records[number]
            if record[0] == Stream.MOVE:
                _, pool, page, source, _ = record
                places[pool][source] = page
            elif record[0] == Stream.START:
                _, _, pool, page, source, _ = record
                places[pool][source] = page
            elif record[0] == Stream.PUBLISH:
                known = told.get(number, 0)
                found.append((record, known, [places[record[1]].get(slot, NO_PAGE) for slot in record[2][known:]]))
                told[number] = len(record[2])
        for record, known, pages in reversed(found):
            self._published(record, known, pages)

    def _published(self, record: tuple, known: int, pages: list[int]) -> None:
        _, pool, _, coverage, owner, place, block = record
        column, request = self._column[pool, place], self._requests.get(owner)
        if request is None or self.asked is None:
            return
        size, prompt = self.engine.config.limits.page_size, self._prompt(request)
        world = self.asked.world
        span = world.lookahead if world.shifted and request.spec.drafts else group_of(column).lookahead
        judged = any(group.name == name_of(column) for group in world.groups)
        for number, page in enumerate(pages, block + known):
            if page == NO_PAGE:
                continue  # gone already
            first = number * size
            tokens = prompt[: min(request.record.prompt_tokens, first + coverage + span)]
            told = Published(
                owner,
                name_of(column),
                page,
                self._pools[pool].tenancy[page],
                first,
                coverage,
                tokens,
                self._scope(request),
            )
            if judged:
                self._ask(told, request)
            self.standing.setdefault((pool, page, told.tenancy), []).append(told)
            self._new.append(told)

    def _ask(self, page: Published, request: Request) -> None:
        """Whether a page was due. Nothing is asked about pages of plain requests, nor of those that claimed unseen."""
        asked, life = self.asked, self.lives.get(request.owner)
        if asked is None or life is None or not request.spec.drafts:
            return
        self.pages += 1
        branches = (request.claim.branch,) if request.claim.branch >= 0 else ()
        why = oracle.published(asked.world, POLICIES[self.engine.config.policy], life, page, branches)
        if why is not None:
            self.objections.append(why)

    def _hear(self, tree: PrefixTree) -> None:
        """Listen to what the pools of ``tree`` give up; each such page is noted before it goes."""
        lose = tree.lose

        def call(node: Node, column: int) -> None:
            pool, lifecycle = tree.pools[column], tree.lifecycles[column]
            self._take_up(self.engine.recorder.records)
            page = node.pages[column]
            life = (self._pools.index(pool), page, pool.tenancy[page])
            whole = lifecycle.window is None or node.ordinal < lifecycle.sink_blocks(tree.page_size)
            branch = whole and lifecycle.policy is ReusePolicy.REQUIRED
            self._given_up.append(GivenUp(life, tree, branch, tuple(self.standing.get(life, ()))))
            lose(node, column)

        tree.lose = call
        for pool in tree.pools:
            pool.lose = call

    def _drop(self) -> None:
        """Pages that no key leads to any more: something has to have taken each of them."""
        pools = self._pools
        for life in list(self.standing):
            pool, page, tenancy = life
            if pools[pool].node[page] is None or pools[pool].tenancy[page] != tenancy:
                told = self.standing.pop(life)
                if not self._taken(life, told):
                    lost = told[-1]
                    self.objections.append(
                        f"request {lost.owner} published [{lost.first}, {lost.first + lost.cells}) of {lost.group!r}, "
                        "and no key leads there any more although nothing took it"
                    )
        self._new, self._given_up = [], []

    def _taken(self, life: Life, told: list[Published]) -> bool:
        """Whether the page of ``life`` was given up, or with it what it hangs from, or one that covers more came."""
        tree = self._pools[life[0]].tree
        for lost in self._given_up:
            if lost.life == life:
                return True
            if lost.tree is tree and lost.branch and (not lost.told or any(map(lost.above, told))):
                return True
        return any(_supersedes(new, old) for new in self._new for old in told)

    # -- words ---------------------------------------------------------------------------------------------------

    @staticmethod
    def _prompt(request: Request) -> tuple[int, ...]:
        assert request.stream is not None
        return tuple(request.stream.tokens(0, request.context_length).tolist())

    def _scope(self, request: Request) -> tuple[object, bool]:
        """What a page depends on beside its tokens; requests without a drafter have keys of their own if shifted."""
        apart = self.asked is not None and self.asked.world.shifted and self.asked.world.lookahead > 0
        return request.spec.scope, apart and not request.spec.drafts

    def history(self) -> list[Record]:
        """The pages that stand, for whoever wants to ask more."""
        return [page for pages in self.standing.values() for page in pages]


def _both(first: Callable[[T], None], second: Callable[[T], None] | None) -> Callable[[T], None]:
    """One listener behind the other."""

    def call(value: T) -> None:
        first(value)
        if second is not None:
            second(value)

    return call
