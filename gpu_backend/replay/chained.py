"""Rows of a replay whose drafter is a chain: its cells follow from tokens behind them, which a chunk may not have."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

import numpy as np
import torch

from gpu_backend.modules.chain import Chain
from gpu_backend.modules.chain_rows import Accepted, ChainRows
from gpu_backend.modules.views import Lane, StepShape
from gpu_backend.replay.columns import DeviceColumn
from gpu_backend.replay.memory import DeviceMemory
from gpu_backend.replay.modelled import ModelRows, Models
from gpu_backend.replay.planes import sent, upload
from gpu_backend.replay.rows import VerifyRows
from model.config import RequestSpec
from model.plan import ContextRow
from model.rules.device import Provisional, Rebase, Trim
from model.rules.lookahead import behind_chunk


class ChainedRows(ModelRows):
    """See :class:`ModelRows`; ``told``: tokens are known ahead, as a second run knows them."""

    def __init__(
        self, memory: DeviceMemory, models: Models, verify: VerifyRows, *, evidence: bool = False, told: bool = False
    ) -> None:
        super().__init__(memory, models, verify, evidence=evidence)
        assert isinstance(models.drafter, Chain)
        self.told = told
        self.chain = ChainRows(self.slots, self._behind_pages(models.drafter))
        self.begun: dict[int, int] = {}  # owner -> where its first chunk began
        self._tails: dict[int, torch.Tensor] = {}  # owner without a slot -> what the target said last of it
        self._brought: dict[int, torch.Tensor] = {}  # the same of owners that are yet to come

    def bind(self, slot: int, owner: int) -> None:
        before = self.bound[slot]
        if before == owner:
            return
        chain = self.chain
        if owner in self.bound:
            self._tails[owner] = chain.tail[self.bound.index(owner)].clone()
        if before in self.memory.known:
            self._tails[before] = chain.tail[slot].clone()
        tail = self._tails.pop(owner, self._brought.pop(owner, None))
        if tail is not None:
            chain.tail[slot] = tail
        chain.begun[slot].fill_(self.begun.get(owner, 0))
        super().bind(slot, owner)

    def received(self, owner: int, sender: ChainedRows, request: RequestSpec, alive: Container[int]) -> None:
        """Pages of ``request`` came from ``sender``, and with them what the target said last: later modules start from
        it. Of owners that are no longer ``alive`` nothing is kept."""
        self._brought = {one: tail for one, tail in self._brought.items() if one in alive}
        for other, known in sender.memory.known.items():
            if known.spec is request:
                held = other in sender.bound
                tail = sender.chain.tail[sender.bound.index(other)] if held else sender._tails.get(other)
                if tail is not None:
                    self._brought[owner] = tail.to(self.memory.device, copy=True)

    # -- chunks --------------------------------------------------------------------------------------------------

    def _folds(self, slot: torch.Tensor) -> list[Lane]:
        return []

    def _chunked(
        self, context: Sequence[ContextRow], slot: torch.Tensor, features: torch.Tensor, choice: torch.Tensor
    ) -> None:
        """Cells of chunks, and of the few before a last chunk that is shorter than the lookahead: of them the tokens
        were not there before."""
        depth, device = self.chain.depth, self.memory.device
        known = self.memory.known
        self.begun = {one: begun for one, begun in self.begun.items() if one in known}
        self._tails = {one: tail for one, tail in self._tails.items() if one in known}
        for row in context:
            if row.owner not in self.begun:
                self.begun[row.owner] = row.start
                self.chain.begun[row.slot].fill_(row.start)
        again = [min(depth - 1, max(0, depth - (row.end - row.start))) if row.last else 0 for row in context]
        shape = StepShape(
            [row.end - row.start + more for row, more in zip(context, again, strict=True)], device, chunks=len(context)
        )
        start = upload([row.start - more for row, more in zip(context, again, strict=True)], device)
        told = np.concatenate([self._ahead(row, more) for row, more in zip(context, again, strict=True)])
        ahead = sent(torch.from_numpy(told), device)
        ahead = torch.where(ahead < 0, choice[shape.row][:, None], ahead)
        if depth > 1:
            features = self._with_tails(context, slot, features, again)
        first = upload([self.begun[row.owner] for row in context], device)
        lanes = [self._chain_lane(column, slot) for column in self.memory.draft_columns]
        self.chain.chunks(shape, start, features, ahead, lanes, first)

    def _ahead(self, row: ContextRow, again: int) -> np.ndarray:
        """Tokens that the last ``again`` positions before a chunk and its own look ahead to, int64 ``[n, D]``.

        Behind the chunk stands what the build's rule feeds, or, behind a context, the token that was chosen (-1 where
        the pass itself says which). Where there is nothing yet stands 0.
        """
        depth, known = self.chain.depth, self.memory.known[row.owner]
        stream, output = known.stream, known.spec.output
        behind = np.zeros(depth, dtype=np.int64)
        if not row.last:
            behind[:] = behind_chunk(self.memory.rules.lookahead, stream, row.end, depth, self.memory.vocabulary)
            behind[row.behind :] = 0  # nor does a second run know what nobody generated yet
        elif self.told and row.end < stream.prompt_length + len(output):
            behind[0] = stream.tokens(row.end, row.end + 1)[0]
        else:
            behind[0] = -1
        begin = row.start - again
        ids = np.concatenate([stream.tokens(begin + 1, row.end).astype(np.int64), behind])
        return np.lib.stride_tricks.sliding_window_view(ids, depth)

    def _with_tails(
        self, context: Sequence[ContextRow], slot: torch.Tensor, features: torch.Tensor, again: Sequence[int]
    ) -> torch.Tensor:
        """States of chunks with those of ``again`` positions before each; the slots' last ones are kept."""
        back = self.chain.depth - 1
        every = torch.cat([self.chain.tail[slot].flatten(0, 1), features])
        taken: list[int] = []
        kept: list[int] = []
        at = len(context) * back
        for place, (row, more) in enumerate(zip(context, again, strict=True)):
            count = row.end - row.start
            own = [*range(place * back, (place + 1) * back), *range(at, at + count)]
            taken += own[back - more :]
            kept += own[-back:]
            at += count
        device = self.memory.device
        self.chain.tail[slot] = every[upload(kept, device)].unflatten(0, (len(context), back))
        return every[upload(taken, device)]

    # -- verify rows ---------------------------------------------------------------------------------------------

    def _pass(
        self,
        slot: torch.Tensor,
        start: torch.Tensor,
        taken: torch.Tensor,
        ran: tuple[StepShape, torch.Tensor],
        active: torch.Tensor | None = None,
    ) -> None:
        memory, rules = self.memory, self.memory.rules
        stored = start if rules.trim is Trim.ACCEPTED else memory.rows.drafter.length[slot].long()
        kept = self.real[slot] if rules.provisional is Provisional.KEPT else None
        lanes = [replace(self._chain_lane(column, slot), active=active) for column in memory.draft_columns]
        self.chain.draft(Accepted(slot, start, taken, stored, kept), ran[1], lanes)

    def _chain_lane(self, column: DeviceColumn, slot: torch.Tensor) -> Lane:
        """Cells behind the base, each access through the table that the rule of rebased rows gives it."""
        base = self.memory.rows.drafter.base
        table = column.shifted(base) if self.memory.rules.rebase is Rebase.WRITES else column.table
        return Lane(self._kv(column), table[slot], base[slot], stores=self.rule._write_table(column)[slot])
