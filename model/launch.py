"""From what a pass took to a plan: claims are booked, rows are made, contexts move on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from model.plan import BEGIN, ContextRow, GenerationRow, StepPlan
from model.request import CONTEXT, Request
from model.scheduler import Scheduled

if TYPE_CHECKING:
    from model.copies import CopyBook
    from model.engine import Engine


class Launcher:
    """Makes the plans of one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def plan(self, taken: Scheduled) -> StepPlan:
        """The plan of what a pass took; its claims and rows are booked."""
        engine = self.engine
        slot_of, rows = engine.slots.slot_of, engine.twin.rows
        context = []
        for request, end, last in taken.chunks:
            if not request.started:
                self.note_admitted(request)
            owner = request.owner
            slot = slot_of[owner]
            drafts, behind = request.spec.drafts, max(0, request.context_length - end)
            context.append(
                ContextRow(request.request_id, owner, slot, request.cursor, end, last, rows(request), drafts, behind)
            )
        width, may_verify = 1 + engine.config.drafter.drafts, engine.rules.epoch.may_verify
        generation = [
            GenerationRow(
                request.spec.request_id,
                request.owner,
                slot_of[request.owner],
                width if request.spec.drafts else 1,
                request.spec.drafts and may_verify(request.drafts_of, request.owner),
                rows(request),
                request.spec.drafts,
            )
            for request in taken.generation
        ]
        waits = () if engine.book is None else self._waits(engine.book, (*context, *generation))
        plan = StepPlan(engine.iteration, engine.recorder.take(), context, generation, engine.rules_of_device, waits)
        plan.padding = self._padding(len(context), len(generation))
        engine.iteration += 1
        engine.totals.iterations += 1
        engine.totals.context_rows += len(context)
        engine.totals.decode_rows += len(generation)
        engine.totals.prefilled_tokens += plan.prefill_tokens
        for request in taken.generation:
            request.drafts_of = request.owner
            request.in_flight += 1
        return plan

    def _waits(self, book: CopyBook, rows: Iterable[ContextRow | GenerationRow]) -> tuple[int, ...]:
        """Copies that a plan of these rows waits for."""
        engine = self.engine
        book_rows = (
            (column.pool.index, (*table.view, *memoryview(table.sinks).cast("i")))
            for row in rows
            for column, table in zip(engine.twin.columns, row.tables, strict=True)
        )
        waits = book.waits(book_rows)
        book.dispatched = engine.iteration
        return waits

    def _padding(self, chunks: int, rows: int) -> int:
        """Rows that a batch of verify rows alone lacks to the next size that a graph was captured for."""
        sizes = self.engine.config.limits.graph_batches
        if not sizes or chunks or not rows:
            return 0
        return next((size - rows for size in sizes if size >= rows), 0)

    def note_admitted(self, request: Request) -> None:
        """Book the claim of a request whose first chunk is really scheduled, or whose pages have arrived."""
        engine = self.engine
        claim, record, totals = request.claim, request.record, engine.totals
        drafted = 0 if claim.fresh or not engine.twin.paired else claim.tokens
        first = not record.claims or request.hit_lost
        request.hit_first, request.hit_lost = first, False
        kind = claim.kind if request.spec.drafts or not claim.tokens else "plain"  # no drafter to be fresh or joint
        record.claims.append(claim.tokens)
        accounting = engine.rules.accounting
        reported = accounting.with_drafts or not engine.config.drafter.drafts
        if reported and (first or not accounting.recompute_apart):
            record.cached_tokens += claim.tokens
            record.draft_cached_tokens += drafted
            totals.cached_tokens += claim.tokens
            totals.draft_cached_tokens += drafted
        if first:
            record.claim_kind = kind
        else:
            record.reclaimed_tokens += claim.tokens
            totals.reclaimed_tokens += claim.tokens
        totals.branch_windows += claim.branch >= 0
        totals.fresh_claims += kind == "fresh"
        totals.joint_claims += kind == "joint"
        totals.partial_claims += claim.tokens % engine.config.limits.page_size != 0
        received = request.cursor if request.received >= 0 else -1
        space = 0 if request.keys is None else request.keys.seed
        engine.recorder.records.append((BEGIN, request.owner, request, claim, space, received))
        engine.log.claimed(request)

    def advance(self, taken: Scheduled) -> None:
        """Contexts move on before the next dispatch, whenever the step itself settles."""
        engine = self.engine
        accounting = engine.rules.accounting
        for request, end, last in taken.chunks:
            record = request.record
            size = end - request.cursor
            again = len(record.claims) > 1
            record.prefilled_tokens += size
            if again:
                recomputed = accounting.recomputed(request.cursor, end, request.prompt_length)
                record.recomputed_tokens += recomputed
                engine.totals.recomputed_tokens += recomputed
            engine.twin.advance(request, end, last)
            request.cursor = end
            request.started = True
            request.state = engine.after_context if last else CONTEXT
            if last:
                request.first_in_flight = True
                engine.scheduler.forget(request)
