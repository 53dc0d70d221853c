"""Whole steps of target and drafter on a GPU: no wait for the device, one graph for every step of a shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from gpu_backend import triton_backend
from gpu_backend.contracts.attention import AttentionCase, build
from gpu_backend.modules.own_pages import OwnPages
from gpu_backend.modules.tier0 import SMALL, drafter_for
from gpu_backend.modules.verify import Verified, verify
from gpu_backend.modules.views import StepShape
from gpu_backend.timing import capture
from gpu_backend.triton_backend import TritonKernels
from property_tests.gpu_room.pairs import NEAR, Pair, distance, make_pair, prompt

DEVICE = torch.device("cuda")
PROMPTS = [prompt(length, length, SMALL.vocabulary) for length in (200, 31, 77)]


class Generation:
    """One generation step of three requests, drafted, verified and folded on the device, over tensors kept in place."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.pages = OwnPages(pair.target, pair.drafter, 3, 320, 32)
        anchors = [int(self.pages.prefill(row, tokens).argmax()) for row, tokens in enumerate(PROMPTS)]
        self.anchor = torch.tensor(anchors, device=DEVICE)
        self.start = torch.tensor(self.pages.length, device=DEVICE)
        block = pair.drafter.config.block
        self.block, self.row = (StepShape([width] * 3, DEVICE) for width in (block, 1 + pair.drafter.config.drafts))
        assert self.pages.of_drafter is not None
        self.target_lanes = self.pages.of_target.lanes([0, 1, 2])
        self.draft_lanes = self.pages.of_drafter.lanes([0, 1, 2])
        self.tokens: list[torch.Tensor] = []
        self.accepted = torch.zeros(3, dtype=torch.int64, device=DEVICE)
        self.logits = torch.zeros(0)

    def step(self) -> Verified:
        """Draft, verify, fold; every row of the verify pass is folded, rejected ones are written over."""
        pair = self.pair
        drafting = self.block.step(pair.drafter.block_tokens(self.anchor), self.start, self.draft_lanes)
        drafts = pair.drafter(drafting, pair.target).logits.argmax(-1)
        rows = torch.cat([self.anchor[:, None], drafts], 1).flatten()
        output = pair.target(self.row.step(rows, self.start, self.target_lanes))
        pair.drafter.fold(output.features, self.row.step(rows, self.start, self.draft_lanes))
        self.logits = output.logits
        verdict = verify(output.logits.unflatten(0, (3, -1)), drafts)
        self.accepted.copy_(verdict.accepted)
        self.start += verdict.accepted
        self.anchor.copy_(verdict.anchor)
        return verdict


def outputs(generation: Generation, run: Callable[[], object], steps: int) -> list[list[int]]:
    """First committed token of every row in each of ``steps`` steps, and how many were committed."""
    found = []
    for _ in range(steps):
        run()
        found.append([*generation.anchor.tolist(), *generation.accepted.tolist(), *generation.start.tolist()])
    return found


DFLASH = drafter_for(SMALL, block=8, window=64)
DSPARK = drafter_for(SMALL, block=7, window=64, logits_start=0, markov_rank=32)
DRAFTERS = {"": DFLASH, " dspark": DSPARK, " dspark, rnn": replace(DSPARK, markov="rnn", confidence="markov")}


@pytest.fixture(params=[(exact, name) for exact in (False, True) for name in DRAFTERS],
                ids=lambda told: f"{'exact' if told[0] else 'fast'}{told[1]}")  # fmt: skip
def pair(request: pytest.FixtureRequest) -> Pair:
    exact, name = request.param
    return make_pair(DEVICE, SMALL, DRAFTERS[name], dtype=torch.bfloat16, exact=exact)


def test_a_graph_of_a_generation_step_does_what_the_step_does(pair: Pair) -> None:
    eager, replayed = Generation(pair), Generation(pair)
    wanted = outputs(eager, eager.step, 12)
    before = replayed.anchor.clone(), replayed.start.clone()
    replayed.step()  # plans and workspaces are made
    replayed.anchor.copy_(before[0])
    replayed.start.copy_(before[1])
    graph = capture(replayed.step)
    assert torch.equal(replayed.start, before[1]), "a capture runs nothing"
    assert outputs(replayed, graph.replay, 12) == wanted
    assert len({row[0] for row in wanted}) > 6


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_a_step_waits_for_nothing_on_the_device(pair: Pair) -> None:
    generation = Generation(pair)
    generation.step()
    mode = torch.cuda.get_sync_debug_mode()
    try:
        torch.cuda.set_sync_debug_mode("error")
        for _ in range(3):
            generation.step()
    finally:
        torch.cuda.set_sync_debug_mode(mode)
    assert generation.start.tolist() > [len(tokens) for tokens in PROMPTS]


def test_logits_in_bfloat16_are_near_float64(pair: Pair) -> None:
    pages = OwnPages(pair.target, pair.drafter, 1, 320, 32)
    wanted, features = pair.plain(PROMPTS[0])
    output = pages.run([0], [PROMPTS[0]])
    assert distance(output.logits, wanted) < NEAR[torch.bfloat16]
    assert distance(output.features, features) < NEAR[torch.bfloat16]


def test_exact_rows_keep_their_bits_in_large_steps() -> None:
    """Batches and chunks of sizes at which a matrix library changes its kernels."""
    pair = make_pair(DEVICE, SMALL, DFLASH, dtype=torch.bfloat16, exact=True)
    tokens = prompt(1500, 5, SMALL.vocabulary)
    whole = OwnPages(pair.target, pair.drafter, 1, 1536, 128).run([0], [tokens]).logits
    pages = OwnPages(pair.target, pair.drafter, 40, 1536, 128)
    at = 0
    for width in (700, 1, 8, 64, 65, 500):
        rows = [0, *range(1, 40)] if width <= 8 else [0]
        parts = [tokens[at : at + width], *(tokens[row : row + width] for row in rows[1:])]
        output = pages.run(rows, parts)
        pages.settle([0], [width], [width], output)
        assert torch.equal(output.logits[:width], whole[at : at + width]), f"{width} tokens at {at}"
        at += width


def test_a_captured_plan_is_never_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_backend, "MOST_PLANS", 2)
    kernels = TritonKernels(exact=True)
    case = AttentionCase((4, 4), (70, 133))
    call = build(case, DEVICE, 1)
    kernels.attend(call, widths=case.widths)
    wanted = call.out.clone()
    graph = capture(lambda: kernels.attend(call, widths=case.widths))
    for width in range(1, 9):
        other = AttentionCase((width,), (33,))
        kernels.attend(build(other, DEVICE, width), widths=other.widths)
    call.out.fill_(float("nan"))
    graph.replay()
    assert torch.equal(call.out, wanted)
