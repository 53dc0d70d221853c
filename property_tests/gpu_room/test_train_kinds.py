"""Drafters of every kind: what they are trained for is what they draft, and they learn it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from gpu_backend.modules.chain import Chain
from gpu_backend.modules.config import TargetConfig
from gpu_backend.modules.loader import load_target
from gpu_backend.modules.plain import PlainDrafter, PlainTarget
from gpu_backend.modules.speculate import speculate_plain
from gpu_backend.modules.target import Target
from gpu_backend.modules.tier0 import TINY, drafter_for, random_pair
from gpu_backend.train.dense import Passes, run_target
from gpu_backend.train.drafter_stage import loss_behind
from gpu_backend.train.further import whole_cells
from gpu_backend.train.generate import generate
from gpu_backend.train.kinds import KINDS
from gpu_backend.train.kinds.base import Ran
from gpu_backend.train.optimiser import Optimiser
from gpu_backend.train.recipe import Recipe
from gpu_backend.train.speculation import speculate
from property_tests.gpu_room import trained
from property_tests.gpu_room.pairs import NEAR, distance, prompt

CPU = torch.device("cpu")


def recipe_of(target: TargetConfig) -> Recipe:
    """Small drafters of all kinds."""
    drafter = drafter_for(target, layers=2, block=5, window=16)
    return replace(trained.RECIPE, target=target, drafter=drafter, stride=4, dspark_layers=1, markov_rank=8)


LIKE_T1 = replace(TINY, layers=4)
RECIPE = recipe_of(LIKE_T1)


@pytest.mark.parametrize("name", KINDS)
def test_a_slot_that_is_trained_is_the_draft_behind_the_same_tokens(name: str) -> None:
    """Positions, masks, which token and whose state a cell takes: off by one in any of them would show."""
    kind, length = KINDS[name], 32
    target, drafter = random_pair(RECIPE.target, kind.config(RECIPE), 7, CPU)
    ids = torch.tensor([prompt(length, 5), prompt(length, 6)])
    with torch.no_grad():
        slots = kind.slots(target, drafter, ids, len(ids), RECIPE, Passes())
        logits = F.linear(slots.hidden, slots.head)
    first, stride = {"dflash": (16, 4), "dspark": (16, 4), "eagle3": (4, 4), "mtp": (2, 2)}[name]
    drafts = drafter.config.drafts
    for number in range(logits.shape[1]):
        anchor = first + number * stride
        assert torch.equal(slots.labels[:, number], ids[:, anchor + 1 : anchor + 1 + drafts])
        found = drafted_behind(name, target, drafter, ids[:, :anchor], ids[:, anchor:], drafts)
        assert distance(logits[:, number], found) < NEAR[torch.float32]
    assert anchor + drafts + stride >= length, "the last one that fits"  # pyright: ignore[reportPossiblyUnboundVariable]
    with torch.no_grad():
        states, _ = run_target(target, ids, Passes())
        (wanted,) = target.head(target.model.norm(states.unflatten(0, ids.shape)))
    assert torch.equal(slots.wanted[:, 0], wanted[:, first : first + drafts])


def drafted_behind(
    name: str, target: Target, drafter: torch.nn.Module, before: torch.Tensor, known: torch.Tensor, drafts: int
) -> torch.Tensor:
    """Logits ``[rows, K, vocabulary]`` of drafts behind ``before`` and an anchor, ``known`` being anchor and drafts."""
    rows, length = before.shape
    asked: list[torch.Tensor] = []

    def choose(logits: torch.Tensor, first: int) -> tuple[torch.Tensor, None]:
        asked.append(logits)
        return known[:, first + 1 : first + 1 + logits.shape[1]], None

    context = KINDS[name].context(target, drafter, rows, length + 2 * drafts)
    with torch.no_grad():
        _, features = run_target(target, before, Passes())
        following = torch.cat([before[:, 1:], known[:, :1]], 1)
        context.fold(Ran(features, torch.arange(length).expand(rows, -1), following))
        context.draft(known[:, 0], torch.full((rows,), length), choose)
    return torch.cat(asked, 1)


@pytest.mark.parametrize("name", ["dflash", "dspark"])
def test_a_slot_in_raw_text_is_trained_on_what_the_target_would_write_there(name: str) -> None:
    recipe = replace(RECIPE, paths=True)
    target, drafter = random_pair(recipe.target, KINDS[name].config(recipe), 7, CPU)
    ids = torch.tensor([prompt(32, seed) for seed in (5, 6, 7)])
    with torch.no_grad():
        slots, told = (KINDS[name].slots(target, drafter, ids, own, recipe, Passes()) for own in (1, 3))
    drafts, zero = drafter.config.drafts, torch.zeros(3)
    for number, anchor in enumerate(range(16, 32 - drafts, recipe.stride)):
        path = generate(target, ids[:, : anchor + 1], drafts, zero, 0)[:, anchor + 1 :]
        assert torch.equal(slots.labels[1:, number], path[1:])
        with torch.no_grad():
            states, _ = run_target(target, torch.cat([ids[:, : anchor + 1], path], 1), Passes())
            (wanted,) = target.head(target.model.norm(states.unflatten(0, (3, -1))[:, anchor:-1]))
        assert distance(slots.wanted[1:, number], wanted[1:]) < NEAR[torch.float32]
    assert torch.equal(slots.labels[0], told.labels[0]) and torch.equal(slots.wanted[0], told.wanted[0])
    assert not torch.equal(slots.labels[1:], told.labels[1:])
    assert torch.equal(slots.hidden, told.hidden) == (name == "dflash"), "the head of the other reads the path"
    with torch.no_grad():
        text = KINDS[name].slots(target, drafter, ids, 1, replace(recipe, paths=False), Passes())
    assert torch.equal(text.labels, told.labels) and torch.equal(text.wanted, told.wanted), "else on the text itself"


@pytest.mark.parametrize("name", KINDS)
def test_the_evaluation_commits_what_plain_speculation_commits(name: str) -> None:
    """A vocabulary of four, so that drafts are accepted at all."""
    recipe = recipe_of(replace(LIKE_T1, vocabulary=4))
    target, drafter = random_pair(recipe.target, KINDS[name].config(recipe), 7, CPU)
    rows = [prompt(20, seed, 4) for seed in (1, 2, 3)]
    _, committed, _ = speculate(target, drafter, torch.tensor(rows), 16)
    for row, tokens in enumerate(rows):
        if isinstance(drafter, Chain):
            steps = speculate_chain(target, drafter, tokens, 16 + 1)
        else:
            plain = PlainTarget(recipe.target, target.state_dict()), PlainDrafter(drafter.config, drafter.state_dict())
            _, steps = speculate_plain(*plain, tokens, 16 + 1)
        assert [count for count in committed[row].tolist() if count] == steps
    assert int(committed.max()) > 1


@torch.no_grad()
def speculate_chain(target: Target, drafter: Chain, prompt: list[int], count: int) -> list[int]:
    """Tokens committed by each step, everything computed anew from the whole text each time."""

    def told(tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        states, features = run_target(target, torch.tensor([tokens]), Passes())
        return target.head(target.model.norm(states))[0].argmax(-1), features

    choice, _ = told(prompt)
    line, steps = [*prompt, int(choice[-1])], []
    while len(line) - len(prompt) < count:
        drafts = chained(target, drafter, line, told(line[:-1])[1])
        choice, _ = told([*line, *drafts])
        wanted = choice[len(line) - 1 :].tolist()
        agreed = [draft == own for draft, own in zip(drafts, wanted, strict=False)]
        steps.append(1 + ([*agreed, False].index(False)))
        line += wanted[: steps[-1]]
    return steps


def chained(target: Target, drafter: Chain, line: list[int], features: torch.Tensor) -> list[int]:
    """Greedy drafts behind ``line``, of whose last token there are no features."""
    hidden, drafts = drafter.fuse(features), list[int]()
    for number in range(drafter.config.drafts):
        module = number if drafter.config.depth > 1 else 0
        ahead = torch.tensor([*line, *drafts])[1 + module :]
        x = drafter.enter(module, target.embed(ahead), hidden)
        state, _, _ = whole_cells(drafter.stack[module], x, *drafter.rotary.at(torch.arange(len(x))), 1)
        hidden = state if drafter.config.depth > 1 else torch.cat([hidden, state[-1:]])
        drafts.append(int(target.head(drafter.normed(module, state[-1:]))[0].argmax()))
    return drafts


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_learns_what_follows(trained_pair: Path, name: str) -> None:
    kind, recipe = KINDS[name], trained.RECIPE
    target = load_target(trained_pair / "target", kind.config(recipe).taps).requires_grad_(False)
    drafter = kind.module(kind.config(recipe))
    kind.begin(drafter, target, trained_pair / "nowhere", 4)
    optimiser = Optimiser(drafter, recipe.muon, recipe.drafter_adam)
    losses = []
    for step in range(16):
        ids = torch.from_numpy(trained.texts(recipe.drafter_rows, 48, 20_000 + step))
        loss, *_ = loss_behind(*kind.slots(target, drafter, ids, 4, recipe, Passes()), 0.8, recipe.slots)
        loss.backward()
        optimiser.step(1.0)
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_the_loss_weighs_each_slot_less_than_the_one_before_and_mixes_token_and_target() -> None:
    draw = torch.Generator().manual_seed(3)
    hidden, head = torch.randn(2, 3, 4, generator=draw), torch.randn(6, 4, generator=draw)
    labels, wanted = torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.randn(2, 3, 6, generator=draw)
    logits = (hidden @ head.T).double()
    wanted[:, 1:] = logits[:, 1:].float()
    wanted[1, 0] = logits[1, 0].float()
    wanted[0, 0] = -logits[0, 0].float()
    weight = torch.tensor([1.0, 0.6065306597, 0.3678794412]).double()  # exp(-(k - 1) / 2)
    likely, own = logits.log_softmax(-1), wanted.double().softmax(-1)
    token = sum(-likely[row, k, labels[row, k]] * weight[k] for row in range(2) for k in range(3)) / 2 / weight.sum()
    target = sum(-(own[row, k] * likely[row, k]).sum() * weight[k] for row in range(2) for k in range(3))
    loss, by_token, length = loss_behind(hidden, head, labels, wanted, 0.8, 2.0)
    assert by_token.item() == pytest.approx(float(token), rel=1e-5)
    assert loss.item() == pytest.approx(float(0.2 * token + 0.8 * target / 2 / weight.sum()), rel=1e-5)
    assert length.item() == 1 + (0 + 3) / 2, "what follows a wrong draft does not count"
