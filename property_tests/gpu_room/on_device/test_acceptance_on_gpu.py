"""Rules of acceptance on a GPU: the draws of a CPU to the bit, the same verdicts, in a captured graph too."""

from __future__ import annotations

import pytest
import torch

from gpu_backend.acceptance.draws import Purpose, counters, gumbel, uniform
from gpu_backend.acceptance.rules import Rule, Sampling
from gpu_backend.device import uncollected

ROWS, DRAFTS, VOCABULARY = 512, 7, 256


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Target's and drafter's logits that agree more or less, requests, positions."""
    draw = torch.Generator().manual_seed(3)
    logits = torch.randn(ROWS, DRAFTS + 1, VOCABULARY, generator=draw) * 3
    offers = logits[:, :DRAFTS] + torch.randn(ROWS, DRAFTS, VOCABULARY, generator=draw)
    return logits, offers, torch.arange(ROWS) * 0x5DEECE66D, torch.arange(ROWS) % 97


def judged(sampling: Sampling, *told: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Drafts, committed tokens and the token behind them."""
    logits, offers, request, start = told
    drafts, q = sampling.draft(offers, request, start)
    found = sampling.verify(logits, drafts, request, start, q)
    return drafts, found.accepted, found.anchor


def test_draws_are_those_of_a_cpu(device: torch.device) -> None:
    request, place = torch.arange(1000) * 0x5DEECE66D - 7, torch.arange(1000)
    here, there = (counters(5, Purpose.TOKEN, request.to(on), place.to(on)) for on in ("cpu", device))
    assert torch.equal(here, there.cpu()) and torch.equal(uniform(here), uniform(there).cpu())
    assert float((gumbel(here, 64) - gumbel(there, 64).cpu()).abs().max()) < 1e-12


@pytest.mark.parametrize("rule", Rule)
def test_verdicts_are_those_of_a_cpu(device: torch.device, rule: Rule) -> None:
    sampling, told = Sampling(rule, 0.9, 4), inputs()
    here, there = (judged(sampling, *(one.to(on) for one in told)) for on in ("cpu", device))
    same = [float((one == other.cpu()).double().mean()) for one, other in zip(here, there, strict=True)]
    assert min(same) > 0.999, "logarithms differ in their last bits"


@pytest.mark.parametrize("rule", Rule)
def test_a_captured_rule_waits_for_nothing_and_says_the_same(device: torch.device, rule: Rule) -> None:
    sampling, told = Sampling(rule, 0.9, 4), tuple(one.to(device) for one in inputs())
    wanted = judged(sampling, *told)
    judged(sampling, *told)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with uncollected(), torch.cuda.graph(graph):
        found = judged(sampling, *told)
    graph.replay()
    assert all(torch.equal(one, other) for one, other in zip(wanted, found, strict=True))
