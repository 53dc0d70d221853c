"""Cells of a chain drafter as a run from nothing gives them.

A cell of a later module depends on what the module before it attended, and so on all cells down to the drafter's base:
the run has the same base, in pages.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gpu_backend.modules.chain import Chain
from gpu_backend.modules.cold import CHUNK, ColdRows, passes
from gpu_backend.modules.own_pages import PagedRows
from gpu_backend.modules.target import Target
from gpu_backend.modules.views import StepShape


class ColdChain:
    """Cold cells of one sequence, ready to be compared with again and again.

    ``features`` are those of the first ``n`` of ``tokens``; behind the last token 0 stands, so that cells which look
    ahead further mean nothing.
    """

    def __init__(
        self, target: Target, drafter: Chain, tokens: Sequence[int], features: torch.Tensor, page_size: int
    ) -> None:
        self.target, self.drafter, self.page_size = target, drafter, page_size
        ids = torch.tensor([*tokens, *[0] * drafter.config.depth], device=features.device)
        self.ahead = ids[1:].unfold(0, drafter.config.depth, 1)[: len(features)]
        self.fused = drafter.fused(features)
        self._rows: dict[int, ColdRows] = {}

    def at(self, base: int) -> ColdRows:
        """The cells where those below page ``base`` are hidden."""
        if self.drafter.config.depth == 1:
            base = 0  # a cell of the first module is its own position's alone
        if base not in self._rows:
            self._rows[base] = self._run(base)
        return self._rows[base]

    def _run(self, base: int) -> ColdRows:
        drafter, count, device = self.drafter, len(self.fused), self.fused.device
        pages = PagedRows(drafter.config, 1, count, self.page_size, device, 0)
        hidden = min(count, base * self.page_size)
        for begin in range(hidden, count, CHUNK):
            end = min(count, begin + CHUNK)
            shape = StepShape([end - begin], device, chunks=1)
            start = torch.tensor([begin], device=device)
            step, state = shape.step(self.ahead[begin:end, 0], start, pages.lanes([0], [base])), self.fused[begin:end]
            for number in range(drafter.config.depth):
                step.token = self.ahead[begin:end, number]
                state = drafter.cells(number, step, state, self.target)
        found = ColdRows([pair for group in pages.rows_of(0, count) for pair in group], first=hidden)
        return found


def cold_chain_run(
    target: Target, drafter: Chain, prompt: int, tokens: Sequence[int], page_size: int
) -> tuple[torch.Tensor, ColdChain]:
    """Logits behind the prompt of ``prompt`` tokens and behind each later one but the last, and the drafter's cells."""
    ran = tokens[: max(prompt, len(tokens) - 1)]
    found = list(passes(target, ran, page_size, prompt - 1))
    features = torch.cat([states for _, states in found])
    return torch.cat([logits for logits, _ in found]), ColdChain(target, drafter, tokens, features, page_size)
