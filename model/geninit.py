"""A request that was prefilled elsewhere and starts here in generation (gen-init): claimed, backed, filled, begun.

    admit     sequences with capacity L + K + X and history L; what is missing of [0, L) is to be received
    begin     everything has arrived: publish the prompt by the policy, generate
    withdraw  nothing will arrive: drop the pages, or prefill the prompt here

``L`` is the position of the first cell that decoding writes: all tokens known so far but the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from model.config import RequestSpec
from model.geometry import cdiv
from model.joint import Column
from model.plan import Record
from model.request import CANCELLED, GENERATION, RECEIVING, Request, RequestRecord, len_prompt
from model.sequence import SequenceCache
from model.table import NO_PAGE, Table
from model.tokens import TokenStream

if TYPE_CHECKING:
    from model.engine import Engine


@dataclass(frozen=True, slots=True)
class Need:
    """Cells ``[begin, end)`` of one column that a request lacks, sinks and windows apart: ``blocks`` hold them."""

    column: Column
    blocks: tuple[int, ...]
    begin: int
    end: int


class Receiver:
    """Admits requests that another worker prefilled to one engine; ``drafts``: the drafter's pages come with them."""

    def __init__(self, engine: Engine, drafts: bool) -> None:
        self.engine = engine
        self.rule = engine.rules.transfer
        fused = engine.twin.paired and engine.rules.layout.fused  # one page holds both: it cannot travel in part
        self.promised = fused or (drafts and self.rule.drafts)
        self.drafts = self.promised and self.rule.lists_drafts

    # -- admit ---------------------------------------------------------------------------------------------------

    def admit(self, spec: RequestSpec, generated: int, stream: TokenStream) -> tuple[Request | None, str]:
        """A request in state RECEIVING that holds all its pages; or ``None`` and why it cannot be taken now.

        ``generated`` tokens of its output are known, ``stream`` names all of them.
        """
        engine = self.engine
        scheduler = engine.scheduler
        if len(scheduler.active) + len(scheduler.waiting) >= engine.config.limits.max_batch:
            return None, f"all {engine.config.limits.max_batch} places of the batch are taken"
        record = RequestRecord(spec.request_id, spec.conversation, len_prompt(spec))
        request = Request(spec, engine.take_place(), record)
        request.stream, request.generated = stream, generated
        engine.prepare(request)
        position = request.prompt_length + generated - 1
        page = engine.config.limits.page_size
        request.cursor = position = self.rule.frontier(position, engine.twin.window, page)
        request.claim = engine.twin.claim(
            request,
            engine.totals,
            lambda view: self.rule.claim(view, engine.rules.claim, self.drafts, position),
        )
        if not engine.twin.resume(request) or not self._size(request, position):
            engine.twin.free(request)
            del engine.owners[request.owner]
            return None, "a pool cannot give its pages now"
        request.state, request.started, request.pinned = RECEIVING, True, True
        record.state = RECEIVING.value
        engine.records[spec.request_id] = record
        engine.live[spec.request_id] = request
        scheduler.put_back(request)
        return request, ""

    def _size(self, request: Request, position: int) -> bool:
        """Back every pool for the drafts behind ``position``, with what lies before their windows given up."""
        engine = self.engine
        twin, limits = engine.twin, engine.config.limits
        for sequence in twin.sequences(request):
            history = max(sequence.history, self.rule.history(position, request.claim.tokens))
            if sequence.manager is twin.draft and not twin.paired and not twin.rules.mirror.history:
                history = sequence.history
            capacity = max(position + engine.config.drafter.drafts + limits.extra_tokens, history)
            if back_sinks(sequence, position) and sequence.resize(capacity, history):
                continue
            if sequence.manager is twin.target or engine.rules.admission.counts_draft:
                return False
            twin.resize_error = f"no pages for a capacity of {capacity} tokens with history {history}"
        return True

    # -- what is to be received ----------------------------------------------------------------------------------

    def needs(self, request: Request, source_base: int, tables: Sequence[Table]) -> list[Need]:
        """What has to come, column by column. Also settles which page the drafter's context starts at here.

        ``source_base`` is the base page of the drafter's context at the source, ``tables`` what it has
        of each column: of what lies below a window that may be less than is retained here.
        """
        twin, page = self.engine.twin, self.engine.config.limits.page_size
        position, claim = request.cursor, request.claim
        joint, drafts = not claim.fresh, self.drafts and request.spec.drafts
        if not twin.has_drafter:
            request.received = 0
        elif drafts:
            request.received = 0 if joint and source_base * page <= claim.tokens else source_base
        else:
            request.received = 0 if joint and claim.tokens == position else cdiv(position, page)
        needs = []
        for column in twin.columns:
            sequence = column.manager.sequences[request.owner]
            held = claim.tokens if column.column not in sequence.declined and (joint or not column.draft) else 0
            if column.draft and not drafts:
                continue
            begin = max(held, source_base * page if column.draft else 0)
            need = self._need(column, sequence, begin, tables[column.index], position)
            if need.blocks:
                needs.append(need)
        return needs

    def _need(self, column: Column, sequence: SequenceCache, begin: int, source: Table, position: int) -> Need:
        page, life = self.engine.config.limits.page_size, column.lifecycle
        first, last = begin // page, cdiv(position, page)
        blocks: Sequence[int] = range(first, last)
        if life.window is not None:
            table, sinks = sequence.tables[column.column], life.sink_blocks(page)
            window = self.rule.first(life, position, table.base * page, page) // page
            wanted = (*range(first, min(sinks, last)), *range(max(first, sinks, window), min(last, table.end())))
            blocks = [block for block in wanted if NO_PAGE not in (table.page(block), source.page(block))]
        return Need(column, tuple(blocks), max(begin, blocks[0] * page) if blocks else position, position)

    # -- afterwards ----------------------------------------------------------------------------------------------

    def begin(self, request: Request, needs: list[Need]) -> None:
        """Everything has arrived: the request's claim is booked, its prompt is published, and it generates."""
        engine = self.engine
        position = request.cursor
        received = position - request.claim.tokens
        request.record.received_tokens = received
        engine.totals.received_tokens += received
        engine.launcher.note_admitted(request)
        publish(engine.twin.sequences(request), needs, position)
        request.state, request.pinned = GENERATION, False
        request.record.state = GENERATION.value

    def drop(self, request: Request, needs: list[Need]) -> None:
        """The pages of a cancelled request have arrived: its prompt is published for others, and the pages go.

        In the order of the transfer rule; each step hands on the sequences with the lists that it found.
        """
        engine, owner = self.engine, request.owner
        sequences = engine.twin.sequences(request)
        if not sequences:
            return
        records = engine.recorder.records
        space = 0 if request.keys is None else request.keys.seed
        records.append((Record.BEGIN, owner, request, request.claim, space, request.cursor))

        def register(listed: list[SequenceCache]) -> list[SequenceCache]:
            publish(listed, needs, request.cursor)
            return listed

        def remove(listed: list[SequenceCache]) -> list[SequenceCache]:
            found = [with_own_lists(sequence) for sequence in listed]
            engine.twin.free(request, ended=True)
            return found

        for step in self.rule.leaving(register, remove):
            sequences = step(sequences)
        records.append((Record.END, owner))

    def withdraw(self, request: Request, recompute: bool) -> None:
        """Nothing arrives: forget the request, or ``recompute`` its prompt here from what is cached."""
        engine, owner = self.engine, request.owner
        if recompute:
            engine.scheduler.restart(request)
            request.record.state = request.state.value
            engine.owners.pop(owner, None)
            return
        engine.end(request, CANCELLED)
        del engine.records[request.request_id]


def publish(sequences: Sequence[SequenceCache], needs: Sequence[Need], position: int) -> None:
    """Received pages enter the tree as those of a context that was computed here would."""
    by_manager = {sequence.manager: sequence for sequence in sequences}
    for need in needs:
        sequence, column = by_manager[need.column.manager], need.column.column
        low, high = sequence.written[column]
        backed, size = sequence.tables[column].base, sequence.manager.page_size
        first = whole_from(need.blocks, backed) * size
        if first <= max(need.begin, backed * size):  # every page of the table is filled
            first = low if low < high >= need.begin else need.begin
        sequence.written[column] = (first, position)
    for sequence in sequences:
        sequence.manager.commit(sequence, position, final=True)


def with_own_lists(sequence: SequenceCache) -> SequenceCache:
    """A copy of a sequence that keeps its lists of pages whatever becomes of the sequence."""
    listed = copy(sequence)
    listed.tables = [copy(table) for table in sequence.tables]
    for table in listed.tables:
        table.sinks, table.pages = table.sinks[:], table.pages[:]
    return listed


def whole_from(blocks: Sequence[int], backed: int) -> int:
    """First of the received ``blocks`` from which on a table that starts at block ``backed`` has no unfilled page."""
    for before, block in reversed(list(pairwise(blocks))):
        if block - 1 >= max(before + 1, backed):
            return block
    return blocks[0]


def back_sinks(sequence: SequenceCache, position: int) -> bool:
    """Back the sink blocks below ``position`` that a jump of the history would pass over; ``False`` without pages."""
    manager, size = sequence.manager, sequence.manager.page_size
    missing = []
    for lifecycle, table in zip(manager.lifecycles, sequence.tables, strict=True):
        sinks = min(lifecycle.sink_blocks(size), cdiv(position, size))
        reaches = table.base == len(table.sinks)  # a table that starts behind its sinks had them hidden
        missing.append(max(0, sinks - table.end()) if reaches else 0)
    if not any(missing):
        return True
    if not manager.obtainable(missing, [0] * len(missing)):
        return False
    for column, (table, pool, count) in enumerate(zip(sequence.tables, manager.pools, missing, strict=True)):
        if count:
            granted = pool.grant(count)
            table.pages.extend(granted)
            table.row = None
            manager.recorder.granted(pool, granted, sequence.owner, column, table.end() - count)
    return True
