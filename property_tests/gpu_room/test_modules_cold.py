"""SHADOW and LOSSLESS against a cold run through the kernels: silent on correct reuse, and told page by page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from gpu_backend.modules import cold
from gpu_backend.modules.cold import NEAR_ROWS, cold_logits, cold_rows, lossless_cold, wrong_rows
from gpu_backend.modules.own_pages import OwnPages, greedy_cold
from gpu_backend.modules.speculate import cold_context
from gpu_backend.modules.tier0 import TINY, drafter_for
from property_tests.gpu_room.pairs import Pair, distance, make_pair, prompt

TOKENS = prompt(60)
PAGE = 16
MODES = {"float32": (torch.float32, False), "bfloat16": (torch.bfloat16, False), "exact": (torch.bfloat16, True)}


@dataclass
class Served:
    """A request whose prefix came from another's pages, then chunks and verify rows with rejections."""

    pair: Pair
    pages: OwnPages
    exact: bool

    def wrong(self, begin: int = 0, end: int = 60) -> list[tuple[int, int]]:
        """Position and page of every wrong row."""
        assert self.pages.of_drafter is not None
        rows = cold_rows(self.pair.target, self.pair.drafter, TOKENS, PAGE)
        table = self.pages.of_drafter.tables[0][1].to(rows[0][0].device)
        found = wrong_rows(self.pages.of_drafter.pools[0].kv, table, begin, end, rows, exact=self.exact)
        return [(row.position, row.page) for row in found]

    def page(self, block: int) -> int:
        """Page behind a block of the request's row."""
        assert self.pages.of_drafter is not None
        return int(self.pages.of_drafter.tables[0][1, block])

    @property
    def kv(self) -> torch.Tensor:
        """The drafter's pool."""
        assert self.pages.of_drafter is not None
        return self.pages.of_drafter.pools[0].kv


@pytest.fixture(params=MODES.values(), ids=list(MODES))
def served(request: pytest.FixtureRequest, device: torch.device) -> Served:
    dtype, exact = request.param
    pair = make_pair(device, TINY, drafter_for(TINY, window=None), dtype=dtype, exact=exact)
    pages = pair.pages(3, page_size=PAGE)
    pages.prefill(0, [*TOKENS[:32], *prompt(20, 8)], chunk=23)
    pages.prefill(2, prompt(60, 9))
    for rows in (pages.of_target, pages.of_drafter):
        assert rows is not None
        rows.tables[0][1, :2] = rows.tables[0][0, :2]  # two pages are claimed
    pages.length[1] = 32
    pages.prefill(1, TOKENS[32:50], chunk=7)
    for accepted in (1, 3, 4, 2):
        at = pages.length[1]
        row = [*TOKENS[at : at + accepted], *[3] * (4 - accepted)]
        output = pages.run([2, 1], [prompt(4, at), row])
        pages.settle([2, 1], [1, accepted], [4, 4], output)
    return Served(pair, pages, exact)


def test_a_claim_chunks_and_rejections_leave_the_rows_of_a_cold_run(served: Served) -> None:
    assert served.pages.length[1] == 60
    assert served.wrong() == []


FAULTS: dict[str, tuple[Callable[[Served], object], int]] = {
    "another request's page": (lambda it: it.kv[:, :, it.page(1)].copy_(it.kv[:, :, it.page(0)]), 16),
    "a row of zeros": (lambda it: it.kv[:, :, it.page(2), 5].zero_(), 37),
    "poison in one layer's V": (lambda it: it.kv[1, 1, it.page(3), 2, 1, 3].fill_(float("nan")), 50),
    "rows one position off": (lambda it: it.kv[:, :, it.page(2)].copy_(it.kv[:, :, it.page(2)].roll(1, 1)), 32),
    "an unbacked block": (lambda it: it.pages.of_drafter.tables[0][1].__setitem__(2, -1), 32),  # pyright: ignore[reportOptionalMemberAccess]
}


@pytest.mark.parametrize(("break_it", "position"), FAULTS.values(), ids=FAULTS)
def test_a_wrong_row_is_told_with_its_page_and_its_position(
    served: Served, break_it: Callable[[Served], object], position: int
) -> None:
    break_it(served)
    page = served.page(position // PAGE)
    assert served.wrong() == [(position, page)]
    assert served.wrong(begin=(position // PAGE + 1) * PAGE) == []


def test_a_last_bit_is_wrong_in_exact_mode_alone(served: Served) -> None:
    place = served.kv[0, 0, served.page(0), 4, 0, :1]
    whole = place.view({2: torch.int16, 4: torch.int32}[place.element_size()])
    whole ^= 1
    assert served.wrong() == ([(4, served.page(0))] if served.exact else [])


def test_cold_rows_through_kernels_and_dense_ones_agree(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = make_pair(device)
    monkeypatch.setattr(cold, "CHUNK", 23)  # the last chunk has 14
    rows = cold_rows(pair.target, pair.drafter, TOKENS, PAGE)
    dense = cold_context(pair.plain_target, pair.plain_drafter, TOKENS)
    for layer, (k, v) in enumerate(rows):
        assert distance(k, dense[layer][0]) < NEAR_ROWS[torch.float32] / 2
        assert distance(v, dense[layer][1]) < NEAR_ROWS[torch.float32] / 2


@pytest.mark.parametrize("chunk", [cold.CHUNK, 40, 11], ids=["one pass", "cut at the prompt's end", "many passes"])
def test_an_output_is_judged_by_a_cold_run(device: torch.device, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(cold, "CHUNK", chunk)
    pair = make_pair(device, dtype=torch.bfloat16, exact=True)
    tokens = prompt(40)
    output, logits = greedy_cold(pair.target, tokens, 20, PAGE)
    assert torch.equal(cold_logits(pair.target, tokens, output, PAGE), logits)
    assert lossless_cold(pair.target, tokens, output, PAGE, exact=True) == []
    output[7] ^= 1
    first = lossless_cold(pair.target, tokens, output, PAGE, exact=True)[0]
    assert (first.index, first.found, first.tied) == (7, output[7], False)
