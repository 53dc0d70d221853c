"""Sequences with pages of their own: no engine, no reuse, host numbers for everything.

The cold run that a replay's outputs are held to bit by bit in exact mode, since it goes through the same kernels.
Pages are handed out in random order and poisoned, so that a read of anything unwritten shows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gpu_backend.layout import UNBACKED
from gpu_backend.modules.config import DecoderConfig
from gpu_backend.modules.drafter import Drafter
from gpu_backend.modules.target import Target, TargetOutput
from gpu_backend.modules.verify import Verified, verify
from gpu_backend.modules.views import Lane, StepShape
from gpu_backend.pool import DevicePool
from model.geometry import cdiv


class PagedRows:
    """Pools and tables of one module for ``sequences`` sequences of up to ``longest`` tokens each."""

    def __init__(
        self, config: DecoderConfig, sequences: int, longest: int, page_size: int, device: torch.device, seed: int
    ) -> None:
        blocks = cdiv(longest, page_size)
        self.page_size, self.device = page_size, device
        self.windows = [group.window for group in config.groups]
        self.pools, self.tables = [], []
        for number, layout in enumerate(config.layouts(page_size)):
            pages = sequences * blocks
            self.pools.append(DevicePool(f"group {number}", layout, pages, device, debug=True))
            order = torch.randperm(pages, generator=torch.Generator().manual_seed(seed + number)) + 1
            self.tables.append(order.reshape(sequences, blocks).int())

    def lanes(self, rows: Sequence[int], bases: Sequence[int] | None = None) -> tuple[Lane, ...]:
        """Sequences ``rows`` in every group; ``bases`` hides what lies below a row's base page."""
        base = torch.tensor(list(bases or [0] * len(rows)), dtype=torch.int32, device=self.device)
        found = []
        for pool, table in zip(self.pools, self.tables, strict=True):
            own = table[list(rows)]
            mine = torch.zeros(pool.pages + 1, dtype=torch.bool)
            mine[own.flatten().clamp(min=0).long()] = True
            mine[0] = False  # the guard
            mine = mine.to(self.device)
            found.append(Lane(pool.kv, own.to(self.device), base, readable=mine, writable=mine))
        return tuple(found)

    def rows_of(self, sequence: int, length: int) -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
        """K and V of the first ``length`` positions, by group and layer, ``[length, kv_heads, head_dim]`` each."""
        position = torch.arange(length)
        found = []
        for pool, table in zip(self.pools, self.tables, strict=True):
            page = table[sequence].long()[position // self.page_size].to(self.device)
            offset = (position % self.page_size).to(self.device)
            found.append([(kv[0][page, offset], kv[1][page, offset]) for kv in pool.kv])
        return found

    def drop_below(self, sequence: int, position: int) -> None:
        """Release the pages that lie wholly below ``position``: poison behind table entries of -1."""
        for pool, table in zip(self.pools, self.tables, strict=True):
            gone = table[sequence, : position // self.page_size]
            pool.release(gone[gone != UNBACKED].long().to(self.device))
            gone.fill_(UNBACKED)


class OwnPages:
    """Target, and drafter if any, on pages of their own; ``length[i]`` tokens of sequence ``i`` are settled."""

    def __init__(
        self, target: Target, drafter: Drafter | None, sequences: int, longest: int, page_size: int, *, seed: int = 0
    ) -> None:
        self.target, self.drafter = target, drafter
        self.device = target.rotary.cos.device
        self.length = [0] * sequences
        self.base = [0] * sequences  # of the drafter's rows, in pages
        self.of_target = PagedRows(target.config, sequences, longest, page_size, self.device, seed)
        self.of_drafter = (
            PagedRows(drafter.config, sequences, longest, page_size, self.device, seed + 100) if drafter else None
        )

    def run(
        self, rows: Sequence[int], tokens: Sequence[Sequence[int]], *, chunks: int = 0, first: int = 0
    ) -> TargetOutput:
        """One pass of ``tokens[i]`` behind sequence ``rows[i]``; lengths stay until :meth:`settle`.

        Logits are those of tokens ``first`` on, counted over all rows.
        """
        shape = StepShape([len(row) for row in tokens], self.device, chunks=chunks)
        flat = self._tensor([token for row in tokens for token in row])
        wanted = torch.arange(first, len(flat), device=self.device) if first else None
        return self.target(shape.step(flat, self._starts(rows), self.of_target.lanes(rows)), wanted)

    def settle(self, rows: Sequence[int], accepted: Sequence[int], ran: Sequence[int], output: TargetOutput) -> None:
        """Commit the first ``accepted[i]`` of the ``ran[i]`` tokens that row ``i`` ran, for the drafter too."""
        if self.drafter is not None and self.of_drafter is not None:
            ends = [sum(ran[: index + 1]) for index in range(len(ran))]
            spans = zip(ends, ran, accepted, strict=True)
            keep = self._tensor([end - width + place for end, width, count in spans for place in range(count)])
            shape = StepShape(accepted, self.device)
            lanes = self.of_drafter.lanes(rows, [self.base[row] for row in rows])
            self.drafter.fold(output.features[keep], shape.step(keep, self._starts(rows), lanes))
        for row, count in zip(rows, accepted, strict=True):
            self.length[row] += count

    def draft(self, rows: Sequence[int], anchors: Sequence[int]) -> torch.Tensor:
        """Draft logits ``[rows, K, vocabulary]`` behind ``anchors``, which stand at the settled lengths."""
        assert self.drafter is not None and self.of_drafter is not None
        shape = StepShape([self.drafter.config.block] * len(rows), self.device)
        tokens = self.drafter.block_tokens(self._tensor(anchors))
        lanes = self.of_drafter.lanes(rows, [self.base[row] for row in rows])
        return self.drafter(shape.step(tokens, self._starts(rows), lanes), self.target).logits

    def speculate(self, rows: Sequence[int], anchors: Sequence[int]) -> tuple[Verified, TargetOutput]:
        """Draft, verify and settle one step of every row."""
        drafts = self.draft(rows, anchors).argmax(-1)
        output = self.run(rows, [[anchor, *row] for anchor, row in zip(anchors, drafts.tolist(), strict=True)])
        verdict = verify(output.logits.unflatten(0, (len(rows), -1)), drafts)
        self.settle(rows, verdict.accepted.tolist(), [1 + drafts.shape[1]] * len(rows), output)
        return verdict, output

    def prefill(self, row: int, prompt: Sequence[int], chunk: int | None = None) -> torch.Tensor:
        """Run a prompt in chunks of ``chunk`` tokens; the logits behind it, ``[vocabulary]``."""
        logits = None
        for begin in range(0, len(prompt), chunk or len(prompt)):
            part = prompt[begin : begin + (chunk or len(prompt))]
            output = self.run([row], [part])
            self.settle([row], [len(part)], [len(part)], output)
            logits = output.logits[-1]
        assert logits is not None
        return logits

    def _starts(self, rows: Sequence[int]) -> torch.Tensor:
        return self._tensor([self.length[row] for row in rows])

    def _tensor(self, values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(list(values), dtype=torch.int64, device=self.device)


def greedy_cold(target: Target, prompt: Sequence[int], count: int, page_size: int) -> tuple[list[int], torch.Tensor]:
    """``count`` greedy tokens one by one through the paged kernels, and their logits ``[count, vocabulary]``."""
    pages = OwnPages(target, None, 1, len(prompt) + count, page_size)
    logits = [pages.prefill(0, prompt)]
    tokens = [int(logits[0].argmax())]
    while len(tokens) < count:
        output = pages.run([0], [tokens[-1:]])
        pages.settle([0], [1], [1], output)
        logits.append(output.logits[0])
        tokens.append(int(logits[-1].argmax()))
    return tokens, torch.stack(logits)
