"""One KV cache manager: lifecycles, their pools, one prefix tree and the sequences of its requests."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from model.config import Limits
from model.geometry import Lifecycle, ReusePolicy
from model.pages import PagePool
from model.sequence import ACTIVE, Publication, SequenceCache
from model.table import NO_PAGE, Table
from model.tree import Match, Node, PrefixTree
from model.turns import Turns

if TYPE_CHECKING:
    from model.plan import Recorder
    from model.rules.base import Rules
    from model.rules.keys import KeyView


class Probe(NamedTuple):
    """What a manager could give a prompt: the matched path and the deepest endpoint its REQUIRED lifecycles cover."""

    match: Match
    tokens: int


class Manager:
    """A manager of ``role`` "target" or "draft" (a unified one is the target's and hosts the drafter's lifecycle)."""

    def __init__(
        self,
        role: str,
        lifecycles: Sequence[Lifecycle],
        pools: dict[str, PagePool],
        limits: Limits,
        rules: Rules,
        recorder: Recorder,
    ) -> None:
        self.role = role
        self.lifecycles = tuple(lifecycles)
        self.pools = tuple(pools[lifecycle.pool] for lifecycle in lifecycles)
        self.distinct_pools = tuple(dict.fromkeys(self.pools))
        self.page_size = limits.page_size
        self.limits = limits
        self.rules = rules
        self.recorder = recorder
        self.tree = PrefixTree(limits.page_size, lifecycles, self.pools, limits.partial_children, rules.index)
        self.required = tuple(i for i, life in enumerate(lifecycles) if life.policy is ReusePolicy.REQUIRED)
        self.optional = tuple(i for i, life in enumerate(lifecycles) if life.policy is ReusePolicy.OPTIONAL)
        self.private = frozenset(i for i, life in enumerate(lifecycles) if life.policy is ReusePolicy.PRIVATE)
        self.drafting = frozenset(i for i, life in enumerate(lifecycles) if life.role == "draft")
        self.published_columns = tuple(i for i in range(len(lifecycles)) if i not in self.private)
        self.sequences: dict[int, SequenceCache] = {}
        # Sequences at once: a batch of requests, and a pad dummy for each iteration that can be in flight.
        counts_dummies = role == "target" or rules.dummy.in_both_maps
        self.index_slots = limits.max_batch + (1 + limits.run_ahead if counts_dummies else 0)
        self.turns: Turns | None = None  # endpoints kept per conversation, where the policy asks for it
        self.short: tuple[PagePool, int] | None = None  # pool that last said no, and the pages it lacked
        for lifecycle, pool in zip(lifecycles, self.pools, strict=True):
            both_ways = rules.offload.brings_drafts or lifecycle.role != "draft"
            pool.moved = recorder.moved if both_ways else recorder.stored

    # -- probing and creating ------------------------------------------------------------------------------------

    def probe(self, keys: KeyView, limit: int | None = None, drafts: bool = True) -> Probe:
        """Match a prompt without side effects, the claim being at most ``limit`` tokens.

        Without ``drafts`` the drafter's lifecycles do not matter.
        """
        match = self.tree.match(keys.seed, keys.keys, keys.items, keys.lookup(limit), keys.partial)
        columns = self.required
        if not drafts:
            columns = tuple(column for column in columns if column not in self.drafting)
        return Probe(match, self.rules.prune.endpoint(self, match, keys.trim(match.tokens), columns, keys))

    def deepest(self, match: Match, end: int, columns: Sequence[int], keys: KeyView, boundary: bool = False) -> int:
        """Deepest endpoint up to ``end`` that ``columns`` cover for this reader (see :meth:`PrefixTree.deepest`)."""
        return self.tree.deepest(match, end, columns, keys, boundary)

    def create(
        self, owner: int, keys: KeyView | None, match: Match, tokens: int, declined: frozenset[int] = frozenset()
    ) -> SequenceCache:
        """New suspended sequence that claims ``tokens`` of ``match``; PRIVATE lifecycles are always declined."""
        assert owner not in self.sequences
        sequence = SequenceCache(self, owner, keys, tokens)
        sequence.take(match, tokens, declined | self.private)
        self.sequences[owner] = sequence
        return sequence

    def has_room(self) -> bool:
        """Whether one more sequence finds a sequence slot."""
        return len(self.sequences) < self.index_slots

    def free(self, owner: int) -> None:
        """Close the sequence of ``owner`` if there is one."""
        sequence = self.sequences.pop(owner, None)
        if sequence is not None:
            sequence.close()

    # -- pages ---------------------------------------------------------------------------------------------------

    def gate_open(self) -> bool:
        """Whether every pool is below the utilisation up to which sequences may resume."""
        limit, gate = self.limits.max_util_for_resume, self.rules.suspension
        return all(gate.share(pool.utilization()) <= limit for pool in self.distinct_pools)

    def obtainable(self, needs: Sequence[int], freed: Sequence[int], returning: Sequence[int] = ()) -> bool:
        """Whether each pool can give what its lifecycles need once they released what they say they free.

        ``returning``: of what each lifecycle needs, the pages that come back from the host tier.
        """
        for pool in self.distinct_pools:
            need = spare = back = 0
            for column, other in enumerate(self.pools):
                if other is pool:
                    need += max(0, needs[column])
                    spare += freed[column]
                    back += returning[column] if returning else 0
            have = self.rules.admission.obtainable(pool, back) + spare
            if need > have:
                self.short = (pool, need - have)
                return False
        return True

    # -- publication ---------------------------------------------------------------------------------------------

    def commit(self, sequence: SequenceCache, tokens: int, *, final: bool = False, fill_until: int = 0) -> None:
        """Publish the full blocks of the first ``tokens`` prompt tokens; ``final`` adds the partial last block.

        Below ``fill_until`` holes of cached blocks are filled, whatever the rule says. A sequence whose branch was
        evicted, or that is not active, publishes nothing more.
        """
        if sequence.status is not ACTIVE:
            return
        keys = sequence.keys
        if keys is not None and sequence.publication is Publication.ALLOWED:
            limit = min(tokens, keys.length)
            whole = self._commit_full(sequence, keys, limit // self.page_size, fill_until)
            rest = limit % self.page_size
            if final and whole and rest and self.rules.publish.partial_pages:
                self._commit_block(sequence, keys, sequence.next_block, rest, fill_until)
        if final:
            self.stop_committing(sequence)
            if self.turns is not None and sequence.conversation >= 0:
                self.turns.ended(sequence)

    def _commit_full(self, sequence: SequenceCache, keys: KeyView, end: int, fill_until: int) -> bool:
        """Publish full blocks up to ``end``; ``False`` if the sequence's branch was evicted on the way."""
        block = sequence.next_block
        while block < end:
            unknown = keys.keys[block] not in self.tree.index
            if not self._commit_block(sequence, keys, block, self.page_size, fill_until):
                return False
            block += 1
            if unknown and block < end:
                self._commit_new(sequence, keys, block, end)
                block = end
        return True

    def stop_committing(self, sequence: SequenceCache) -> None:
        """End publication: what is stale and was held for a late commit is dropped."""
        sequence.publication = Publication.STOPPED
        for column, pool in enumerate(self.pools):
            pool.release_held(array("i", [page for _, page in sequence.stale[column]]))
            sequence.stale[column] = []

    def _commit_new(self, seq: SequenceCache, keys: KeyView, first: int, end: int) -> None:
        """Publish full blocks ``[first, end)`` below a block that is new itself: the tree knows none of them."""
        size = self.page_size
        assert seq.tip is not None
        nodes = self.tree.grow(seq.tip, keys, first, end)
        for column in self.published_columns:
            table, pool, span = seq.tables[column], self.pools[column], self.lifecycles[column].lookahead
            late = dict(seq.stale[column])
            low, high = seq.written[column]
            everything = not self.rules.publish.only_written
            for place, node in enumerate(nodes):
                block = first + place
                page = table.page(block)
                if page == NO_PAGE:
                    page = late.get(block, NO_PAGE)
                    if page == NO_PAGE:
                        continue
                start = block * size
                covered = size if everything or (start >= low and start + size <= high) else None
                if covered is None:
                    covered = self.rules.publish.coverage((low, high), start, size)
                if covered > 0:
                    node.pages[column] = page
                    node.coverage[column] = covered
                    if span:
                        node.behind[column] = keys.behind(block, covered, span)
                    pool.attach(page, node, column)
                    pool.prioritise(page, seq.priority)
                    self.recorder.published(pool, page, covered, seq.owner, column, block)
        seq.tip = nodes[-1]
        seq.next_block = end
        seq.committed = end * size

    def _commit_block(self, seq: SequenceCache, keys: KeyView, block: int, length: int, fill_until: int) -> bool:
        parent = seq.tip if seq.tip is not None else self.tree.root(keys.seed)
        if not parent.alive:
            seq.publication = Publication.CONFLICT
            return False
        key = keys.key(block, length)
        node = self.tree.find(key)
        known = node is not None
        if node is None:
            items = keys.block_items(block, length)
            node = self.tree.insert(parent, key, items, length)
            if node is None and block * self.page_size < fill_until:  # the branch lies in a longer cached block
                node, known = self.tree.longer(parent, items), True
            if node is None:
                return False
        fill = not known or self.rules.publish.fill_holes or block * self.page_size < fill_until
        for column in self.published_columns:
            self._commit_page(seq, keys, node, column, block, length, fill)
        if length == self.page_size:
            seq.tip = node
            seq.next_block = block + 1
            seq.committed = (block + 1) * self.page_size
        elif not any(page != NO_PAGE for page in node.pages):
            self.tree.discard_empty(node)
        return True

    def _commit_page(
        self, seq: SequenceCache, keys: KeyView, node: Node, column: int, block: int, length: int, fill: bool
    ) -> None:
        table, pool = seq.tables[column], self.pools[column]
        page = table.page(block)
        held = page == NO_PAGE
        if held:
            page = next((p for b, p in seq.stale[column] if b == block), NO_PAGE)
            if page == NO_PAGE:
                return
        if pool.node[page] is not None:
            return  # claimed: it is cached already
        coverage = self.rules.publish.coverage(seq.written[column], block * self.page_size, length)
        cached = node.pages[column]
        if coverage <= 0 or (cached == NO_PAGE and not fill):
            return
        span = self.lifecycles[column].lookahead
        behind = keys.behind(block, coverage, span)
        if self.tree.set_page(node, column, page, coverage, behind):
            pool.prioritise(page, seq.priority)
            self.recorder.published(pool, page, coverage, seq.owner, column, block)
        elif held or length < self.page_size or node.coverage[column] < length:
            return
        elif node.behind[column] == behind and (block + 1) * self.page_size + span <= keys.keyed:
            # Cells that depend on tokens behind the keyed ones are the owner's to rewrite: such a page stays its own.
            self._rebase(table, pool, block, page, cached)

    @staticmethod
    def _rebase(table: Table, pool: PagePool, block: int, own: int, cached: int) -> None:
        """Replace an own page by the equal one that is cached already."""
        if pool.on_host(cached):
            return
        pool.hold((cached,))
        pool.lock_held((cached,))
        place = block - table.base
        table.row = None
        if 0 <= place < len(table.pages):
            table.pages[place] = cached
        else:
            table.sinks[block] = cached
        pool.release_locked(array("i", (own,)))
