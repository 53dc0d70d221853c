"""Page-level records on the device, in stream order."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import torch

from gpu_backend.cells import CellState
from gpu_backend.replay.journal import Part, logged
from gpu_backend.replay.memory import DeviceMemory
from gpu_backend.replay.page_batch import PageBatch, Room, carry_out
from gpu_backend.replay.planes import FIRST_PAGE, sent, upload
from model.copies import Copy
from model.events import Kind
from model.plan import BEGIN, BIND, CLAIM, COPY, END, GRANT, PUBLISH, UNBIND, Record
from model.reader import vouched_tokens
from model.request import Request
from model.rules.claim import Claim

UNORDERED = (BEGIN, END, CLAIM, UNBIND)  # records that touch no page: grants around them may come together
UNTOLD = (*UNORDERED, BIND)  # likewise where no event is kept, whose order would be another


class RecordRunner:
    """Carries out records; ``iteration`` is that of the step whose events they are among."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.memory = memory
        self.iteration = -1
        self.flying: dict[tuple[int, int], int] = {}  # (pool, slot) that a copy is to fill -> slot it comes from
        self._flights: dict[int, tuple[int, int]] = {}  # copy -> the pool and slot it fills
        self._early: set[int] = set()  # copies that ended before they began here
        self.void: set[int] = set()  # owners whose rows compute nothing; what they wrote stays published
        # Cells below the frontier of published pages that were not final, int64 [1]; over the records of a step.
        self.unfinished = torch.zeros(1, dtype=torch.int64, device=memory.device)

    def run(self, records: Sequence[tuple]) -> None:
        """Carry out ``records`` in order."""
        self.flush(self.run_up_to_batch(records))

    def run_up_to_batch(self, records: Sequence[tuple]) -> PageBatch:
        """Carry out ``records`` in order but for the grants and publications at their end, which come back."""
        batch, free = PageBatch(self.memory), UNORDERED if self.memory.checks else UNTOLD
        for record in records:
            if record[0] == GRANT or record[0] == PUBLISH:
                if self._taken(batch, record):
                    continue
                batch = self.flush(batch)
                if self._taken(batch, record):
                    continue
            elif record[0] == COPY and not self.memory.checks:
                if batch.copy(*record[1:]):
                    continue
                batch = self.flush(batch)
                if batch.copy(*record[1:]):
                    continue
            elif not batch.empty and record[0] not in free:
                batch = self.flush(batch)
            _ACTIONS[record[0]](self, *record[1:])
        return batch

    def _taken(self, batch: PageBatch, record: tuple) -> bool:
        if record[0] == GRANT:
            return batch.grant(*record[1:])
        return not self.flying and batch.publish(*record[1:])

    def flush(self, batch: PageBatch) -> PageBatch:
        """Carry out a batch; an empty one to go on with."""
        if batch.empty:
            return batch
        memory, kept = self.memory, list[tuple[Part, Room]]()
        for planes, part in zip(memory.planes, batch.pools, strict=True):
            if not any(part.room):
                kept.append((Part(0, 0, 0), part.room))
                continue
            told = sent(torch.from_numpy(part.pack(part.room, planes.nobody)), memory.device)
            fields = carry_out(memory, planes, told, part.room, self.unfinished)
            kept.append((memory.journal.keep(fields), part.room) if memory.checks else (Part(0, 0, 0), part.room))
        for planes, part in zip(memory.planes, batch.pools, strict=True):
            if part.copies:
                planes.copy_all(memory.kernels, part.copies)
        if memory.checks:
            batch.refer(memory.journal, self.iteration, kept)
        return PageBatch(memory)

    # -- pages ---------------------------------------------------------------------------------------------------

    def _grant(self, pool: int, slots: array[int], owner: int) -> None:
        planes = self.memory.planes[pool]
        listed = planes.grant(slots, owner)
        self._note(Kind.MEM_GRANT, (self.iteration, pool), planes.tenant[listed[:1]], listed)

    def _copy(self, pool: int, source: int, target: int, tokens: int) -> None:
        planes = self.memory.planes[pool]
        if not (planes.on_device(source) and planes.on_device(target)):
            raise IndexError(f"a copy within pool {planes.name!r} names slots {source} and {target} of the host tier")
        told = planes.copy(self.memory.kernels, source, target, tokens)
        self._note(Kind.MEM_COPY, (self.iteration, pool), *told, logged(planes.tag(target, tokens - 1)))

    def _move(self, pool: int, page: int, source: int, target: int) -> None:
        planes = self.memory.planes[pool]
        planes.move(source, target)
        self._note(Kind.MEM_MOVE, (self.iteration, pool, source, target), logged(planes.tag(target, 0)))

    def _publish(self, pool: int, slots: array[int], coverage: int, owner: int, column: int, block: int) -> None:
        memory = self.memory
        planes, place = memory.planes[pool], memory.column_of[pool, column]
        listed = upload(slots, memory.device)
        known = memory.known.get(owner)
        span = place.life.lookahead
        prompt = None if known is None else known.stream.prompt_length
        vouched = upload(
            vouched_tokens(prompt, len(slots), coverage, span, block * memory.page_size, memory.page_size).tolist(),
            memory.device,
            torch.int32,
        )
        planes.sealed[listed] = torch.maximum(planes.sealed[listed], vouched)
        if memory.checks and known is not None and max(slots) < planes.device_pages and not self.flying:
            states = planes.pool.cells.states[listed + FIRST_PAGE]
            offset = torch.arange(memory.page_size, device=memory.device)
            self.unfinished += ((states != int(CellState.FINAL)) & (offset < vouched[:, None])).sum()
        source = self.flying.get((pool, slots[-1]), slots[-1])  # what a copy on its way will bring
        told = upload((coverage,), memory.device)
        self._note(Kind.MEM_PUBLISH, (self.iteration, pool), told, logged(planes.tag(source, coverage - 1)), listed)

    # -- rows ----------------------------------------------------------------------------------------------------

    def _bind(self, slot: int, owner: int, length: int, base: int, draft_length: int) -> None:
        memory, rows = self.memory, self.memory.rows
        memory.bound[slot] = owner
        rows.bind(slot, owner, length, base, draft_length)
        if not memory.checks:
            return
        for column in memory.columns:
            column.forget(slot)
        at = torch.full((1,), slot, dtype=torch.int64, device=memory.device)
        fields = (rows.owner[at], rows.length[at], rows.drafter.base[at], rows.drafter.length[at])
        self._note(Kind.MEM_BIND, (self.iteration, slot), *fields)

    def _unbind(self, slot: int) -> None:
        self.memory.rows.unbind(slot, self.memory.bound.pop(slot, None))

    # -- requests ------------------------------------------------------------------------------------------------

    def _begin(self, owner: int, request: Request, claim: Claim, space: int, received: int = -1) -> None:
        if owner in self.memory.known or owner in self.void:
            return
        final = received - max(0, self.memory.twin.tag_span - 1) if received >= 0 else claim.tokens
        self.memory.begin(owner, request, 0 if claim.fresh and received < 0 else final)

    def _end(self, owner: int) -> None:
        self.memory.end(owner)
        self.void.discard(owner)

    def _claim(self, *_: object) -> None:
        """What an observer noted of a claim is for the laws of the model."""

    # -- copies that take time -----------------------------------------------------------------------------------

    def _start(self, number: int, pool: int, page: int, source: int, target: int) -> None:
        if number in self._early:
            self._early.discard(number)
            return
        self._flights[number] = (pool, target)
        self.flying[pool, target] = self.flying.get((pool, source), source)

    def landed(self, copy: Copy) -> None:
        """The bytes of a copy move now."""
        self._ended(copy.number)
        self._move(copy.pool, copy.page, copy.source, copy.target)

    def lost(self, copy: Copy, void: Sequence[int]) -> None:
        """A copy failed: its target keeps the cells of whoever had it before."""
        self._ended(copy.number)
        self.memory.planes[copy.pool].hand_over(copy.source, copy.target)
        for owner in void:
            self.void.add(owner)
            self.memory.end(owner)

    def _ended(self, number: int) -> None:
        if number in self._flights:
            self.flying.pop(self._flights.pop(number), None)
        else:
            self._early.add(number)

    def _note(self, kind: Kind, names: tuple[int, ...], *fields: torch.Tensor) -> None:
        if self.memory.checks:
            self.memory.journal.add(kind, names, *fields)


_ACTIONS: dict[Record, Callable[..., None]] = {
    Record.GRANT: RecordRunner._grant,
    Record.COPY: RecordRunner._copy,
    Record.MOVE: RecordRunner._move,
    Record.PUBLISH: RecordRunner._publish,
    Record.BIND: RecordRunner._bind,
    Record.UNBIND: RecordRunner._unbind,
    Record.BEGIN: RecordRunner._begin,
    Record.END: RecordRunner._end,
    Record.CLAIM: RecordRunner._claim,
    Record.START: RecordRunner._start,
}
