"""Target and drafter under one cursor: claim, grow, revert, suspend, settle; every layout behind one face.

The frontier of a context, while its chunks are computed, in both pools:

    [0, claim)        reused from the trees (the drafter's part: reused, or hidden behind its slot's base)
    [claim, cursor)   computed by dispatched chunks
    [cursor, end)     the next chunk; capacity reaches end + drafts (last chunk) + extra tokens
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from model.claim_view import TwinView
from model.config import EngineConfig, PoolSize, PublishPolicy
from model.drafter import KINDS
from model.geometry import Lifecycle, cdiv
from model.manager import Manager
from model.mirror import resize_error
from model.pages import PagePool
from model.plan import Recorder
from model.request import Request, Totals
from model.rules.base import Rules
from model.rules.claim import Claim, TargetOnly
from model.rules.layout import Edge, Shape
from model.sequence import ACTIVE, SequenceCache
from model.table import TableRow
from model.tree import Match
from model.turns import Turns

_NOTHING = Match([], 0)


@dataclass(frozen=True, slots=True)
class Column:
    """One lifecycle of one manager; ``index`` numbers all columns of an engine, the target's first."""

    index: int
    manager: Manager
    column: int
    lifecycle: Lifecycle
    pool: PagePool
    draft: bool


class Twin:
    """The managers of one engine. ``managers[0]`` is the target's; a unified one hosts the drafter as well."""

    def __init__(self, config: EngineConfig, rules: Rules, recorder: Recorder) -> None:
        self.config, self.rules = config, rules
        self.kind = KINDS[config.drafter.kind]
        self.has_drafter = self.kind.has_pool and bool(config.draft)
        may_pair = self.has_drafter and rules.pairing.allows(self.kind, config.drafter, config.limits.page_size)
        shape = rules.layout.shape if may_pair else Shape.SEPARATE
        self.unpaired_note = (
            f"drafter {self.kind.name!r} cannot pair and runs beside the target's reuse"
            if self.has_drafter and rules.layout.shape is not Shape.SEPARATE and not may_pair
            else ""
        )
        self.shape = shape
        self.paired = shape is not Shape.SEPARATE and self.has_drafter
        draft = rules.layout.draft_lifecycles(config, self.kind, rules.retention, shape is Shape.UNIFIED)
        draft = draft if self.has_drafter else ()
        names = dict.fromkeys(life.pool for life in (*config.target, *draft))
        self.pools = {
            name: PagePool(name, i, size.device_pages, size.host_pages, rules.index)
            for i, (name, size) in enumerate((name, self._size(name, draft)) for name in names)
        }
        groups = [(*config.target, *draft)] if shape is Shape.UNIFIED else [config.target, draft]
        self.managers = tuple(
            Manager("target" if i == 0 else "draft", lives, self.pools, config.limits, rules, recorder)
            for i, lives in enumerate(groups)
            if lives
        )
        if config.policy is PublishPolicy.PER_CONVERSATION:
            for manager in self.managers:
                manager.turns = Turns(manager, config.max_num_turns)
        self.target = self.managers[0]
        self.draft = self.managers[1] if len(self.managers) > 1 else None
        self.columns = tuple(
            Column(index, manager, column, manager.lifecycles[column], manager.pools[column], draft_role)
            for index, (manager, column, draft_role) in enumerate(
                (manager, column, life.role == "draft")
                for manager in self.managers
                for column, life in enumerate(manager.lifecycles)
            )
        )
        # A mirror may start without pages only where the drafter's prefill reads none and its window is all it reads.
        bounded = not self.kind.attends and all(life.window is not None and not life.sinks for life in draft)
        self.window = max((life.window or 0 for life in draft), default=0) if bounded else None
        self.width = 1 + config.drafter.drafts
        admission = rules.admission
        self.grown = (admission.grown(self.width),) * len(self.managers)  # recorded for each row
        self.growth = tuple(admission.growth(self.width, manager is not self.target) for manager in self.managers)
        self.plain_grown = (admission.grown(1),) * len(self.managers)  # of a request that runs without the drafter
        self.plain_growth = tuple(admission.growth(1, manager is not self.target) for manager in self.managers)
        self.padded = 1 << (self.width - 1).bit_length()  # captured graphs come in powers of two
        self.columns_told = rules.columns.count(config.limits, config.drafter.drafts)
        self._releases_ahead = rules.retention.edge is not Edge.SETTLED
        separate = rules.layout.shape is Shape.SEPARATE or self.paired or not self.has_drafter
        self.claim_rule = rules.claim if separate else TargetOnly()  # what cannot pair runs beside the target's reuse
        self.resize_error = ""  # what the last growth of a context that failed said
        self.tag_span = self.kind.tag_span(config.drafter.chain)
        self.ahead: dict[int, int] = {}  # root of keys -> tokens behind a block that these keys depend on
        known = self.kind.span(config.drafter.chain) or 0  # what nobody knows the keys cannot look ahead
        self.span = known if self.paired or rules.pairing.keys_unpaired else 0

    def _size(self, name: str, draft: tuple[Lifecycle, ...]) -> PoolSize:
        """Size of a pool; fused pages are as many as the target's."""
        if self.shape is Shape.UNIFIED and self.rules.layout.fused and name in {life.pool for life in draft}:
            return self.config.pools[self.config.target[0].pool]
        return self.config.pools[name]

    def has_room(self) -> bool:
        """Whether one more request finds a sequence slot in every manager."""
        return all(manager.has_room() for manager in self.managers)

    # -- claim ---------------------------------------------------------------------------------------------------

    def make_keys(self, request: Request) -> None:
        """Build the request's key views: its prompt's tokens, looked up for its whole context."""
        assert request.stream is not None
        spec, page = request.spec, self.config.limits.page_size
        length = request.stream.prompt_length
        span = self.span if spec.drafts else 0
        view = self.rules.keys.view(request.stream, length, self.rules.scope.key(spec.scope), span, page)
        view.prompt_length = request.context_length
        request.keys, request.draft_keys = view, view.draft or view
        self.ahead[view.seed] = view.ahead
        request.draft_keys.prompt_length = view.prompt_length

    def first_new_key(self, request: Request) -> int | None:
        """Key of the first full block that the target's tree lacks, if there is one; without side effects."""
        assert request.keys is not None
        probe = self.target.probe(request.keys, drafts=request.spec.drafts)
        block = probe.tokens // self.config.limits.page_size
        return request.keys.keys[block] if block < len(request.keys.keys) else None

    def claim(self, request: Request, totals: Totals, decide: Callable[[TwinView], Claim] | None = None) -> Claim:
        """Create the request's sequences in every manager and return where it starts, as ``decide`` says.

        That is the claim rule, unless the request begins in another way than by a prefill.
        """
        keys = request.keys
        assert keys is not None
        if self.config.policy is PublishPolicy.NONE:
            for manager in self.managers:
                manager.create(request.owner, None, _NOTHING, 0)
            request.tables = [table for sequence in self.sequences(request) for table in sequence.tables]
            request.rows = ()
            return Claim(0, fresh=False)
        drafts = request.spec.drafts
        view = TwinView(self, request, self.target.probe(keys, drafts=drafts))
        if drafts or decide is not None:
            decision = (decide or self.claim_rule.decide)(view)
        else:
            decision = Claim(view.target, fresh=True)
        decision = decision if drafts else Claim(decision.tokens, fresh=True)
        if self.draft is not None and self.paired:
            decision = self._claim_pair(request, view, decision, totals)
        else:
            declined = frozenset(self.target.optional) if decision.fresh else frozenset()
            declined = declined if drafts else self.target.drafting
            self.target.create(request.owner, keys, view.probe.match, decision.tokens, declined)
            if self.draft is not None:
                mirror = self.draft.create(request.owner, None, _NOTHING, 0)
                mirror.starts_at(decision.tokens)
        sequences = self.sequences(request)
        for sequence in sequences:
            sequence.conversation = request.spec.conversation
            sequence.priority = request.spec.priority
        request.rows = ()
        request.tables = [table for sequence in sequences for table in sequence.tables]
        return decision

    def _claim_pair(self, request: Request, view: TwinView, decision: Claim, totals: Totals) -> Claim:
        """Both managers claim what was decided; the order and the fallback of the paired admission."""
        assert self.draft is not None and request.keys is not None and request.draft_keys is not None
        if decision.fresh:
            every = frozenset(range(len(self.draft.lifecycles)))
            keys = request.draft_keys if request.spec.drafts else None  # what is not written is not published
            self.draft.create(request.owner, keys, _NOTHING, decision.tokens, every)
            self.target.create(request.owner, request.keys, view.probe.match, decision.tokens)
            return decision
        if not self.rules.admission.limits:
            self._claim_one(self.draft, request, request.context_length)
            return decision._replace(tokens=self._claim_one(self.target, request, request.context_length))
        drafted = self._claim_one(self.draft, request, decision.tokens)
        if not self.rules.admission.clips:
            return decision._replace(tokens=self._claim_one(self.target, request, decision.tokens))
        claimed = self._claim_one(self.target, request, drafted)
        if drafted != claimed:
            self.draft.free(request.owner)
            drafted = self._claim_one(self.draft, request, claimed)
        if drafted != claimed:
            totals.fallbacks += 1
            self.free(request)
            self._claim_one(self.draft, request, 0)
            self._claim_one(self.target, request, 0)
            drafted = 0
            if not self.rules.admission.rewinds_on_fallback:
                return decision._replace(tokens=claimed)
        return decision._replace(tokens=drafted)

    def _claim_one(self, manager: Manager, request: Request, limit: int) -> int:
        keys = request.keys if manager is self.target else request.draft_keys
        assert keys is not None
        probe = manager.probe(keys, limit)
        tokens = min(probe.tokens, limit)
        manager.create(request.owner, keys, probe.match, tokens)
        return tokens

    # -- growth --------------------------------------------------------------------------------------------------

    def sequences(self, request: Request) -> list[SequenceCache]:
        """The request's sequences, target first; empty when it holds none."""
        found = (manager.sequences.get(request.owner) for manager in self.managers)
        return [sequence for sequence in found if sequence is not None]

    def resume(self, request: Request) -> bool:
        """Lock the pages of both pools, or of neither."""
        for sequence in self.sequences(request):
            if sequence.status is not ACTIVE and not sequence.resume():
                self.suspend_all(request)
                return False
        return True

    def grow_context(self, request: Request, end: int, last: bool) -> bool:
        """Back both pools for a chunk up to ``end``; on failure both are as before this call and suspended."""
        limits, drafts = self.config.limits, self.config.drafter.drafts
        if not self.resume(request):
            return False
        need = end + (drafts * self.rules.admission.reserve if last else 0) + limits.extra_tokens
        done: list[tuple[SequenceCache, int]] = []
        for manager in self.managers:
            sequence = manager.sequences[request.owner]
            history, before = sequence.history, sequence.capacity
            if manager is self.draft and not self.paired:
                history = max(history, self.rules.mirror.hint(self.kind, request.cursor, sequence.capacity))
            covered = need if manager is self.target or self.rules.admission.covers_block else end
            if manager is self.draft and not self.paired and self.rules.mirror.whole_prompt:
                covered = request.context_length + drafts + limits.extra_tokens
            if sequence.resize(max(before, covered, history), history):
                done.append((sequence, before))
                continue
            if manager is self.draft and not self.paired:
                self.resize_error = resize_error(manager, sequence, max(before, covered, history))
            if manager is self.target or self.rules.admission.counts_draft:
                if self.rules.admission.reverts_target:
                    for grown, capacity in reversed(done):
                        grown.resize(max(capacity, grown.history), grown.history)
                self.suspend_all(request)
                return False
        return True

    def grow_generation(self, request: Request) -> bool:
        """Back one more verify row (1 + K tokens) in both pools; records what each grew, or undoes it."""
        drafts, owner = request.spec.drafts, request.owner
        growth = self.growth if drafts else self.plain_growth
        sequences = [manager.sequences[owner] for manager in self.managers]
        for sequence, more, owed in zip(sequences, growth, request.owed, strict=False):
            if sequence.capacity + more > sequence.backed or sequence.status is not ACTIVE or owed:
                if not self._grow_slowly(request, sequences, growth):
                    return False
                break
        else:
            for sequence, more in zip(sequences, growth, strict=True):
                sequence.capacity += more
        request.grown.append(self.grown if drafts else self.plain_grown)
        if self._releases_ahead:
            settled, rows = request.settled_position(), len(request.grown)
            for sequence in sequences:
                sequence.release_behind(self.rules.retention.released_at(settled, self.width if drafts else 1, rows))
        return True

    def _grow_slowly(self, request: Request, sequences: list[SequenceCache], growth: tuple[int, ...]) -> bool:
        """Growth that needs pages, a resume, or capacity that is owed from a suspension."""
        if not self.resume(request):
            return False
        done: list[tuple[SequenceCache, int]] = []
        for place, sequence in enumerate(sequences):
            before = sequence.capacity
            capacity = before - request.owed[place] + growth[place]
            capacity = self.rules.admission.reached(capacity, sequence.backed, self.config.limits.page_size)
            history = max(sequence.history, min(request.settled_position(), capacity))
            if sequence.manager is self.draft and not self.rules.admission.covers_block:
                capacity, history = before, sequence.history
            if sequence.resize(max(capacity, history), history):
                done.append((sequence, before))
                continue
            if sequence.manager is not self.target and not self.rules.admission.counts_draft:
                continue
            if self.rules.admission.reverts_target:
                for grown, reached in reversed(done):
                    grown.resize(max(reached, grown.history), grown.history)
            return False
        request.owed = [0] * len(sequences)
        return True

    def revert_generation(self, request: Request) -> None:
        """Undo the newest growth of a generation row whose forward did not run."""
        grown = request.grown.pop()
        for place, manager in enumerate(self.managers):
            if manager is not self.target and not self.rules.admission.reverts_draft:
                continue
            sequence = manager.sequences.get(request.owner)
            if sequence is None:
                continue
            if sequence.status is ACTIVE:
                sequence.resize(max(sequence.history, sequence.capacity - grown[place]), sequence.history)
            else:
                request.owed[place] += grown[place]

    def revert_context(self, request: Request, capacities: list[int]) -> None:
        """Undo the growth of a chunk whose forward did not run."""
        for place, manager in enumerate(self.managers):
            if manager is not self.target and not self.rules.admission.reverts_draft:
                continue
            sequence = manager.sequences.get(request.owner)
            if sequence is not None and sequence.status is ACTIVE:
                sequence.resize(max(sequence.history, capacities[place]), sequence.history)

    # -- after a step --------------------------------------------------------------------------------------------

    def advance(self, request: Request, end: int, last: bool) -> None:
        """A chunk up to ``end`` was dispatched: publish what the policy lets, then release what is stale."""
        branch = request.claim.branch
        publish, policy = self.rules.publish, self.config.policy
        branch = branch if publish.fills_branch else -1
        # The page in which the branch lies belongs to its window; a layer with a narrower one soon releases it.
        covered = min(end, cdiv(branch, self.config.limits.page_size) * self.config.limits.page_size)
        crossing = 0 <= branch <= end and request.cursor < covered
        for manager in self.managers:
            sequence = manager.sequences[request.owner]
            sequence.wrote(end, request.spec.drafts)
            per_chunk = publish.per_chunk(manager.role, policy)
            if per_chunk:
                manager.commit(sequence, end, final=last, fill_until=max(branch, 0))
            elif crossing:
                manager.commit(sequence, covered, fill_until=branch)
            if manager is self.target or self.paired or self.rules.mirror.hint(self.kind, end, end):
                sequence.settle(end)  # a mirror that is told no history keeps all it has until the first verify row
            if last and not per_chunk:  # only what is live at the endpoint is left to publish
                manager.commit(sequence, end, final=True, fill_until=max(branch, 0))

    def settle_generation(self, request: Request, committed: int) -> None:
        """A verify row committed ``committed`` tokens: give back what was grown beyond them, raise the history."""
        grown, owed, owner = request.grown.popleft(), request.owed, request.owner
        settled = request.settled_position()
        page, surplus_of, padded = self.config.limits.page_size, self.rules.rewind.surplus, self.padded
        for place, manager in enumerate(self.managers):
            sequence = manager.sequences.get(owner)
            if sequence is None:
                continue
            history = settled if settled > sequence.history else sequence.history
            surplus = surplus_of(grown[place], committed, padded)
            if sequence.status is not ACTIVE:
                owed[place] += surplus
                continue
            capacity = sequence.capacity - surplus - owed[place]
            owed[place] = 0
            if sequence.backed - page < capacity and history < sequence.quiet and history <= capacity:
                sequence.capacity = capacity
                sequence.history = history
            else:
                sequence.resize(max(capacity, history), history)

    # -- leaving -------------------------------------------------------------------------------------------------

    def suspend_all(self, request: Request) -> None:
        """Give up the locks of every pool that the suspension rule names."""
        for sequence in self.sequences(request):
            if sequence.manager is self.target or self.rules.suspension.both:
                sequence.suspend()

    def free(self, request: Request, ended: bool = False) -> None:
        """Drop the request's sequences in every manager; ``ended``: it never comes back."""
        for manager in self.managers:
            if manager is self.target or not ended or self.rules.epoch.frees_draft:
                manager.free(request.owner)

    def rows(self, request: Request) -> tuple[TableRow, ...]:
        """The request's table rows, one per column; the same object as long as no row changes."""
        owner, known = request.owner, request.rows
        if known:
            for table in request.tables:
                if table.row is None:
                    break
            else:
                return known
        by_slot = self.rules.offload.addresses_slots
        rows = [
            column.manager.sequences[owner]
            .tables[column.column]
            .snapshot(column.pool, self.columns_told, by_slot or not column.draft)
            for column in self.columns
        ]
        request.rows = tuple(rows)
        return request.rows
