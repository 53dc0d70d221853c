"""The tagged memory: executes plans in stream order and knows what every token slot holds.

Each pool is an array ``[slots, page]`` of 64-bit cells. A FINAL cell holds its content tag; the other states are the
sentinels below, which no tag equals in practice. A plan runs when its iteration settles: records first, then the
reads of every row, then the writes of every row.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from model.chunk_cells import chunk_cells
from model.drafter import Pass
from model.events import EventLog, Kind
from model.plan import ContextRow, GenerationRow, Record, StepPlan
from model.reader import GUARD, LOGGED, MASKED, PROVISIONAL, Reader, vouched_cells
from model.rules.claim import Claim
from model.rules.device import Padding, Provisional, Rebase, TableUpload, Trim
from model.slot_store import SlotStore
from model.standins import StandIns
from model.table import TableRow
from model.tokens import cell_tags, named_seed

if TYPE_CHECKING:
    from model.invariants.memory import MemoryLaws
    from model.invariants.reuse import ReuseLaw
    from model.joint import Column, Twin
    from model.request import Request

_PUBLISHED, _BOUND, _CHUNK = int(Kind.MEM_PUBLISH), int(Kind.MEM_BIND), int(Kind.MEM_CHUNK)
_GRANT, _COPY, _MOVE, _PUBLISH, _BIND, _UNBIND, _BEGIN, _END, _CLAIM, _ = (int(record) for record in Record)


class Shadow(SlotStore):
    """Memory of one engine. ``laws`` judges every read and write; ``None`` runs it unjudged."""

    def __init__(self, twin: Twin, laws: MemoryLaws | None, log: EventLog) -> None:
        super().__init__(twin, laws, log)
        config = twin.config
        self.claims: ReuseLaw | None = None  # judge of claims, if there is one
        self.dirty: dict[int, Reader] = {}  # owners whose last decode cells are deferred
        self.defers = laws is None or not laws.exhaustive
        width = 2 * (config.drafter.drafts + 1) + 2 * self.page
        self._provisional = memoryview(np.full(width, PROVISIONAL, dtype=np.uint64))
        self._masked = memoryview(np.full(width, MASKED, dtype=np.uint64))
        self.steps = 1 + config.drafter.drafts
        self.stand_ins = StandIns(self)
        # Columns whose frontier a step logs, and how far behind the slot's length their last final cell lies (0: the
        # target's, whose length says it); -1 where there is no drafter.
        drafted = self.draft_columns[0].index if self.draft_columns else -1
        self._frontier_columns = ((self.target_columns[0].index, 0), (drafted, max(1, twin.tag_span)))

    # -- records -------------------------------------------------------------------------------------------------

    def run_records(self, records: list[tuple]) -> None:
        """Carry out page-level records in stream order."""
        for record in records:
            kind = record[0]
            if kind == _GRANT:
                self.grant(record[1], record[2], record[3])
            elif kind == _PUBLISH:
                self._publish(*record[1:])
            elif kind == _COPY:
                self.copy(*record[1:])
            elif kind == _BIND:
                self._bind(*record[1:])
            elif kind == _UNBIND:
                self.slots.pop(record[1], None)
            elif kind == _BEGIN:
                self._begin(*record[1:])
            elif kind == _END:
                self.readers.pop(record[1], None)
                if self.claims is not None:
                    self.claims.ended(record[1])
            elif kind == _MOVE:
                self.move(*record[1:])
                if self.claims is not None:
                    self.claims.published_pages.moved(record[1], record[3], record[4])
            elif kind == _CLAIM and self.claims is not None and record[3].scheduled:
                _, owner, request, entry = record  # known ahead of its pages: the judge asks for its tags
                self._begin(owner, request, Claim(entry.tokens, entry.fresh), entry.space)
                self.claims.claimed(entry, self.readers[owner])

    def _publish(self, pool: int, slots: array[int], coverage: int, owner: int, column: int, block: int) -> None:
        place = self.column_of[pool, column]
        chosen = np.frombuffer(slots, dtype=np.int32)
        reader = self.publisher(owner)
        vouched = vouched_cells(reader, len(slots), coverage, place.lifecycle.lookahead, block * self.page, self.page)
        sealed = np.frombuffer(self.sealed[pool], dtype=np.int32)
        sealed[chosen] = np.maximum(sealed[chosen], vouched)
        if self.laws is not None:
            self.laws.published(self, place, chosen, vouched, owner, block)
        if self.claims is not None:
            self.claims.published(place, chosen, reader, block)
        tag = LOGGED & (self.flat[pool][slots[-1] * self.page + coverage - 1])
        self.log.memory.add((_PUBLISHED, 4 + len(slots), self.iteration, pool, coverage, tag, *slots))

    def publisher(self, owner: int) -> Reader | None:
        """Whose tokens a page is that ``owner`` publishes; ``None`` once the owner's request ended."""
        return self.readers.get(owner)

    def _bind(self, slot: int, owner: int, length: int, base: int, draft_length: int) -> None:
        self.slots[slot] = owner
        self.length[slot] = length
        self.base[slot] = base
        self.draft_length[slot] = draft_length
        if self.lookup is not None:
            self.lookup.bind(slot, self.twin.rules.lookup)
        reader = self.readers.get(owner)
        if reader is not None:
            reader.pending = True
            if self.claims is not None:
                self.claims.bound(owner)
        self.log.memory.add((_BOUND, 6, self.iteration, slot, owner, length, base, draft_length))

    def _begin(self, owner: int, request: Request, claim: Claim, space: int, received: int = -1) -> None:
        """The owner's tokens become known; by now its request may have begun anew, with another owner and claim."""
        if owner in self.readers:
            return
        stream = request.stream
        assert stream is not None
        scope = request.spec.scope
        spans, seeds = [column.lifecycle.lookahead if column.draft else 0 for column in self.columns], []
        for column, span in zip(self.columns, spans, strict=True):
            weights = (scope.target_weights, scope.draft_weights) if column.draft else (scope.target_weights,)
            seeds.append(named_seed("cell", column.lifecycle.name, span, scope.adapter, scope.salt, *weights))
        tags = [cell_tags(stream, 0, stream.length - span, span, seed) for span, seed in zip(spans, seeds, strict=True)]
        reader = self.readers[owner] = Reader(request, owner, claim, space, tags, seeds)
        if received >= 0:
            reader.draft_final = max(0, received - max(0, self.twin.tag_span - 1))  # a prompt may be shorter than that

    def run_between(self, records: list[tuple]) -> None:
        """Carry out records that lie between two steps and that no plan carries."""
        self._flush_all_but([])
        self.run_records(records)

    # -- a step --------------------------------------------------------------------------------------------------

    def run_step(self, plan: StepPlan, accepted: tuple[int, ...]) -> None:
        """Execute one iteration; ``accepted[i]`` tokens of generation row ``i`` were committed."""
        self.iteration = plan.iteration
        self.device, context, generation = plan.device, plan.context, plan.generation
        self.verified = (generation, accepted)
        if self.device.table is TableUpload.SHARED_BUFFER:
            context, generation = self.overwritten_tables(context, generation)
        self._flush_all_but(generation)
        self.run_records(plan.records)
        if self.laws is not None:
            if generation is not plan.generation:
                self.laws.uploaded(self, plan, (*context, *generation))
            reads = generation if self.device.rebase is not Rebase.WRITES else [self.unbased(row) for row in generation]
            self.laws.rows(self, context, reads)
        for row in context:
            self._run_chunk(row)
        if self.lookup is not None:
            self.look_up(context, generation)
        self.log.memory.add_long(Kind.MEM_STEP, self._run_rows(generation, accepted))
        if plan.dummies or plan.padding or self.device.padding is not Padding.SCRATCH:
            self.stand_ins.run(plan, generation)

    def _run_rows(self, rows: list[GenerationRow], accepted: tuple[int, ...]) -> list[int]:
        """Execute the verify rows of a step; returns its iteration and, for the log, where each of them stands then."""
        log = [self.iteration]
        length, draft_length, base, page = self.length, self.draft_length, self.base, self.page
        (target, _), (drafted, behind) = steps = self._frontier_columns
        readers, dirty, defers = self.readers, self.dirty, self.defers
        for row, count in zip(rows, accepted, strict=True):
            owner = row.owner
            reader = readers.get(owner)
            if reader is None:
                continue
            slot, tables = row.slot, row.tables
            after = length[slot] + count
            if defers and reader.tables is tables and after <= reader.room and reader.slot == slot:
                length[slot] = after
                draft_length[slot] = folded = draft_length[slot] + count
                reader.drafted += count
                reader.taken = count
                dirty[owner] = reader
                views, table = reader.views, tables[target]
                place, tag = table.view[(after - 1) // page - table.base], views[target][after - 1] & LOGGED
                if drafted < 0:
                    log += (owner, after, count, base[slot], folded, place, tag, GUARD, 0)
                    continue
                last, table = after - reader.lag - behind, tables[drafted]
                block = last // page - table.base
                if block < 0:
                    log += (owner, after, count, base[slot], folded, place, tag)
                    log += self._deferred(row, reader, drafted, last)
                else:
                    other = views[drafted][last + reader.lag] & LOGGED
                    log += (owner, after, count, base[slot], folded, place, tag, table.view[block], other)
            else:
                self.flush(reader)  # it may go on in the same pages and reach too far in them to be deferred
                self._run_generation(row, reader, count)
                log += (owner, after, count, base[slot], draft_length[slot])
                for index, back in steps:
                    log += self.frontier(row, index, (draft_length[slot] if back else after) - max(1, back))
        return log

    def _deferred(self, row: GenerationRow, reader: Reader, index: int, position: int) -> tuple[int, int]:
        """What :meth:`_frontier` finds at a position before the row's pages, once deferred cells are written."""
        if position < 0:
            return GUARD, 0
        cell = reader.views[index][position + reader.lag] & LOGGED
        return self.slot_at(row.tables[index], position // self.page), cell

    # -- deferred cells ------------------------------------------------------------------------------------------

    def _flush_all_but(self, rows: list[GenerationRow]) -> None:
        """Write the deferred cells of every request that does not simply go on in this step."""
        if not self.dirty:
            return
        tables = {row.owner: row.tables for row in rows}
        for reader in [reader for owner, reader in self.dirty.items() if tables.get(owner) is not reader.tables]:
            self.flush(reader)

    def flush(self, reader: Reader) -> None:
        """Bring the deferred cells of one request to memory, through the table that its steps used.

        Deferring is sound because the open page belongs to one request and is not published: nobody else reads or
        writes it while the request's table stays as it is.
        """
        if self.dirty.pop(reader.owner, None) is None:
            return
        slot, width = reader.slot, self.steps
        position = self.length[slot]
        row = GenerationRow(reader.request_id, reader.owner, slot, width, True, reader.tables)
        for column in self.target_columns:
            views = reader.views[column.index][reader.flushed : position]
            self.write(row, column, reader.tables[column.index], reader.flushed, position, views)
        if self.draft_columns:
            lag = reader.lag
            begin = reader.flushed - lag
            for column in self.draft_columns:
                final = position - lag - max(0, column.lifecycle.lookahead - 1)
                start = min(begin, reader.draft_final - lag)
                if final > start:
                    cells = reader.views[column.index][start + lag : final + lag]
                    self.write(row, column, reader.tables[column.index], start, final, cells)
            reader.draft_final = max(0, position - max(0, self.twin.tag_span - 1))
            self._draft_cells(row, position - lag, position - lag - reader.taken)
        reach = position - reader.taken + width  # of the last step, which reaches furthest
        for column in self.target_columns:
            self.write(row, column, reader.tables[column.index], position, reach, self._provisional)
        reader.flushed = position

    def coverage(self, owner: int) -> float:
        """Share of the drafter's window that was valid in the owner's last pass; 1 before it or without a pool."""
        share, reader = 1.0, self.readers.get(owner)
        if reader is None or reader.drafted < 0:
            return share
        after = reader.drafted
        hidden = self.base[reader.slot] * self.page
        for column in self.draft_columns:
            window_from = column.lifecycle.read_from(after)
            backed = reader.tables[column.index].base * self.page if reader.tables else 0
            valid = after - max(window_from, hidden, reader.invalid_below[column.index], backed)
            if after > window_from:
                share = min(share, max(0, valid) / (after - window_from))
        return share

    def _run_chunk(self, row: ContextRow) -> None:
        reader = self.readers.get(row.owner)
        if reader is None:
            return
        start, end, slot = row.start, row.end, row.slot
        tags: list[int] = []
        shift = 0
        for column in self.target_columns:
            self.write_span(row, column, start, end, reader.tags[column.index][start:end])
        for column in self.draft_columns if row.drafts else ():
            if self.twin.kind.slot:
                shift = self.draft_length[slot] - start  # a slot-local store writes at the slot's own length
            stored = row if self.device.rebase is not Rebase.READS else self.unbased(row)
            self._write_draft_chunk(stored, reader, column, shift)
        self.length[slot] = end
        self.draft_length[slot] = end + shift
        for column in self.columns:
            last = end - 1 + (shift if column.draft else 0)
            slot_at = self.slot_at(row.tables[column.index], last // self.page)
            flat = self.flat[self.pool_of[column.index]]
            tags.append(flat[slot_at * self.page + last % self.page] & LOGGED if slot_at >= 0 else 0)
        self.log.memory.add((_CHUNK, 5 + len(tags), self.iteration, row.owner, start, end, self.base[slot], *tags))

    def _write_draft_chunk(self, row: ContextRow, reader: Reader, column: Column, shift: int) -> None:
        begin, cells = chunk_cells(row, reader, column, self.device.lookahead, self.twin.config.vocabulary)
        self.write_span(row, column, begin + shift, row.end + shift, cells)

    # -- generation ----------------------------------------------------------------------------------------------

    def _run_generation(self, row: GenerationRow, reader: Reader, count: int) -> None:
        """One verify row, cell by cell; afterwards ``reader.room`` says how long the next ones may be deferred."""
        slot = row.slot
        position = self.length[slot]
        after = position + count
        for column in self.target_columns:
            index = column.index
            table = row.tables[index]
            self.write(row, column, table, position, after, reader.views[index][position:after])
            if count < row.width:
                self.write(row, column, table, after, position + row.width, self._provisional)
        self.length[slot] = after
        reader.lag = 0
        if self.draft_columns and row.drafts:
            self._run_drafter(row, reader, count, position)
        else:
            self.draft_length[slot] = after  # no pool to fold into, or nobody who drafts
        reader.flushed = after
        reader.slot = slot
        reader.tables = row.tables
        reader.room = self._room(row.tables) if self.defers and row.drafts else -1

    def _room(self, tables: tuple[TableRow, ...]) -> int:
        """Target position that a step may reach while everything it writes lies in backed pages of the row."""
        if not self.device.plain:
            return -1
        reach = self.steps - 1 + max(0, self.steps - 1)
        return min(table.base + len(table.view) for table in tables) * self.page - reach

    def _run_drafter(self, row: GenerationRow, reader: Reader, count: int, position: int) -> None:
        """Fold the accepted tokens into the drafter's context, then draft."""
        slot, trim = row.slot, self.device.trim
        length = self.draft_length[slot] if self.twin.kind.slot or trim is not Trim.ACCEPTED else position
        if self.device.rebase is Rebase.READS:
            row = self.unbased(row)
        lag = position - length  # a slot seeded on a page boundary trails its request
        after = length + count
        kept = self.device.provisional is Provisional.KEPT
        for column in self.draft_columns:
            index = column.index
            table = row.tables[index]
            span = column.lifecycle.lookahead
            begin = min(length, reader.draft_final - lag) if span > 1 else length
            final = after - max(0, span - 1)
            if final > begin:
                cells = reader.views[index][begin + lag : final + lag]
                if kept and final - begin > 1:
                    self.write(row, column, table, begin, begin + 1, cells)
                    self.write(row, column, table, begin + 1, final, self._provisional)
                else:
                    self.write(row, column, table, begin, final, cells)
                if self.laws is not None:
                    self.laws.folded(self, row, reader, column, (begin, final, lag))
        self._draft_cells(row, after, length)
        self.draft_length[slot] = after - (0 if self.twin.kind.slot else trim.surplus(count, row.width - 1))
        reader.lag = lag
        reader.draft_final = max(0, after + lag - max(0, self.twin.tag_span - 1))
        first, reader.drafted = reader.drafted < 0, after
        if self.laws is not None:
            self.laws.drafter_read(self, row, after)
        if first and self.claims is not None:
            self.claims.drafted(row, reader, self.base[row.slot] * self.page, after)

    def _draft_cells(self, row: GenerationRow, after: int, length: int) -> None:
        """Cells that the drafter's pass leaves behind its context of ``after`` tokens, folded from ``length`` on."""
        kind, drafts = self.twin.kind, row.width - 1
        reach = after + (drafts if kind.writes is Pass.BLOCK else max(0, drafts - 1))
        for column in self.draft_columns:
            table = row.tables[column.index]
            final = after - max(0, column.lifecycle.lookahead - 1)
            if kind.slot:
                self._fixed_columns(row, column, table, after, length + row.width, reach)
            elif reach > final:
                self.write(row, column, table, final, reach, self._provisional)

    def _fixed_columns(
        self, row: GenerationRow, column: Column, table: TableRow, after: int, columns_end: int, reach: int
    ) -> None:
        """Masked columns of the fold, then the block's own cells; both are clamped to the row's addressable end."""
        bound = self.bound(table)
        if max(columns_end, reach) <= bound:
            if reach > after:
                self.write(row, column, table, after, max(reach, columns_end), self._provisional)
            return
        for end, content in ((columns_end, self._masked), (reach, self._provisional)):
            if end > after:
                inside = min(end, bound)
                if inside > after:
                    self.write(row, column, table, after, inside, content)
                if end > bound > 0:
                    self.write(row, column, table, bound - 1, bound, content)
