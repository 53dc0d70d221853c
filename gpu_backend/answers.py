"""How the device carries out the answers that a plan brings along (:class:`model.rules.device.DeviceRules`).

The model's tagged memory carries out the same members, and one test runs both. A member that is not named here is
refused by name: a build that needs it cannot run on a device.
"""

from __future__ import annotations

import enum
from dataclasses import fields

import numpy as np
import torch

from gpu_backend.cells import CellState, device_tags
from gpu_backend.layout import UNBACKED
from model.plan import ContextRow
from model.reader import PROVISIONAL
from model.rules.device import (
    Addressing,
    DeviceRules,
    Extent,
    Padding,
    Provisional,
    Rebase,
    TableUpload,
    Trim,
    Unbacked,
)
from model.rules.lookahead import Lookahead, chunk_end_sums, chunk_span
from model.tokens import TokenStream, cell_tags, mix64_array

CARRIED_OUT: dict[enum.Enum, str] = {
    Extent.LAST_BACKED: "the extent kernel takes the last backed entry",
    Extent.COUNT: "the extent kernel counts entries",
    Unbacked.GUARD: "the conversion keeps -1",
    Unbacked.PAGE_ZERO: "the conversion gives page 0",
    Lookahead.PROMPT: "chunk_tags looks at the prompt",
    Lookahead.PLACEHOLDER: "chunk_tags looks at placeholders",
    Provisional.REWRITTEN: "fold_rows keeps every row",
    Provisional.KEPT: "fold_rows keeps the first of each fold",
    Rebase.BOTH: "reads and writes take one converted table",
    Addressing.TABLE: "kernels take every page from the table",
    Trim.ACCEPTED: "slots advance by what was accepted",
    TableUpload.PER_STEP: "TableBuffer has a host buffer for each step in flight",
    TableUpload.SHARED_BUFFER: "TableBuffer lets the next step overwrite the one host buffer",
    Padding.SCRATCH: "the store drops tokens of row -1",
}


class NotCarriedOut(ValueError):
    """An answer that this backend has no code for; the text names rule and answer."""


def require_carried_out(rules: DeviceRules) -> None:
    """``NotCarriedOut`` for the first answer of ``rules`` that the device does not carry out."""
    for rule in fields(rules):
        answer = getattr(rules, rule.name)
        if answer not in CARRIED_OUT:
            raise NotCarriedOut(f"the device does not carry out {rule.name}: {getattr(answer, 'value', answer)}")


def fold_rows(rule: Provisional, row: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """Rows, int32 ``[tokens]``, for the store that folds accepted tokens into the drafter's context.

    ``first`` is bool ``[tokens]``: the first token of each fold, which no draft pass wrote. Where draft-time cells are
    kept the store drops all others.
    """
    return row if rule is Provisional.REWRITTEN else torch.where(first, row, UNBACKED)


def chunk_tags(
    rule: Lookahead, stream: TokenStream, row: ContextRow, begun: int, *, span: int, seed: int, vocabulary: int
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Tags int64 and states int8, ``[cells]`` each, that the drafter stores up to the end of a prompt chunk.

    A cell depends on ``span`` tokens behind its own. Behind a chunk that is not the last stands what ``rule`` feeds;
    which cells they are, and which of them are final (below the position that comes third), says :func:`chunk_span`.
    """
    begin, final = chunk_span(begun, row, span)
    told = 0 if row.last else min(span, row.end - row.start)
    sums = chunk_end_sums(rule, stream, row.start, row.end, span, vocabulary) if told else np.zeros(0, dtype=np.uint64)
    tags = np.concatenate([cell_tags(stream, begin, row.end - told, span, seed), mix64_array(sums ^ np.uint64(seed))])
    state = torch.full((row.end - begin,), int(CellState.FINAL), dtype=torch.int8)
    unknown = max(0, final - begin)
    tags[unknown:], state[unknown:] = PROVISIONAL, int(CellState.PROVISIONAL)
    return device_tags(tags), state, final


class TableBuffer:
    """The block table on the device, int32 ``[rows, columns]``, and the host memory through which steps update it.

    With a host buffer per step (``depth`` of them, reused when their copy is done) the device sees each step's own
    rows. With one shared buffer the host fills in the next step before the copy has run; here that race is always lost
    the same way: a step reads the row that the step before left in the buffer, its own where that had none.
    """

    def __init__(
        self, rule: TableUpload, rows: int, columns: int, device: torch.device | str, *, depth: int = 2
    ) -> None:
        self.rule, self.step = rule, 0
        self.table = torch.full((rows, columns), UNBACKED, dtype=torch.int32, device=device)
        on_gpu = self.table.device.type == "cuda"
        self.host = torch.full((depth, rows, columns), UNBACKED, dtype=torch.int32, pin_memory=on_gpu)
        self.copied = [torch.cuda.Event() for _ in range(depth)] if on_gpu else []
        self.shared = torch.full((rows, columns), UNBACKED, dtype=torch.int32)
        self.left = torch.zeros(rows, dtype=torch.bool)  # rows that the step before wrote

    def change(self, entries: torch.Tensor) -> None:
        """Queue changed entries of a table that has each step's own rows: row, column and page, int64 ``[3, n]``.

        They lie on the table's device. No entry occurs twice but with the same page.
        """
        if self.rule is not TableUpload.PER_STEP:
            raise ValueError("a shared buffer is uploaded whole")
        self.table[entries[0], entries[1]] = entries[2].int()

    def upload(self, rows: torch.Tensor, entries: torch.Tensor) -> None:
        """Queue the copy of this step's ``entries`` int32 ``[n, columns]`` to ``rows`` int64 ``[n]``, both on the host.

        Rows that the step does not name become unbacked.
        """
        place = self.step % len(self.host)
        if self.copied and self.step >= len(self.host):
            self.copied[place].synchronize()
        seen = entries
        if self.rule is TableUpload.SHARED_BUFFER:
            seen = torch.where(self.left[rows][:, None], self.shared[rows], entries)
            self.shared[rows] = entries
            self.left.zero_()
            self.left[rows] = True
        self.host[place].fill_(UNBACKED)
        self.host[place][rows] = seen
        self.table.copy_(self.host[place], non_blocking=True)
        if self.copied:
            self.copied[place].record()
        self.step += 1
