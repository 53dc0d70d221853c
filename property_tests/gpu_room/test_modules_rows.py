"""Row slots with real models behind them: forced and natural acceptance, and what the pools hold afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpu_backend.modules.cold import cold_rows, lossless_cold, wrong_rows
from gpu_backend.modules.own_pages import OwnPages
from gpu_backend.modules.row_models import RowModels
from gpu_backend.modules.speculate import speculate_plain
from gpu_backend.modules.tier0 import TINY, drafter_for
from gpu_backend.modules.views import Lane, StepShape
from property_tests.gpu_room.pairs import Pair, make_pair, prompt

SLOTS, PAGE, K = 4, 16, 3
FEW = replace(TINY, vocabulary=5)


class Worker:
    """Row slots 2 and 0 serve two requests; lengths lie on the device."""

    def __init__(self, pair: Pair, prompts: list[list[int]], streams: list[list[int]]) -> None:
        self.pair, self.slot = pair, torch.tensor([2, 0], device=pair.target.rotary.cos.device)
        self.pages: OwnPages = pair.pages(SLOTS, page_size=PAGE, longest=128)
        self.models = RowModels(pair.target, pair.drafter, SLOTS, 128 + 2 * K + 2, K)
        self.device = self.models.device
        self.rows, self.blocks = StepShape([1 + K] * 2, self.device), StepShape([1 + K] * 2, self.device)
        for slot, tokens in zip((2, 0), streams, strict=True):
            self.models.bind(slot, torch.tensor(tokens))
        self.length = torch.tensor([len(tokens) for tokens in prompts], device=self.device)
        self.first = []
        for row, tokens in enumerate(prompts):
            chunks = [self.chunk(row, at, min(len(tokens), at + 19)) for at in range(0, len(tokens), 19)]
            self.first.append(int(chunks[-1][0].argmax()))

    def lanes(self, slot: torch.Tensor) -> tuple[tuple[Lane, ...], tuple[Lane, ...]]:
        """Target's and drafter's lanes of row slots."""
        assert self.pages.of_drafter is not None
        return self.pages.of_target.lanes(slot.tolist()), self.pages.of_drafter.lanes(slot.tolist())

    def chunk(self, row: int, begin: int, end: int) -> torch.Tensor:
        """One prompt chunk of a row."""
        slot = self.slot[row : row + 1]
        start = torch.tensor([begin], device=self.device)
        return self.models.context(
            StepShape([end - begin], self.device, chunks=1), slot, start, *self.lanes(slot)
        ).logits

    def step(self, forced: list[int] | None = None, *, drafting: bool = True) -> list[int]:
        """Verify, fold and draft; tokens committed by row."""
        target, drafter = self.lanes(self.slot)
        told = None if forced is None else torch.tensor(forced, device=self.device)
        verdict, output = self.models.verify(self.rows, self.slot, self.length, target, told)
        self.models.fold(self.rows, self.length, verdict.accepted, output.features, drafter)
        self.length = self.length + verdict.accepted
        if drafting:
            self.models.draft(self.blocks, self.slot, verdict.anchor, self.length, drafter)
        return verdict.accepted.tolist()

    def shadow(self, row: int, end: int) -> list[int]:
        """Positions of the drafter's rows below ``end`` that a cold run does not have."""
        slot = int(self.slot[row])
        tokens = self.models.stream[slot, :end].tolist()
        assert self.pages.of_drafter is not None
        table = self.pages.of_drafter.tables[0][slot].to(self.device)
        cold = cold_rows(self.pair.target, self.pair.drafter, tokens, PAGE)
        return [wrong.position for wrong in wrong_rows(self.pages.of_drafter.pools[0].kv, table, 0, end, cold)]


def test_forced_acceptance_follows_the_stream_whatever_the_target_says(device: torch.device) -> None:
    pair = make_pair(device)
    prompts = [prompt(40, 1), prompt(25, 2)]
    streams = [prompt(110, 1)[:40] + prompt(70, 3), prompt(25, 2) + prompt(70, 4)]
    worker = Worker(pair, prompts, streams)
    before = worker.models.stream.clone()
    for forced in ([1, 1], [4, 1], [2, 3], [3, 4], [4, 4]):
        assert worker.step(forced) == forced
    assert worker.length.tolist() == [54, 38]
    assert torch.equal(worker.models.stream, before)
    assert worker.shadow(0, 54) == worker.shadow(1, 38) == []


def test_rejected_drafts_differ_from_the_stream(device: torch.device) -> None:
    pair = make_pair(device)
    models = RowModels(pair.target, pair.drafter, 2, 40, K)
    models.bind(1, torch.arange(30))
    slot = torch.tensor([1, 1, 1, 1], device=device)
    position = torch.tensor([[11, 12, 13]] * 4, device=device)
    drafts = models._forced(slot, position, torch.tensor([1, 2, 3, 4], device=device))
    assert drafts.tolist() == [[12, 13, 14], [11, 13, 14], [11, 12, 14], [11, 12, 13]]


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_row_whose_proposal_is_shortened_commits_no_more_than_it_verifies(device: torch.device, width: int) -> None:
    pair = make_pair(device)
    tokens = prompt(60, 1)
    pages = pair.pages(2, page_size=PAGE)
    models = RowModels(pair.target, pair.drafter, 2, 100, K)
    slot = torch.arange(2, device=device)
    for row in (0, 1):
        models.bind(row, torch.tensor(tokens))
        pages.run([row], [tokens[:40]])
    start, lanes = torch.full_like(slot, 40), pages.of_target.lanes([0, 1])
    shape = StepShape([width] * 2, device)
    real = torch.tensor([True, False], device=device)
    told = torch.full_like(slot, width)
    verdict, _ = models.verify(shape, slot, start, lanes, told, real)
    assert verdict.accepted.tolist() == [width, 1] and verdict.choice.shape == (2, width)
    assert verdict.anchor.tolist() == [tokens[40 + width], tokens[41]]
    drafts = models._forced(slot, (start[:, None] + 1 + torch.arange(width - 1, device=device)), told)
    assert drafts.tolist() == [tokens[41 : 40 + width]] * 2
    natural, output = models.verify(shape, slot, start, lanes)
    assert output.logits.shape[0] == 2 * width and 1 <= int(natural.accepted.max()) <= width


@pytest.mark.parametrize("config", [TINY, FEW], ids=["many words", "few words"])
def test_natural_acceptance_is_plain_speculation(device: torch.device, config: object) -> None:
    """Tokens and traces of both rows, in the timeline that drafts right behind the prompt."""
    shape = FEW if config is FEW else TINY
    pair = make_pair(device, shape, drafter_for(shape, window=20))
    prompts = [prompt(40, 1, shape.vocabulary), prompt(25, 2, shape.vocabulary)]
    worker = Worker(pair, prompts, prompts)
    for row, tokens in enumerate(prompts):
        worker.models.stream[worker.slot[row], len(tokens)] = worker.first[row]
    _, drafter = worker.lanes(worker.slot)
    anchor = torch.tensor(worker.first, device=device)
    worker.models.draft(worker.blocks, worker.slot, anchor, worker.length, drafter)
    traces = [worker.step() for _ in range(16)]
    for row, tokens in enumerate(prompts):
        end = int(worker.length[row]) + 1
        output = worker.models.stream[worker.slot[row], len(tokens) : end].tolist()
        wanted, steps = speculate_plain(pair.plain_target, pair.plain_drafter, tokens, len(output))
        assert [trace[row] for trace in traces] == steps[:16]
        assert output == wanted[: len(output)]
        assert lossless_cold(pair.target, tokens, output, PAGE) == []
        assert worker.shadow(row, end - 1) == []
    if shape is FEW:
        assert max(max(trace) for trace in traces) > 1


def test_placeholders_are_verified_first(device: torch.device) -> None:
    pair = make_pair(device)
    prompts = [prompt(40, 1), prompt(25, 2)]
    worker = Worker(pair, prompts, prompts)
    for row, tokens in enumerate(prompts):
        worker.models.stream[worker.slot[row], len(tokens)] = worker.first[row]
    assert worker.models.drafts[worker.slot].tolist() == [[0, 0, 0]] * 2
    assert worker.step() == [1, 1]
    assert worker.models.drafts[worker.slot].any()
    worker.models.bind(2, torch.tensor([5, 6]))
    assert worker.models.stream[2, :4].tolist() == [5, 6, 0, 0]
    assert worker.models.drafts[2].tolist() == [0, 0, 0]


def test_a_context_stored_elsewhere_keeps_its_absolute_rotation(device: torch.device) -> None:
    """A slot-local store: rows lie from 0 on, but are turned by the positions of their tokens."""
    pair = make_pair(device)
    pages = pair.pages(2, page_size=PAGE)
    models = RowModels(pair.target, pair.drafter, 2, 80, K)
    tokens = prompt(40)
    models.bind(0, torch.tensor(tokens))
    assert pages.of_drafter is not None
    slot, zero = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
    models.context(StepShape([24], device, chunks=1), slot, zero, pages.of_target.lanes([0]))
    models.context(
        StepShape([16], device, chunks=1),
        slot,
        zero + 24,
        pages.of_target.lanes([0]),
        pages.of_drafter.lanes([0]),
        zero,
    )
    cold = [(k[24:], v[24:]) for k, v in cold_rows(pair.target, pair.drafter, tokens, PAGE)]
    table = pages.of_drafter.tables[0][0].to(device)
    assert wrong_rows(pages.of_drafter.pools[0].kv, table, 0, 16, cold) == []


def test_a_drafter_of_another_depth_is_refused(device: torch.device) -> None:
    pair = make_pair(device)
    with pytest.raises(ValueError, match="the drafter drafts 3 tokens, rows verify 7"):
        RowModels(pair.target, pair.drafter, 2, 40, 7)
