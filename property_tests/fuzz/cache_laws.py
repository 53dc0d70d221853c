"""The laws of a cache layer after each op: what the op touched, and all of it every so often.

What an op can touch is one request, its tables and what it evicts; :mod:`property_tests.fuzz.cache_books` says why
the rest stands. The full pass is the judges' own (``model.invariants``).
"""

from __future__ import annotations

from collections.abc import Sequence

from model.config import PublishPolicy
from model.engine import Engine
from model.invariants.base import Docket, Violation
from model.invariants.index import IndexLaw
from model.invariants.reference import ReferenceLaw
from model.invariants.reuse import ReuseLaw
from model.invariants.sequences import SequenceLaws
from model.pages import PagePool
from model.reader import Reader
from model.request import Request
from model.sequence import ACTIVE, SequenceCache
from model.table import NO_PAGE
from model.tree import Node
from property_tests.fuzz.cache_books import Books
from property_tests.fuzz.cache_memory import CacheMemory

EVERY = 64  # ops between two full passes
CHECKS = ("touched", "full")

Shape = tuple[int, int, int, int, tuple[int, ...], tuple[int, ...]]  # of one sequence, see :func:`shape_of`


class Disagreement(AssertionError):
    """The look at what an op touched and the full pass do not agree on a correct build: one of the two is wrong."""


class CacheLaws:
    """Judges of one cache layer. ``check`` is one of :data:`CHECKS`: "full" looks at everything after every op."""

    def __init__(self, engine: Engine, docket: Docket, check: str = "touched", correct: bool = True) -> None:
        if check not in CHECKS:
            raise ValueError(f"check is {check!r}, expected one of {', '.join(CHECKS)}")
        self.engine, self.docket, self.twin = engine, docket, engine.twin
        self.correct = correct  # whether the two looks have to agree: a bad rule may break what an op did not touch
        self.full_every = 1 if check == "full" else EVERY
        self.memory = CacheMemory(self.twin, docket, engine.log)
        self.claims = self.memory.claims = ReuseLaw(engine, docket, self.memory)
        self.requests: dict[int, int] = {}  # owner -> request id, ended ones too
        self.references = ReferenceLaw(self.twin, docket, self._request_of, True, self._tenant)
        self.index = IndexLaw(self.twin, docket, self._tenant)
        self.sequences = SequenceLaws(engine, docket)
        self.books = Books(self.twin)
        self.ops = 0
        limits, drafts = engine.config.limits, engine.config.drafter.drafts
        self.page, self.reserve, self.width = limits.page_size, drafts + limits.extra_tokens, 1 + drafts

    def _request_of(self, owner: int) -> int:
        return self.requests.get(owner, -1)

    def _tenant(self, pool: PagePool, page: int) -> int:
        if page < 0:
            return -1
        return self._request_of(self.memory.owner[self.memory.pools.index(pool)][pool.slot[page]])

    # -- after every op ------------------------------------------------------------------------------------------

    def after(self, owner: int) -> None:
        """An op was carried out that touched ``owner`` (-1: nobody)."""
        self.ops += 1
        docket, memory = self.docket, self.memory
        memory.iteration = self.ops
        known = len(docket.violations)
        memory.run(self.engine.recorder.take())
        books = self.books
        if owner >= 0:
            books.touched(owner)
            request = self.engine.owners.get(owner)
            if request is not None:
                self._paired(owner)
                self.sequences.shapes((request,), self.ops)
            elif any(owner in manager.sequences for manager in self.twin.managers):
                self.references.check_owners(self.engine.owners, self.ops)
        docket.count("REF")
        sound = books.sound()
        for place, pool in enumerate(memory.pools):
            self._covered(place, pool, books.pools[pool.name].cached if sound else None)
        if not sound or self.ops % self.full_every == 0:
            self.everything(sound and len(docket.violations) == known)

    def everything(self, silent: bool = True) -> None:
        """The full pass. ``silent``: the look at what was touched found nothing, so this one must not either."""
        docket, step = self.docket, self.ops
        known = len(docket.violations)
        self.references.check(step)
        self.references.check_pairs(step)
        self.references.check_owners(self.engine.owners, step)
        self.index.check(step)
        self.sequences.shapes(self.engine.owners.values(), step)
        for place, pool in enumerate(self.memory.pools):
            self._covered(place, pool)
        if not silent and not docket.violations:
            if self.correct:
                raise Disagreement(f"op {step}: the books are off and the full pass finds nothing")
            self._report("REF", "the books of a pool are off", -1, self.memory.pools[0], NO_PAGE, -1, "", "")
        if self.correct and silent and known == 0 and docket.violations and self.full_every > 1:
            raise Disagreement(f"op {step}: the full pass found what no op touched: {docket.violations[0]}")

    def _paired(self, owner: int) -> None:
        """Both pools of a request are locked, or none."""
        if self.twin.draft is None:
            return
        first, second = (manager.sequences.get(owner) for manager in self.twin.managers)
        if first is not None and second is not None and first.status is not second.status:
            self.references.check_pairs(self.ops)

    def _covered(self, index: int, pool: PagePool, cached: Sequence[tuple[int, Node]] | None = None) -> None:
        """The index promises no more of a page than was published of it.

        Of all pages after every op: a promise grows on a node that is known, and a page may be written over by another.
        ``cached``: the pages that nodes are behind, where the books know them.
        """
        tree, sealed = pool.tree, self.memory.sealed[index]
        assert tree is not None
        self.docket.count("PUB")
        spans, columns, slots = [life.lookahead for life in tree.lifecycles], pool.column, pool.slot
        if cached is None:
            cached = [(page, node) for page, node in enumerate(pool.node) if node is not None]
        known = len(spans)
        for page, node in [
            (page, node)
            for page, node in cached
            if (column := columns[page]) < known and node.coverage[column] - spans[column] > sealed[slots[page]]
        ]:
            self._report(
                "PUB",
                "a key promises more of a page than was published of it",
                self._tenant(pool, page),
                pool,
                page,
                node.ordinal * self.page,
                f"{sealed[slots[page]]} tokens",
                f"{node.coverage[columns[page]]} tokens",
            )

    # -- around claims, growth and commits -----------------------------------------------------------------------

    def claimed(self, request: Request) -> None:
        """A claim was made: it holds what its tokens say, FRONT and REUSE."""
        memory = self.memory
        reader = memory.begin(request)
        memory.claimed(request)
        tokens = request.claim.tokens
        if request.cursor != tokens:
            self._apart(request, self.twin.columns[0].pool, tokens, request.cursor)
        if request.tables and self.twin.paired:
            self.docket.count("FRONT")
            for sequence in self.twin.sequences(request):
                if sequence.claimed != tokens:
                    self._apart(request, sequence.manager.pools[0], tokens, sequence.claimed)
        if tokens:
            drafts = request.spec.drafts
            for column in self.twin.columns:
                if drafts or not column.draft:
                    memory.read(reader, column, tokens)
        if self.engine.config.policy is PublishPolicy.NONE:
            return
        if not tokens and self._nothing_held(reader):
            self.docket.count("REUSE")  # nothing was there to claim
        else:
            self.claims.noted(request)

    def _nothing_held(self, reader: Reader) -> bool:
        """Whether no page was ever published that holds the first token where the target attends to all of them."""
        memory, published = self.memory, self.claims.published_pages
        return any(
            column.lifecycle.window is None
            and int(reader.views[column.index][0]) not in published.slots[memory.pool_of[column.index]]
            for column in memory.target_columns
        )

    def judged(self, request: Request) -> None:
        """The claim was judged against the memory: its depth too."""
        self.claims.ended(request.owner)

    def undone(self, request: Request, before: list[Shape], what: str) -> None:
        """ROLLBACK: a growth that found no pages left both pools as they were."""
        self.docket.count("ROLLBACK")
        sequences = self.twin.sequences(request)
        for was, sequence in zip(before, sequences, strict=True):
            now = shape_of(sequence)
            ends, ended = [map(sum, zip(shape[4], shape[5], strict=True)) for shape in (was, now)]
            kept = now[3] != was[3] or list(ends) == list(ended)  # a first resume takes what it needs at once
            settled = was[1] <= now[1] <= max(was[1], request.settled_position())  # which a suspension held up
            if now[0] == was[0] and now[2] == was[2] and kept and settled:
                continue
            self._report(
                "ROLLBACK",
                f"a {what} that found no pages left its traces",
                request.request_id,
                sequence.manager.pools[0],
                NO_PAGE,
                -1,
                f"capacity {was[0]}, history {was[1]}, {was[2]} blocks, pages {was[4]} from {was[5]}",
                f"capacity {now[0]}, history {now[1]}, {now[2]} blocks, pages {now[4]} from {now[5]}",
            )

    def grown(self, request: Request, before: list[Shape], end: int, last: bool) -> None:
        """ADMIT: both pools back a chunk up to ``end``, and no more than K drafts and the headroom behind it."""
        self.docket.count("ADMIT")
        most = end + (self.reserve if last else self.engine.config.limits.extra_tokens)
        paired = self.twin.paired
        for was, sequence in zip(before, self.twin.sequences(request), strict=True):
            role = sequence.manager is self.twin.target
            if sequence.capacity < end or ((role or paired) and sequence.capacity > max(was[0], most)):
                self._misgrown(request, sequence, f"{end} to {max(was[0], most)} tokens backed")

    def widened(self, request: Request, before: list[Shape]) -> None:
        """ADMIT: both pools back one more verify row, and no more."""
        self.docket.count("ADMIT")
        width = self.width if request.spec.drafts else 1
        reach = request.settled_position() + width * len(request.grown)
        for was, sequence in zip(before, self.twin.sequences(request), strict=True):
            if sequence.capacity < reach or sequence.capacity > was[0] + width:
                self._misgrown(request, sequence, f"{reach} to {was[0] + width} tokens backed")

    def _misgrown(self, request: Request, sequence: SequenceCache, expected: str) -> None:
        self._report(
            "ADMIT",
            "a pool backs too little or too much of what was grown",
            request.request_id,
            sequence.manager.pools[0],
            NO_PAGE,
            request.cursor,
            expected,
            f"{sequence.capacity} tokens backed",
        )

    def released(self, request: Request) -> None:
        """WINDOW: what a window left is gone, up to what its lifecycle keeps below it."""
        self.docket.count("WINDOW")
        for column in self.twin.columns:
            life, sequence = column.lifecycle, column.manager.sequences.get(request.owner)
            if life.window is None or sequence is None or sequence.status is not ACTIVE:
                continue
            allowed = life.window + life.lookahead + self.page
            first = (sequence.history + 1 - allowed) // self.page
            table = sequence.tables[column.column]
            if first > life.sink_blocks(self.page) and table.pages and table.base < first:
                self._report(
                    "WINDOW",
                    f"{life.name}: keeps pages that its window left",
                    request.request_id,
                    column.pool,
                    table.pages[0],
                    table.base * self.page,
                    f"released up to block {first} at history {sequence.history}",
                    f"kept from block {table.base}",
                )

    def _apart(self, request: Request, pool: PagePool, expected: int, found: int) -> None:
        message = "the pools of one request stand at different frontiers"
        at = min(expected, found)
        self._report("FRONT", message, request.request_id, pool, NO_PAGE, at, f"frontier {expected}", f"{found}")

    def _report(
        self, code: str, message: str, request: int, pool: PagePool, page: int, at: int, expected: str, found: str
    ) -> None:
        self.docket.report(Violation(code, message, request, pool.name, page, at, self.ops, expected, found))

    def drained(self) -> None:
        """Everybody left: the full pass, and nothing is held."""
        self.everything()
        self.references.check(self.ops, drained=True)


def shape_of(sequence: SequenceCache) -> Shape:
    """Capacity, history, blocks, whether it was resumed, and per column the number of pages and the first block."""
    tables = sequence.tables
    return (
        sequence.capacity,
        sequence.history,
        sequence.blocks,
        sequence.resumed,
        tuple([len(table.pages) for table in tables]),
        tuple([table.base for table in tables]),
    )
