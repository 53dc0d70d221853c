"""DSpark's heads: a block is drafted slot by slot, each slot behind the draft chosen before it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpu_backend.acceptance.draws import mix
from gpu_backend.acceptance.rules import Rule, Sampling
from gpu_backend.modules.config import DrafterConfig
from gpu_backend.modules.markov import FORMS, MarkovHead, draft_slots
from gpu_backend.modules.plain import DenseCache
from gpu_backend.modules.speculate import cold_context, greedy_plain, speculate_plain
from gpu_backend.modules.tier0 import TINY, drafter_for, fill
from property_tests.gpu_room.pairs import NEAR, Pair, distance, make_pair, prompt

FEW = replace(TINY, vocabulary=5)
K = 3


def dspark(form: str = "vanilla", *, vocabulary: int = TINY.vocabulary, confidence: str = "") -> DrafterConfig:
    """A block of K that its anchor opens, with a head of ``form``."""
    shape = drafter_for(replace(TINY, vocabulary=vocabulary), block=K, window=20, logits_start=0, markov_rank=8)
    return replace(shape, markov=form, confidence=confidence)


def blocks_of(pair: Pair, tokens: list[int], anchor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits ``[K, vocabulary]`` of one block: of the paged drafter and of the plain one."""
    pages = pair.pages()
    pages.prefill(0, tokens)
    context = DenseCache(pair.drafter.config.layers)
    for layer, rows in enumerate(cold_context(pair.plain_target, pair.plain_drafter, tokens)):
        context.put(layer, *rows)
    return pages.draft([0], [anchor])[0], pair.plain_drafter.block(anchor, context, pair.plain_target)


@pytest.mark.parametrize("form", FORMS)
def test_a_block_equals_plain_and_hangs_on_the_drafts_before_each_slot(device: torch.device, form: str) -> None:
    pair = make_pair(device, TINY, dspark(form))
    found, wanted = blocks_of(pair, prompt(33), 7)
    assert distance(found, wanted) < NEAR[torch.float32]
    drafts, head = found.argmax(-1), pair.drafter.markov_head
    assert head is not None
    hidden = torch.zeros(1, K, TINY.hidden, device=device)
    previous = torch.tensor([[7, *drafts[:-1].tolist()]], device=device)
    others = (previous + torch.tensor([0, 1, 0], device=device)) % TINY.vocabulary
    bias, other = head.block_bias(hidden, previous)[0], head.block_bias(hidden, others)[0]
    assert torch.equal(bias[0], other[0]) and not torch.equal(bias[1], other[1])
    assert torch.equal(bias[2], other[2]) == (form != "rnn"), "a state remembers, an embedding does not"


@pytest.mark.parametrize("form", FORMS)
def test_known_tokens_give_the_logits_that_drafting_gives(device: torch.device, form: str) -> None:
    """What training asks for: all slots at once, behind given tokens."""
    pair = make_pair(device, TINY, dspark(form))
    hidden = torch.randn(4, K, TINY.hidden, generator=torch.Generator().manual_seed(2)).to(device)
    anchor = torch.tensor([3, 9, 200, 511], device=device)
    head, drafter = pair.target.head_weight, pair.drafter
    drafted = draft_slots(drafter.markov_head, hidden, hidden @ head.T, anchor, lambda x, _: (x.argmax(-1), None))
    previous = torch.cat([anchor[:, None], drafted.token[:, :-1]], 1)
    assert distance(drafter.logits_of(hidden, previous, head), drafted.logits) < NEAR[torch.float32]
    twice = drafter.logits_of(hidden.unflatten(0, (2, 2)), previous.unflatten(0, (2, 2)), head)
    assert distance(twice.flatten(0, 1), drafted.logits) < NEAR[torch.float32]


@pytest.mark.parametrize("form", FORMS)
def test_tokens_and_accept_traces_equal_plain_speculation(device: torch.device, form: str) -> None:
    pair = make_pair(device, FEW, dspark(form, vocabulary=5))
    tokens, pages = prompt(30, 30, 5), pair.pages()
    output, steps = [int(pages.prefill(0, tokens).argmax())], list[int]()
    while len(output) < 24:
        verdict, _ = pages.speculate([0], [output[-1]])
        steps.append(int(verdict.accepted[0]))
        output += verdict.choice[0, : steps[-1]].tolist()
    assert (output, steps) == speculate_plain(pair.plain_target, pair.plain_drafter, tokens, 24)
    assert output[:24] == greedy_plain(pair.plain_target, tokens, 24)
    assert {1, 2} <= set(steps)


@pytest.mark.parametrize("rank", [0, 8])
def test_a_drafter_of_fewer_words_drafts_these_alone(device: torch.device, rank: int) -> None:
    """By a head of its own; the first token of a draft, and the head's memory of it, are the target's ids."""
    config = drafter_for(FEW, block=K, window=20, logits_start=0, markov_rank=rank)
    pair = make_pair(device, FEW, replace(config, drawn=2))
    found, wanted = blocks_of(pair, prompt(33, 1, 5), 4)
    never = torch.tensor([1, 3, 4], device=device)  # the others stand at even places, two apart
    assert bool(found[:, never].isneginf().all() and wanted[:, never].isneginf().all())
    assert distance(found[:, ::2][:, :2], wanted[:, ::2][:, :2]) < NEAR[torch.float32]
    tokens, pages = prompt(30, 30, 5), pair.pages()
    output, steps = [int(pages.prefill(0, tokens).argmax())], list[int]()
    while len(output) < 20:
        verdict, _ = pages.speculate([0], [output[-1]])
        steps.append(int(verdict.accepted[0]))
        output += verdict.choice[0, : steps[-1]].tolist()
    assert (output, steps) == speculate_plain(pair.plain_target, pair.plain_drafter, tokens, 20)
    assert output[:20] == greedy_plain(pair.plain_target, tokens, 20) and len(set(steps)) > 1


@pytest.mark.parametrize("form", FORMS)
def test_exact_rows_are_drafted_alike_in_any_batch(device: torch.device, form: str) -> None:
    pair = make_pair(device, TINY, dspark(form), exact=True)
    pages = pair.pages(3)
    for row, length in enumerate((5, 40, 31)):
        pages.prefill(row, prompt(length, length))
    found = pages.draft([2, 0, 1], [9, 8, 7])
    for place, (row, anchor) in enumerate(((2, 9), (0, 8), (1, 7))):
        assert torch.equal(found[place], pages.draft([row], [anchor])[0])


@pytest.mark.parametrize("never", [[], [1]], ids=["all words", "fewer words"])
@pytest.mark.parametrize("rule", [Rule.TOKEN, Rule.BLOCK, Rule.MATCH])
def test_what_is_committed_behind_chained_drafts_is_distributed_as_plain_sampling(rule: Rule, never: list[int]) -> None:
    """Chi-square of the first two tokens, bound at 5 standard deviations; q of a slot hangs on the draft before it.

    Words that are ``never`` drafted are committed as often as any.
    """
    size, rows = 4, 16_000
    draw, sampling = torch.Generator().manual_seed(5), Sampling(rule, 0.8, 11)
    target, offer = torch.randn(size, size, generator=draw), torch.randn(1, 1, size, generator=draw)
    offer[..., never] = float("-inf")
    head = fill(MarkovHead(replace(dspark(), vocabulary=size)), 2, "small")
    request, start = mix(torch.arange(rows)), torch.ones(rows, dtype=torch.int64)
    anchor, line = torch.zeros(rows, dtype=torch.int64), torch.zeros(rows, 2 * K + 4, dtype=torch.int64)
    place, lengths = torch.arange(K + 1), []
    for _ in range(2):
        drafted = draft_slots(
            head, offer.new_zeros(rows, K, TINY.hidden), offer.expand(rows, K, -1), anchor,
            lambda logits, first, at=start: sampling.draft(logits, request, at, first),
        )  # fmt: skip
        told = torch.cat([anchor[:, None], drafted.token], 1)
        judged = sampling.verify(target[told], drafted.token, request, start, drafted.offered)
        at = start[:, None] + place
        line[anchor.new_tensor(range(rows))[:, None], at] = torch.where(
            place < judged.accepted[:, None], judged.choice, line[anchor.new_tensor(range(rows))[:, None], at]
        )
        start, anchor = start + judged.accepted, judged.anchor
        lengths.append(judged.accepted)
    spread = sampling.spread(target)
    expected = (spread[0][:, None] * spread).flatten() * rows
    found = torch.bincount(line[:, 1] * size + line[:, 2], minlength=size * size).double()
    free = size * size - 1
    assert float(((found - expected) ** 2 / expected).sum()) < free + 5 * (2 * free) ** 0.5
    assert 1.2 < float(torch.cat(lengths).double().mean()) < K + 1


def test_a_distribution_of_all_slots_at_once_would_be_noticed() -> None:
    """Slots that ignore the draft before them are drawn from another q than chained ones."""
    head = fill(MarkovHead(replace(dspark(), vocabulary=4)), 2, "small")
    hidden = torch.zeros(1, 1, TINY.hidden)
    first, second = (head.block_bias(hidden, torch.tensor([[one]])).detach() for one in (0, 1))
    assert float((first.softmax(-1) - second.softmax(-1)).abs().sum()) > 0.1


@pytest.mark.parametrize("confidence", ["hidden", "markov"])
def test_a_confidence_head_gives_each_draft_a_chance(device: torch.device, confidence: str) -> None:
    pair = make_pair(device, TINY, dspark(confidence=confidence))
    hidden = torch.randn(2, K, TINY.hidden, generator=torch.Generator().manual_seed(2)).to(device)
    anchor, token = torch.tensor([3, 9], device=device), torch.tensor([[4, 5, 6], [4, 4, 4]], device=device)
    found = pair.drafter.confidence(hidden, anchor, token)
    weights = pair.drafter.state_dict()
    before = torch.tensor([[3, 4, 5], [9, 4, 4]], device=device)
    read = weights["markov_head.markov_w1.weight"][before]
    features = hidden if confidence == "hidden" else torch.cat([hidden, read], -1)
    proj = weights["confidence_head.proj.weight"][0].double(), weights["confidence_head.proj.bias"].double()
    wanted = 1 / (1 + (-(features.double() @ proj[0] + proj[1])).exp())
    assert found is not None and distance(found, wanted) < NEAR[torch.float32]
    assert 0 < float(found.min()) < float(found.max()) < 1
