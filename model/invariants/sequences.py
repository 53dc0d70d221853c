"""SHAPE, MAP and FRONT: lengths of sequences, their rows in a plan, and the one frontier of both pools."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np

from model.engine import Engine
from model.invariants.base import Docket, Violation
from model.pages import BULK, PagePool
from model.plan import ContextRow, GenerationRow, StepPlan
from model.request import GENERATION, Request
from model.sequence import SequenceCache
from model.shadow import Shadow


def _slots(pool: PagePool, pages: array[int]) -> bytes:
    """Where pages lie, as little-endian int32 bytes."""
    if not pool.host_pages:
        return pages.tobytes()  # a page's id is its slot
    if len(pages) < BULK:
        return array("i", [pool.slot[page] for page in pages]).tobytes()
    return np.frombuffer(pool.slot, np.int32)[np.frombuffer(pages, np.int32)].tobytes()


class SequenceLaws:
    """Checks of what the engine believes, against tables and against the memory."""

    def __init__(self, engine: Engine, docket: Docket) -> None:
        self.engine, self.docket = engine, docket
        limits, drafts = engine.config.limits, engine.config.drafter.drafts
        self.limit = limits.max_seq_len + limits.extra_tokens + (limits.run_ahead + 2) * (1 + drafts)

    # -- SHAPE ---------------------------------------------------------------------------------------------------

    def shapes(self, requests: Iterable[Request], step: int) -> None:
        """Lengths of every sequence of some requests."""
        managers, limit = self.engine.twin.managers, self.limit
        requests = list(requests)
        self.docket.count("SHAPE", len(requests))
        for request in requests:
            for manager in managers:
                seq = manager.sequences.get(request.owner)
                if seq is None:
                    continue
                ordered = seq.committed <= seq.history <= seq.capacity <= limit
                blocks = -(-seq.capacity // manager.page_size)
                if ordered and seq.blocks == blocks and (not seq.resumed or self._extents(seq, blocks)):
                    continue
                self._misshapen(seq, request, step)

    @staticmethod
    def _extents(sequence: SequenceCache, blocks: int) -> bool:
        return all(table.base + len(table.pages) == blocks for table in sequence.tables)

    def _misshapen(self, sequence: SequenceCache, request: Request, step: int) -> None:
        lengths = (sequence.committed, sequence.history, sequence.capacity, self.limit)
        extents = [table.end() for table in sequence.tables]
        self.docket.report(
            Violation(
                "SHAPE",
                f"{sequence.manager.role} sequence out of shape",
                request.request_id,
                sequence.manager.pools[0].name,
                step=step,
                expected="committed <= history <= capacity <= limit, rows end at the capacity",
                found=f"{' / '.join(map(str, lengths))}, {sequence.blocks} blocks, rows end at {extents}",
            )
        )

    def plan_shape(self, plan: StepPlan) -> None:
        """A chunk lies within its context, and the step within its token budget."""
        self.docket.count("SHAPE")
        limits, drafts = self.engine.config.limits, self.engine.config.drafter.drafts
        behind = sum(drafts for row in plan.context if row.last)
        verified = sum(row.width for row in plan.generation)
        tokens = plan.prefill_tokens + behind + verified
        over = next((row for row in plan.context if row.end > self._context_length(row)), None)
        if tokens <= limits.max_num_tokens and over is None:
            return
        self.docket.report(
            Violation(
                "SHAPE",
                "the step is larger than its limits",
                over.request_id if over is not None else -1,
                step=plan.iteration,
                expected=f"{limits.max_num_tokens} tokens, chunks within their contexts",
                found=f"{tokens} tokens: {plan.prefill_tokens} of chunks, {behind} drafts behind last chunks, "
                f"{verified} of verify steps"
                if over is None
                else f"chunk ends at {over.end}",
            )
        )

    def _context_length(self, row: ContextRow) -> int:
        request = self.engine.owners.get(row.owner)
        return request.context_length if request is not None else row.end

    # -- MAP -----------------------------------------------------------------------------------------------------

    def row_tables(self, rows: Iterable[ContextRow | GenerationRow], step: int) -> None:
        """The rows of a plan name the pages that the sequences hold, in block order."""
        twin = self.engine.twin
        rows = list(rows)
        self.docket.count("MAP", len(rows))
        for row in rows:
            for column, told in zip(twin.columns, row.tables, strict=True):
                sequence = column.manager.sequences.get(row.owner)
                if sequence is None:
                    continue
                table, pool = sequence.tables[column.column], column.pool
                far = max((*told.view, *memoryview(told.sinks).cast("i")), default=0) if pool.host_pages else 0
                if far >= pool.device_pages:
                    self._mapped(row, pool.name, step, f"slots below {pool.device_pages}", f"slot {far} of the host")
                same = told.base == table.base and told.pages == _slots(pool, table.pages)
                if not same or ((told.sinks or table.sinks) and told.sinks != _slots(pool, table.sinks)):
                    self._mapped(row, pool.name, step, f"{table.count()} pages from block {table.base}", "another row")

    def _mapped(self, row: ContextRow | GenerationRow, pool: str, step: int, expected: str, found: str) -> None:
        message = "the device's table row is not the sequence's"
        self.docket.report(Violation("MAP", message, row.request_id, pool, -1, -1, step, expected, found))

    # -- FRONT ---------------------------------------------------------------------------------------------------

    def claimed(self, row: ContextRow, step: int) -> None:
        """At a claim both pools of a paired request hold, or hide, everything below the cursor."""
        twin = self.engine.twin
        request = self.engine.owners.get(row.owner)
        if request is None or not twin.paired or row.start != request.claim.tokens:
            return
        self.docket.count("FRONT")
        base = self.engine.slots.base.get(row.owner, 0)
        for sequence in twin.sequences(request):
            hidden = base * sequence.manager.page_size if sequence.manager is twin.draft else 0
            if sequence.claimed != row.start and hidden < row.start - row.start % sequence.manager.page_size:
                self._apart(request, sequence.manager.pools[0].name, step, row.start, sequence.claimed)
        if request.claim.fresh and row.start and twin.kind.slot:
            page = self.engine.config.limits.page_size
            if base * page < row.start - row.start % page:
                self._apart(request, twin.columns[-1].pool.name, step, row.start, base * page)

    def settled(self, shadow: Shadow, plan: StepPlan) -> None:
        """After a verify row, cursor, target and drafter stand at one position (a slot may trail by part of a page)."""
        engine = self.engine
        kind = engine.twin.kind
        paired, apart = engine.twin.paired and kind.slot, engine.twin.has_drafter and not kind.slot
        page = engine.config.limits.page_size
        owners, slots, lengths, drafted = engine.owners, shadow.slots, shadow.length, shadow.draft_length
        judged = 0
        for row in plan.generation:
            owner, slot = row.owner, row.slot
            request = owners.get(owner)
            if request is None or request.state is not GENERATION or request.owner != owner:
                continue
            if slots.get(slot) != owner:
                continue
            judged += 1
            position = request.prompt_length + request.generated - 1
            if lengths[slot] != position:
                self._apart(request, engine.twin.columns[0].pool.name, plan.iteration, position, lengths[slot])
            if (paired and not position - page < drafted[slot] <= position) or (apart and drafted[slot] != position):
                self._apart(request, engine.twin.columns[-1].pool.name, plan.iteration, position, drafted[slot])
        self.docket.count("FRONT", judged)

    def _apart(self, request: Request, pool: str, step: int, expected: int, found: int) -> None:
        self.docket.report(
            Violation(
                "FRONT",
                "the pools of one request stand at different frontiers",
                request.request_id,
                pool,
                position=min(expected, found),
                step=step,
                expected=f"frontier {expected}",
                found=f"frontier {found}",
            )
        )
