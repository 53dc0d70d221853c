"""What is trained is what is served: the dense passes equal the paged modules."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpu_backend.modules.tier0 import TINY, drafter_for
from gpu_backend.train.dense import Passes, Windows, run_blocks, run_target
from gpu_backend.train.optimiser import orthogonal, rate_at
from gpu_backend.train.speculation import speculate
from property_tests.gpu_room.pairs import NEAR, Pair, distance, make_pair, prompt

LIKE_T1 = replace(TINY, layers=4)


@pytest.fixture
def pair(device: torch.device) -> Pair:
    return make_pair(device, LIKE_T1, drafter_for(LIKE_T1, layers=2, block=4, window=16))


def test_a_dense_pass_gives_the_logits_and_features_of_the_paged_target(pair: Pair, device: torch.device) -> None:
    rows = [prompt(40, seed) for seed in (1, 2)]
    with torch.no_grad():
        states, features = run_target(pair.target, torch.tensor(rows, device=device), Passes())
        (logits,) = pair.target.head(pair.target.model.norm(states))
    pages = pair.pages(2)
    for row, tokens in enumerate(rows):
        output = pages.run([row], [tokens], chunks=1)
        assert distance(logits.unflatten(0, (2, 40))[row], output.logits) < NEAR[torch.float32]
        assert distance(features.unflatten(0, (2, 40))[row], output.features) < NEAR[torch.float32]


def test_every_anchor_of_a_training_sequence_drafts_as_the_paged_drafter(pair: Pair, device: torch.device) -> None:
    """Windows, rotation, masks and the anchor's own place: off by one in any of them would show."""
    tokens = prompt(40, 5)
    config = pair.drafter.config
    with torch.no_grad():
        _, features = run_target(pair.target, torch.tensor([tokens], device=device), Passes())
        anchors = list(range(16, 40 - config.block + 1, 4))
        blocks = pair.drafter.block_tokens(torch.tensor([tokens[place] for place in anchors], device=device))
        embedded = pair.target.embed(blocks).unflatten(0, (1, len(anchors), config.block))
        hidden = run_blocks(pair.drafter, features, embedded, 1, 4, Passes())
        (logits,) = pair.target.head(hidden[0, :, config.logits_start :])
    pages = pair.pages(len(anchors))
    for row, place in enumerate(anchors):
        pages.prefill(row, tokens[:place])
        assert distance(logits[row], pages.draft([row], [tokens[place]])[0]) < NEAR[torch.float32]


def test_the_gradient_of_overlapping_windows_is_the_sum_over_them() -> None:
    x = torch.randn(2, 24, 2, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 4, 8, 2, 3, dtype=torch.float64)
    (Windows.apply(x, 8, 4, 4) * weight).sum().backward()  # type: ignore[union-attr]
    wanted = torch.zeros_like(x)
    for anchor in range(4):
        wanted[:, anchor * 4 : anchor * 4 + 8] += weight[:, anchor]
    assert x.grad is not None
    assert torch.allclose(x.grad, wanted, atol=1e-6)


def test_the_evaluation_commits_what_plain_speculation_commits(device: torch.device) -> None:
    """A vocabulary of four, so that drafts are accepted at all."""
    from gpu_backend.modules.speculate import speculate_plain

    small = replace(LIKE_T1, vocabulary=4)
    pair = make_pair(device, small, drafter_for(small, layers=2, block=4, window=16))
    rows = [prompt(20, seed, 4) for seed in (1, 2, 3)]
    _, accepted, _ = speculate(pair.target, pair.drafter, torch.tensor(rows, device=device), 24)
    for row, tokens in enumerate(rows):
        _, steps = speculate_plain(pair.plain_target, pair.plain_drafter, tokens, 24 + 1)
        found = [count for count in accepted[row].tolist() if count]
        assert found == steps
    assert int(accepted.max()) > 1


def test_rates_warm_up_stay_and_go_down_to_nothing() -> None:
    shape = (0.1, 0.5)
    assert [rate_at(p, shape) for p in (0.0, 0.05, 0.1, 0.5, 0.75, 1.0)] == pytest.approx([0.02, 0.5, 1, 1, 0.5, 0])


def test_the_steps_of_muon_have_singular_values_near_one() -> None:
    values = torch.linalg.svdvals(orthogonal(torch.randn(2, 24, 16, generator=torch.Generator().manual_seed(1))))
    assert 0.5 < float(values.min()) <= float(values.max()) < 1.5
