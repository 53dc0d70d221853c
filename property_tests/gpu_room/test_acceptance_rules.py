"""Sampled acceptance keeps the target's distribution: enumerated exactly where words are few, and drawn very often."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch

from gpu_backend.acceptance.draws import Purpose, counters, gumbel, mix, uniform
from gpu_backend.acceptance.rules import RULES, Rule, Sampling, keeps
from model.tokens import mix64

VOCABULARY, DRAFTS, FIRST = 3, 3, 3
Tree = Callable[[tuple[int, ...]], np.ndarray]
SAMPLED = [Rule.TOKEN, Rule.BLOCK, Rule.MATCH]


def tree(seed: int, sharpness: float) -> Tree:
    """A distribution behind every prefix, some tokens of some of them impossible."""

    def behind(prefix: tuple[int, ...]) -> np.ndarray:
        draw = np.random.default_rng([seed, len(prefix), *prefix])
        weights = draw.random(VOCABULARY) ** sharpness
        weights[draw.integers(VOCABULARY)] *= draw.random() < 0.7
        return weights / weights.sum()

    return behind


def laid_out(p: Tree, q: Tree) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """``p``, ``q`` and drafts of every block that can be drafted, a row each, and the chance of each."""
    blocks = list(itertools.product(range(VOCABULARY), repeat=DRAFTS))
    wanted = [[p(block[:length]) for length in range(DRAFTS + 1)] for block in blocks]
    offered = [[q(block[:length]) for length in range(DRAFTS)] for block in blocks]
    chance = [
        float(np.prod([one[token] for one, token in zip(rows, block, strict=True)]))
        for rows, block in zip(offered, blocks, strict=True)
    ]
    drafted = torch.tensor(chance, dtype=torch.float64)
    kept = drafted > 0
    tensors = torch.tensor(np.array(wanted)), torch.tensor(np.array(offered)), torch.tensor(blocks)
    return tensors[0][kept], tensors[1][kept], tensors[2][kept], drafted[kept]


def outcomes(
    rule: Rule, p: torch.Tensor, q: torch.Tensor, drafts: torch.Tensor
) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Chance, accepted drafts and weights behind them of each cell of the cube of uniform numbers in which the rule
    cannot change its mind: every number lies below or above the threshold of its slot."""
    at_draft = p[:, :-1].gather(-1, drafts[..., None])[..., 0] / q.gather(-1, drafts[..., None])[..., 0]
    threshold = at_draft.clamp(max=1) if rule is Rule.TOKEN else keeps(p, q, drafts)[1]
    found = []
    for below in itertools.product((True, False), repeat=DRAFTS):
        chosen = torch.tensor(below)
        u = torch.where(chosen, threshold / 2, (threshold + 1) / 2)
        chance = torch.where(chosen, threshold, 1 - threshold).prod(-1)
        found.append((chance, *RULES[rule](p, q, drafts, u)))
    return found


def joint(rule: Rule, p: Tree, q: Tree) -> tuple[np.ndarray, float]:
    """The distribution of the first committed tokens, those behind one step by plain sampling; and the mean committed
    by the step."""
    wanted, offered, drafts, drafted = laid_out(p, q)
    found, mean = np.zeros((VOCABULARY,) * FIRST), 0.0
    for chance, accepted, weights in outcomes(rule, wanted, offered, drafts):
        total = (chance * drafted).numpy()
        mean += float((total * (accepted.numpy() + 1)).sum())
        behind = (weights / weights.sum(-1, keepdim=True)).numpy()
        for row in np.nonzero(total > 0)[0]:
            block = tuple(drafts[row].tolist())[: int(accepted[row])]
            for token in range(VOCABULARY):
                _spread(found, p, (*block, token), float(total[row] * behind[row, token]))
    return found, mean


def _spread(found: np.ndarray, p: Tree, tokens: tuple[int, ...], chance: float) -> None:
    if len(tokens) >= FIRST:
        found[tokens[:FIRST]] += chance
        return
    for token, share in enumerate(p(tokens)):
        _spread(found, p, (*tokens, token), chance * float(share))


@pytest.mark.parametrize("rule", [Rule.TOKEN, Rule.BLOCK])
@pytest.mark.parametrize("seed", range(4))
def test_the_first_tokens_have_the_targets_joint_distribution_exactly(rule: Rule, seed: int) -> None:
    p, q = tree(seed, 1.5), tree(100 + seed, 1.0)
    plain = np.zeros((VOCABULARY,) * FIRST)
    _spread(plain, p, (), 1.0)
    found, _ = joint(rule, p, q)
    assert np.abs(found - plain).max() < 1e-12


def test_block_verification_commits_no_less_than_token_rejection_and_more_where_drafts_are_likely() -> None:
    gains = []
    for seed in range(6):
        p, q = tree(seed, 1.2), tree(200 + seed, 0.8)
        gains.append(joint(Rule.BLOCK, p, q)[1] - joint(Rule.TOKEN, p, q)[1])
    assert min(gains) > -1e-12 and max(gains) > 0.01


@pytest.mark.parametrize("rule", [Rule.TOKEN, Rule.BLOCK])
def test_a_drafter_that_is_the_target_is_always_believed(rule: Rule) -> None:
    p = tree(3, 1.0)
    assert joint(rule, p, p)[1] == pytest.approx(DRAFTS + 1)


def committed(rule: Rule, rows: int, temperature: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """First committed tokens of ``rows`` requests, each by draws of its own, step behind step; what the first step
    commits; and the chance ``[size] * FIRST`` of these tokens. Logits depend on the last two tokens."""
    draw, size = torch.Generator().manual_seed(5), VOCABULARY + 2
    target, drafter = (torch.randn(size, size, size, generator=draw) for _ in range(2))
    sampling, request, row = Sampling(rule, temperature, 11), mix(torch.arange(rows)), torch.arange(rows)[:, None]
    line = torch.zeros(rows, 2 + FIRST * (DRAFTS + 1), dtype=torch.int64)  # behind two tokens of a prompt
    start, first = torch.ones(rows, dtype=torch.int64), torch.zeros(0)
    place = torch.arange(DRAFTS + 1)
    for step in range(FIRST):
        before = line[row, start[:, None] - 1 + torch.arange(2)]
        offer = drafter[before[:, 0], before[:, 1]][:, None].expand(-1, DRAFTS, -1)
        drafts, q = sampling.draft(offer, request, start)
        told = torch.cat([before, drafts], 1)
        judged = sampling.verify(target[told[:, :-1], told[:, 1:]], drafts, request, start, q)
        at = start[:, None] + 1 + place
        line[row, at] = torch.where(place < judged.accepted[:, None], judged.choice, line[row, at])
        start = start + judged.accepted
        first = judged.accepted if step == 0 else first
    spread = sampling.spread(target)
    wanted = spread[0, 0][:, None, None] * spread[0][:, :, None] * spread
    return line[:, 2 : 2 + FIRST], first.double(), wanted


@pytest.mark.parametrize("rule", SAMPLED)
def test_what_is_drawn_is_distributed_as_plain_sampling(rule: Rule) -> None:
    """Chi-square over 125 cells, bound at 5 standard deviations, and total variation."""
    rows = 24_000
    tokens, _, wanted = committed(rule, rows, 0.8)
    size = len(wanted)
    cell = (tokens * torch.tensor([size * size, size, 1])).sum(-1)
    found = torch.bincount(cell, minlength=size**FIRST).double()
    expected, free = wanted.flatten() * rows, size**FIRST - 1
    assert float(((found - expected) ** 2 / expected).sum()) < free + 5 * (2 * free) ** 0.5
    assert float((found / rows - wanted.flatten()).abs().sum() / 2) < 0.02


def test_the_draws_tell_a_wrong_temperature_from_the_right_one() -> None:
    """What the bounds above are worth."""
    rows = 24_000
    tokens, _, _ = committed(Rule.TOKEN, rows, 0.8)
    wanted = committed(Rule.TOKEN, 1, 1.0)[2]
    found = torch.bincount((tokens * torch.tensor([25, 5, 1])).sum(-1), minlength=125).double()
    expected = wanted.flatten() * rows
    assert float(((found - expected) ** 2 / expected).sum()) > 2 * 125


def test_drawn_steps_commit_as_many_tokens_as_the_rules_promise() -> None:
    token, block, match = (float(committed(rule, 12_000, 0.8)[1].mean()) for rule in SAMPLED)
    assert block > token > match > 1


@pytest.mark.parametrize("rule", [Rule.GREEDY, *SAMPLED])
def test_a_row_is_judged_alike_in_any_batch_and_any_order(rule: Rule) -> None:
    draw = torch.Generator().manual_seed(1)
    sampling = Sampling(rule, 0.7, 3)
    logits, offers = torch.randn(6, DRAFTS + 1, 8, generator=draw), torch.randn(6, DRAFTS, 8, generator=draw)
    request, start = torch.arange(6) * 977 - 5, torch.tensor([9, 4, 100, 7, 7, 1])
    order = torch.tensor([3, 0, 5, 1])

    def judge(rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        drafts, q = sampling.draft(offers[rows], request[rows], start[rows])
        found = sampling.verify(logits[rows], drafts, request[rows], start[rows], q)
        return drafts, found.accepted, found.choice, found.anchor

    for whole, part in zip(judge(torch.arange(6)), judge(order), strict=True):
        assert torch.equal(whole[order], part)


@pytest.mark.parametrize("rule", [Rule.GREEDY, *SAMPLED])
def test_placeholders_are_never_accepted_and_the_token_behind_the_anchor_is_the_targets(rule: Rule) -> None:
    sampling, rows = Sampling(rule, 1.0, 3), 2000
    logits = torch.log(torch.tensor([[0.9, 0.05, 0.05]])).expand(rows, DRAFTS + 1, -1)
    drafts, real = torch.zeros(rows, DRAFTS, dtype=torch.int64), torch.zeros(rows, dtype=torch.bool)
    request, start = mix(torch.arange(rows)), torch.ones(rows, dtype=torch.int64)
    found = sampling.verify(logits, drafts, request, start, torch.zeros(rows, DRAFTS, 3).double(), real)
    assert found.accepted.tolist() == [1] * rows and torch.equal(found.choice[:, 0], found.anchor)
    plain = sampling.token(logits[:, 0], request, start + 1)
    assert torch.equal(found.anchor, plain), "the draws of the position decide, as behind a prompt"


def test_matched_output_is_that_of_plain_sampling_whatever_is_drafted() -> None:
    sampling, draw = Sampling(Rule.MATCH, 0.9, 1), torch.Generator().manual_seed(2)
    logits, request = torch.randn(4, DRAFTS + 1, 6, generator=draw), torch.arange(4)
    start = torch.tensor([3, 5, 8, 13])
    wanted = sampling.token(logits, request[:, None], start[:, None] + torch.arange(1, DRAFTS + 2))
    for drafts in (wanted[:, :-1], torch.zeros(4, DRAFTS, dtype=torch.int64), (wanted[:, :-1] + 1) % 6):
        assert torch.equal(sampling.verify(logits, drafts, request, start).choice, wanted)


def test_draws_are_those_of_the_scalar_hash_and_keep_request_position_slot_and_purpose_apart() -> None:
    values = [0, 1, -1, 2**63 - 1, -(2**63), 0x1234_5678_9ABC_DEF]
    assert [one % 2**64 for one in mix(torch.tensor(values)).tolist()] == [mix64(one % 2**64) for one in values]
    request, place = torch.arange(50)[:, None, None], torch.arange(40)[:, None]
    found = [counters(7, purpose, request, place, torch.arange(8)).flatten() for purpose in Purpose]
    every = torch.cat([*found, counters(8, Purpose.TOKEN, request, place, torch.arange(8)).flatten()])
    assert len(every.unique()) == len(every)
    numbers = uniform(every)
    assert float(numbers.min()) > 0 and float(numbers.max()) < 1
    assert float(numbers.mean()) == pytest.approx(0.5, abs=0.005)
    noise = gumbel(every[:20_000], 4)
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.02), "Euler's constant"
    assert float(torch.corrcoef(noise.T).fill_diagonal_(0).abs().max()) < 0.03
