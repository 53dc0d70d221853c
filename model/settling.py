"""From the result of a step to requests: tokens committed, late outputs refused, requests that finish."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from model.events import Kind
from model.plan import GenerationRow, SettledRow
from model.request import FINISHED, Request, RequestRecord

if TYPE_CHECKING:
    from model.engine import Engine


_SETTLE = int(Kind.SETTLE)


class Settler:
    """Applies the results of one engine's plans, oldest first."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def settle(self, accepted: tuple[int, ...]) -> list[SettledRow]:
        """Apply the result of the oldest plan: ``accepted[i]`` tokens (1 .. 1 + K) for its generation row ``i``."""
        engine = self.engine
        plan = engine.plans.popleft()
        settled: list[SettledRow] = []
        for row in plan.context:
            request = self._receiver(row.owner)
            if request is not None:
                request.hit_used = True
            if request is not None and row.last:
                request.first_in_flight = False
                settled.append(self._commit(request, 1, drafted=False, first=request.generated == 0))
            else:
                settled.append(SettledRow(row.request_id, 0, False, False, False))
        log: list[int] = []
        owners, settle_generation, output = engine.owners, engine.twin.settle_generation, 0
        for row, count in zip(plan.generation, accepted, strict=True):
            owner = row.owner
            request = owners.get(owner)
            if request is None or request.owner != owner:
                request = self._receiver(owner)
            if request is None:
                self._free_left(row)
                settled.append(SettledRow(row.request_id, 0, False, False, False))
                continue
            drafted = row.real_drafts and row.width > 1
            if drafted:
                self._count_drafts(request.record, row.width - 1, count - 1)
            if request.in_flight:
                request.in_flight -= 1
            generated = request.generated + count
            if generated < request.spec.max_new_tokens:
                request.generated = generated
                request.record.output_tokens += count
                output += count
                log += (row.request_id, count, request.prompt_length + generated)
                if request.grown:
                    settle_generation(request, count)
                settled.append(SettledRow(row.request_id, count, False, False, drafted))
            else:
                settled.append(self._commit(request, count, drafted, first=False))
        engine.totals.output_tokens += output
        if log:
            engine.log.decisions.add_long(_SETTLE, log)
        return settled

    def _count_drafts(self, record: RequestRecord, drafted: int, accepted: int) -> None:
        record.spec_steps += 1
        record.accepted_drafts += accepted
        record.drafted_tokens += drafted
        totals = self.engine.totals
        totals.spec_steps += 1
        totals.accepted_drafts += accepted

    def _free_left(self, row: GenerationRow) -> None:
        """Free what the epoch rule leaves to the output of a row whose request is not there any more."""
        left = self.engine.rules.epoch.left_to_free(row.tables, row.request_id not in self.engine.live)
        for column, table in zip(self.engine.twin.columns, left, strict=False):
            page_at = {slot: page for page, slot in enumerate(column.pool.slot)}
            column.pool.release_locked(array("i", [page_at[slot] for slot in table.view]))

    def _receiver(self, owner: int) -> Request | None:
        """The request that a row's output belongs to; ``None`` if it ended or began anew since the dispatch."""
        engine = self.engine
        request = engine.owners.get(owner)
        if request is None or (request.owner != owner and engine.rules.epoch.refuses_late):
            engine.totals.late_outputs += 1
            return None
        return request

    def _commit(self, request: Request, count: int, drafted: bool, first: bool) -> SettledRow:
        engine = self.engine
        left = request.spec.max_new_tokens - request.generated
        tokens = count if count < left else left
        request.generated += tokens
        request.record.output_tokens += tokens
        engine.totals.output_tokens += tokens
        request_id = request.spec.request_id
        engine.log.note(Kind.SETTLE, request_id, count, request.prompt_length + request.generated)
        if tokens == left:
            engine.log.note(Kind.FINISH, request_id, request.generated)
            engine.totals.finished += 1
            engine.end(request, FINISHED)
        return SettledRow(request_id, tokens, first, tokens == left, drafted)
