"""The tagged memory of a cache layer: what its pages hold, who wrote it, and what a request finds when it reads.

There are no steps in flight: records are carried out as soon as an op made them, and what is computed is written at
once. Cells are those of :class:`model.cells.CellStore`; the drafter's last cells of a context, which a step rewrites
once the next token is known, hold their final content from the start.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from model.cells import CellStore
from model.config import Scope
from model.events import EventLog
from model.invariants.base import Docket, Violation
from model.invariants.reuse import ReuseLaw
from model.joint import Column, Twin
from model.pages import PagePool
from model.plan import Record
from model.reader import PROVISIONAL, SENTINELS, Reader
from model.request import Request
from model.table import NO_PAGE
from model.tokens import TokenStream, mix64_array, named_seed

_GRANT, _COPY, _MOVE, _PUBLISH, _CLAIM = (
    int(record) for record in (Record.GRANT, Record.COPY, Record.MOVE, Record.PUBLISH, Record.CLAIM)
)
_READS = {"unwritten": ("INIT", "a cell that was never written"), "provisional": ("INIT", "a draft's cell")}


@lru_cache(maxsize=4096)
def _cell_seed(name: str, span: int, draft: bool, scope: Scope) -> int:
    weights = (scope.target_weights, scope.draft_weights) if draft else (scope.target_weights,)
    return named_seed("cell", name, span, scope.adapter, scope.salt, *weights)


def alike_tags(stream: TokenStream, span: int, seeds: list[int]) -> list[NDArray[np.uint64]]:
    """:func:`model.tokens.cell_tags` of all cells that ``span`` further tokens are known for, by seed."""
    mixed = np.array(seeds, dtype=np.uint64)[:, None] ^ stream.sums(span, stream.length)
    return list(mix64_array(mixed.ravel()).reshape(mixed.shape))


class CacheMemory(CellStore):
    """Cells of every pool of one engine, judged at every write, read and publication."""

    def __init__(self, twin: Twin, docket: Docket, log: EventLog) -> None:
        super().__init__(twin, None, log)
        self.docket = docket
        self.claims: ReuseLaw | None = None
        self.readers: dict[int, Reader] = {}
        self.hidden: dict[int, list[int]] = {}  # owner -> per column, position below which nothing is read
        self.iteration = 0  # ops so far
        self._blank = memoryview(np.full(self.page, PROVISIONAL, dtype=np.uint64))

    # -- requests ------------------------------------------------------------------------------------------------

    def begin(self, request: Request) -> Reader:
        """The request's tokens become known: what each of its cells has to hold."""
        stream, scope = request.stream, request.spec.scope
        assert stream is not None and request.keys is not None
        spans = [column.lifecycle.lookahead if column.draft else 0 for column in self.columns]
        seeds = [
            _cell_seed(column.lifecycle.name, span, column.draft, scope)
            for column, span in zip(self.columns, spans, strict=True)
        ]
        tags: list[NDArray[np.uint64]] = []
        for span, alike in groupby(zip(spans, seeds, strict=True), itemgetter(0)):
            tags += alike_tags(stream, span, [seed for _, seed in alike])
        reader = Reader(request, request.owner, request.claim, request.keys.seed, tags, seeds)
        self.readers[request.owner] = reader
        return reader

    def end(self, owner: int) -> None:
        """The request is over."""
        self.readers.pop(owner, None)
        self.hidden.pop(owner, None)

    def claimed(self, request: Request) -> None:
        """What the request reads from now on: everything below its claim, but the drafter's where it starts afresh."""
        claim, paired = request.claim, self.twin.paired
        fresh = claim.fresh or not paired
        self.hidden[request.owner] = [claim.tokens if column.draft and fresh else 0 for column in self.columns]

    # -- records -------------------------------------------------------------------------------------------------

    def run(self, records: list[tuple]) -> None:
        """Carry out page-level records in the order in which they were made."""
        for record in records:
            kind = record[0]
            if kind == _GRANT:
                self._grant(record[1], record[2], record[3])
            elif kind == _PUBLISH:
                self._publish(*record[1:])
            elif kind == _COPY:
                _, pool, source, target, tokens = record
                flat, page = self.flat[pool], self.page
                flat[target * page : target * page + tokens] = flat[source * page : source * page + tokens]
            elif kind == _MOVE:
                _, pool, _, source, target = record
                flat, page = self.flat[pool], self.page
                flat[target * page : (target + 1) * page] = flat[source * page : (source + 1) * page]
                self.owner[pool][target] = self.owner[pool][source]
                self.sealed[pool][target] = self.sealed[pool][source]
                if self.claims is not None:
                    self.claims.published_pages.moved(pool, source, target)
            elif kind == _CLAIM and self.claims is not None:
                self.claims.claimed(record[3], self.readers[record[1]])

    def _grant(self, pool: int, slots: array[int], owner: int) -> None:
        """A new tenancy: whatever lay there is void."""
        flat, page, owners, sealed = self.flat[pool], self.page, self.owner[pool], self.sealed[pool]
        for slot in slots:
            flat[slot * page : (slot + 1) * page] = self._unwritten
            owners[slot] = owner
            sealed[slot] = 0

    def _publish(self, pool: int, slots: array[int], coverage: int, owner: int, column: int, block: int) -> None:
        """Pages enter the tree: each cell that their key speaks for is final and right."""
        place, reader = self.column_of[pool, column], self.readers.get(owner)
        if reader is None:
            return
        self.docket.count("PUB", len(slots))
        page, flat, sealed, tags = self.page, self.flat[pool], self.sealed[pool], reader.views[place.index]
        ends = reader.stream.prompt_length - place.lifecycle.lookahead
        for number, slot in enumerate(slots, block):
            begin = number * page
            vouched = max(0, min(coverage, ends - begin)) if place.lifecycle.lookahead else coverage
            if vouched > sealed[slot]:
                sealed[slot] = vouched
            if flat[slot * page : slot * page + vouched] != tags[begin : begin + vouched]:
                self._bad_publication(place, reader, slot, begin, vouched)
        if self.claims is not None:
            self.claims.published(place, np.frombuffer(slots, dtype=np.int32), reader, block)

    # -- writes --------------------------------------------------------------------------------------------------

    def compute(self, request: Request, begin: int, end: int, reach: int) -> None:
        """Every layer reads what lies before ``begin``, stores ``[begin, end)`` and leaves drafts up to ``reach``."""
        reader = self.readers[request.owner]
        drafts = request.spec.drafts
        for column in self.columns:
            if drafts or not column.draft:
                self.read(reader, column, begin)
                self._store(reader, column, begin, end, reader.views[column.index])
                if reach > end:
                    self._store(reader, column, end, reach, None)

    def _store(self, reader: Reader, column: Column, begin: int, end: int, tags: memoryview | None) -> None:
        """Write cells ``[begin, end)`` through the sequence's table: their ``tags``, or drafts."""
        page, pool = self.page, column.pool
        index = self.pool_of[column.index]
        table = column.manager.sequences[reader.owner].tables[column.column]
        flat, owners, sealed, owner = self.flat[index], self.owner[index], self.sealed[index], reader.owner
        at = begin
        while at < end:
            block = at // page
            stop = min(end, (block + 1) * page)
            place = block - table.base
            if not 0 <= place < len(table.pages):
                self._bad_write(reader, column, NO_PAGE, at, "OWN", "writes through an entry that nothing backs")
                return
            entry = table.pages[place]
            slot = pool.slot[entry]
            offset = at - block * page
            if owners[slot] != owner:
                self._bad_write(reader, column, entry, at, "OWN", "writes a page that it does not own alone")
            elif offset < sealed[slot]:
                self._bad_write(reader, column, entry, at, "PUB", "writes over published cells")
            cell = slot * page + offset
            flat[cell : cell + stop - at] = self._blank[: stop - at] if tags is None else tags[at:stop]
            at = stop

    # -- reads ---------------------------------------------------------------------------------------------------

    def read(self, reader: Reader, column: Column, position: int) -> None:
        """The query at ``position`` finds its window, and its sinks, in the pages of its request."""
        page, life, index = self.page, column.lifecycle, column.index
        low = max(life.read_from(position), self.hidden[reader.owner][index])
        if life.sinks and low:
            self._read_span(reader, column, self.hidden[reader.owner][index], min(life.sinks, low))
        if low >= position:
            return
        table = column.manager.sequences[reader.owner].tables[column.column]
        first, last = low // page, (position - 1) // page
        if first < table.base or last >= table.base + len(table.pages):
            self._read_span(reader, column, low, position)
            return
        flat, tags, slots = self.flat[self.pool_of[index]], reader.views[index], column.pool.slot
        begin = low
        for place in range(first - table.base, last + 1 - table.base):
            stop = min(position, (place + table.base + 1) * page)
            cell = (slots[table.pages[place]] - place - table.base) * page
            if flat[cell + begin : cell + stop] != tags[begin:stop]:
                self._read_span(reader, column, begin, stop)
                return
            begin = stop

    def _read_span(self, reader: Reader, column: Column, low: int, high: int) -> None:
        """Look at every cell of ``[low, high)`` and report the first that is not the request's own."""
        table = column.manager.sequences[reader.owner].tables[column.column]
        flat, tags = self.flat[self.pool_of[column.index]], reader.views[column.index]
        for at in range(low, high):
            entry = table.page(at // self.page)
            if entry == NO_PAGE:
                code = "WINDOW" if column.lifecycle.window is not None and at // self.page < table.base else "OWN"
                self._bad_read(reader, column, NO_PAGE, at, code, "an entry that nothing backs")
                return
            found = flat[column.pool.slot[entry] * self.page + at % self.page]
            if found != tags[at]:
                code, what = _READS.get(SENTINELS.get(found, ""), ("KEY", "content that is not its prompt's"))
                self._bad_read(reader, column, entry, at, code, what)
                return

    # -- verdicts ------------------------------------------------------------------------------------------------

    def _bad_publication(self, column: Column, reader: Reader, slot: int, begin: int, count: int) -> None:
        flat, tags = self.flat[self.pool_of[column.index]], reader.views[column.index]
        cell = slot * self.page
        offset = next(o for o in range(count) if flat[cell + o] != tags[begin + o])
        name = SENTINELS.get(flat[cell + offset])
        what = f"a cell that is {name}" if name else "content that its key does not give"
        self._tell(reader, column.pool, slot, begin + offset, "PUB" if name else "KEY", f"publishes {what}", column)

    def _bad_write(self, reader: Reader, column: Column, page: int, at: int, code: str, what: str) -> None:
        self._tell(reader, column.pool, page, at, code, what, column)

    def _bad_read(self, reader: Reader, column: Column, page: int, at: int, code: str, what: str) -> None:
        self._tell(reader, column.pool, page, at, code, f"reads {what}", column)

    def _tell(
        self, reader: Reader, pool: PagePool, page: int, at: int, code: str, message: str, column: Column
    ) -> None:
        text = f"{column.lifecycle.name}: {message}"
        self.docket.report(Violation(code, text, reader.request_id, pool.name, page, at, self.iteration))
