"""What a sequence gives when it is run from nothing: the logits behind an output, the drafter's context rows.

These go through the paged kernels on pages of their own, chunk by chunk, so they serve long sequences on the device
and, in exact mode, must be met bit by bit. :mod:`gpu_backend.modules.speculate` has the dense ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from gpu_backend.modules.drafter import Drafter
from gpu_backend.modules.own_pages import OwnPages
from gpu_backend.modules.target import Target
from gpu_backend.modules.verify import Differs, differences

CHUNK = 2048  # tokens of one pass
# Largest error of a drafter's K/V row, as a share of the largest magnitude in its layer and plane, when chunks and
# batches differ (measured, see test_modules_cold); rows of another token or position differ by about 1.
NEAR_ROWS = {torch.float32: 2.0**-15, torch.bfloat16: 2.0**-3, torch.float16: 2.0**-6}

Rows = list[tuple[torch.Tensor, torch.Tensor]]


def cold_logits(target: Target, prompt: Sequence[int], output: Sequence[int], page_size: int) -> torch.Tensor:
    """Logits ``[outputs, vocabulary]`` behind the prompt and behind each token of ``output`` but the last."""
    tokens = [*prompt, *output[:-1]]
    first = len(prompt) - 1
    return torch.cat([logits for logits, _ in passes(target, tokens, page_size, first)])


def lossless_cold(
    target: Target, prompt: Sequence[int], output: Sequence[int], page_size: int, *, exact: bool = False
) -> list[Differs]:
    """Where ``output`` is not the greedy one of a cold run; in ``exact`` mode, which ``target`` must be in, no ties."""
    return differences(cold_logits(target, prompt, output, page_size), output, target.config.dtype, exact=exact)


def cold_run(
    target: Target, drafter: Drafter, prompt: int, tokens: Sequence[int], page_size: int
) -> tuple[torch.Tensor, ColdRows]:
    """Logits behind the prompt of ``prompt`` tokens and behind each later one, and all context rows; of one run."""
    logits, features = [], []
    for part, states in passes(target, tokens, page_size, prompt - 1):
        logits.append(part)
        features.append(states)
    rows = torch.cat(features)
    return torch.cat(logits), ColdRows(drafter.context_rows(rows, torch.arange(len(rows), device=rows.device)))


def cold_rows(target: Target, drafter: Drafter, tokens: Sequence[int], page_size: int) -> Rows:
    """K and V by layer, ``[tokens, kv_heads, head_dim]`` each, of the drafter's context rows of ``tokens``."""
    features = torch.cat([part for _, part in passes(target, tokens, page_size, len(tokens))])
    position = torch.arange(len(tokens), device=features.device)
    return drafter.context_rows(features, position)


def passes(
    target: Target, tokens: Sequence[int], page_size: int, first: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Logits of each chunk's tokens from ``first`` on, and the features of all of them."""
    pages = OwnPages(target, None, 1, len(tokens), page_size)
    for begin in range(0, len(tokens), CHUNK):
        part = tokens[begin : begin + CHUNK]
        output = pages.run([0], [part], chunks=1, first=min(len(part), max(0, first - begin)))
        pages.settle([0], [len(part)], [len(part)], output)
        yield output.logits, output.features


@dataclass(frozen=True, slots=True)
class WrongRow:
    """A context row that a cold run does not have: its layer in the pool, position, page, and by how much it errs."""

    layer: int
    position: int
    page: int
    error: float


class ColdRows:
    """The cold rows of one sequence from position ``first`` on, ready to be compared with again and again."""

    def __init__(self, rows: Rows, first: int = 0) -> None:
        self.every = torch.stack([torch.stack(pair) for pair in rows])  # [layers, 2, positions, kv_heads, head_dim]
        self.every[:, :, :first] = 0  # nobody reads them
        self.scale = self.every.abs().amax((2, 3, 4), keepdim=True).double()

    def at(self, base: int) -> ColdRows:
        """The rows where those below page ``base`` are hidden: each depends on its own position alone."""
        return self

    def wrong(
        self, kv: torch.Tensor, table: torch.Tensor, begin: int, end: int, *, lag: int = 0, exact: bool = False
    ) -> list[WrongRow]:
        """As :func:`wrong_rows`; position ``p`` of the pool holds the row of token ``p + lag``."""
        begin = max(begin, 0, -lag)
        position = torch.arange(begin, max(begin, end), device=kv.device)
        page = table.long()[position // kv.shape[3]]
        found = kv[:, :, page.clamp(min=0), position % kv.shape[3]]
        token = position + lag
        wanted = self.every[:, :, token.clamp(max=self.every.shape[2] - 1)]
        error = ((found.double() - wanted.double()).abs() / self.scale).nan_to_num(nan=torch.inf).amax((1, 3, 4))
        there = (page >= 0) & (token < self.every.shape[2])
        error = torch.where(there, error, torch.inf)  # [layers, positions]
        allowed = 0.0 if exact else NEAR_ROWS[kv.dtype]
        wrong: list[WrongRow] = []
        seen: set[int] = set()
        for place in torch.nonzero((error > allowed).any(0)).flatten().tolist():
            block = (begin + place) // kv.shape[3]
            if block not in seen:
                seen.add(block)
                layer = int((error[:, place] > allowed).nonzero()[0])
                wrong.append(WrongRow(layer, begin + place, int(page[place]), float(error[layer, place])))
        return wrong


def wrong_rows(
    kv: torch.Tensor, table: torch.Tensor, begin: int, end: int, cold: Rows, *, exact: bool = False
) -> list[WrongRow]:
    """The first wrong row of each page of the positions ``[begin, end)``, in their order; SHADOW holds if none is.

    ``kv`` is the pool of one group, ``[layers, 2, pages, page_size, kv_heads, head_dim]``, ``table`` int32
    ``[columns]`` the request's row by absolute block, ``cold`` the cold rows of that group's layers from position 0 on.
    ``error`` is a share of the largest magnitude of layer and plane, infinity where no page backs a row, it is NaN or
    there is no token for it. In ``exact`` mode any difference is wrong.
    """
    return ColdRows(cold).wrong(kv, table, begin, end, exact=exact)
