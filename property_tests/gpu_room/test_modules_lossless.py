"""LOSSLESS: outputs equal plain decoding, ties aside, and what is no tie is told."""

from __future__ import annotations

import pytest
import torch

from gpu_backend.modules.config import TargetConfig
from gpu_backend.modules.own_pages import greedy_cold
from gpu_backend.modules.speculate import greedy_plain, lossless
from gpu_backend.modules.tier0 import SMALL, TINY
from gpu_backend.modules.verify import TIED, differences, verify
from property_tests.gpu_room.pairs import Pair, make_pair, prompt

VOCABULARY = 50


def by_rows(drafts: list[list[int]], choices: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Drafts and logits whose greedy choices are ``choices``."""
    logits = torch.zeros(len(choices), len(choices[0]), VOCABULARY)
    logits.scatter_(2, torch.tensor(choices)[..., None], 1.0)
    return logits, torch.tensor(drafts)


def test_the_longest_agreeing_run_is_accepted_and_the_bonus_behind_it() -> None:
    logits, drafts = by_rows(
        [[4, 5, 6], [4, 5, 6], [4, 9, 6], [9, 5, 6]], [[4, 5, 6, 7], [4, 5, 8, 7], [4, 5, 6, 7], [4, 5, 6, 7]]
    )
    verdict = verify(logits, drafts)
    assert verdict.accepted.tolist() == [4, 3, 2, 1]
    assert verdict.anchor.tolist() == [7, 8, 5, 4]
    committed = [row[:count] for row, count in zip(verdict.choice.tolist(), [4, 3, 2, 1], strict=True)]
    assert committed == [[4, 5, 6, 7], [4, 5, 8], [4, 5], [4]]


def test_of_equal_logits_the_smaller_token_is_chosen() -> None:
    logits = torch.zeros(1, 2, VOCABULARY)
    assert verify(logits, torch.tensor([[0]])).choice.tolist() == [[0, 0]]


def test_a_plain_step_has_no_drafts() -> None:
    logits, _ = by_rows([[]], [[9]])
    verdict = verify(logits, torch.zeros(1, 0, dtype=torch.int64))
    assert (verdict.accepted.tolist(), verdict.anchor.tolist()) == ([1], [9])


def test_a_difference_is_a_tie_within_the_tolerance_of_its_dtype_and_never_in_exact_mode() -> None:
    logits = torch.zeros(4, VOCABULARY, dtype=torch.float64)
    logits[:, 3] = 8.0
    for row, share in enumerate((0.0, 0.4, 0.9, 1.1)):
        logits[row, 5] = 8.0 * (1 - share * TIED[torch.bfloat16])
    logits[0, 5] = 8.0
    found = differences(logits, [5, 5, 5, 5], torch.bfloat16)
    assert [(one.index, one.found, one.wanted, one.tied) for one in found] == [
        (0, 5, 3, True),
        (1, 5, 3, True),
        (2, 5, 3, True),
        (3, 5, 3, False),
    ]
    assert [one.tied for one in differences(logits, [5, 5, 5, 5], torch.float32)] == [True, False, False, False]
    assert not any(one.tied for one in differences(logits, [5, 5, 5, 5], torch.bfloat16, exact=True))
    assert differences(logits, [3, 3, 3, 3], torch.float32) == []


def speculated(pair: Pair, tokens: list[int], count: int, *, spoil: int | None = None) -> list[int]:
    """Output by drafting; drafts come from plain decoding, one of three wrong, so that rows are cut everywhere.

    ``spoil``: after so many tokens the first page of the prompt is replaced by another request's.
    """
    sure = greedy_plain(pair.plain_target, tokens, count + 8)
    pages = pair.pages(2, longest=len(tokens) + count + 8)
    output = [int(pages.prefill(0, tokens, chunk=19).argmax())]
    pages.prefill(1, prompt(len(tokens), 99))
    while len(output) < count:
        if spoil is not None and len(output) >= spoil:
            pages.of_target.tables[0][0, 0] = pages.of_target.tables[0][1, 0]
        drafts = sure[len(output) : len(output) + 3]
        drafts[len(output) % 3] ^= 1
        ran = pages.run([0], [[output[-1], *drafts]])
        verdict = verify(ran.logits[None], torch.tensor([drafts], device=ran.logits.device))
        accepted = int(verdict.accepted)
        pages.settle([0], [accepted], [4], ran)
        output += verdict.choice[0, :accepted].tolist()
    return output[:count]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_an_output_by_verify_rows_is_plain_decoding_but_for_ties(device: torch.device, dtype: torch.dtype) -> None:
    pair = make_pair(device, dtype=dtype)
    tokens = prompt(40)
    output = speculated(pair, tokens, 48)
    found = lossless(pair.plain_target, tokens, output)
    assert all(one.tied for one in found)
    if dtype is torch.float32:
        assert output == greedy_plain(pair.plain_target, tokens, 48)
    assert len(set(output)) > 24


def test_in_exact_mode_the_output_is_cold_decoding_token_by_token(device: torch.device) -> None:
    pair = make_pair(device, dtype=torch.bfloat16, exact=True)
    tokens = prompt(40)
    assert speculated(pair, tokens, 40) == greedy_cold(pair.target, tokens, 40, 16)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_foreign_page_is_no_tie(device: torch.device, dtype: torch.dtype) -> None:
    pair = make_pair(device, dtype=dtype)
    tokens = prompt(40)
    output = speculated(pair, tokens, 48, spoil=16)
    found = lossless(pair.plain_target, tokens, output)
    assert any(not one.tied for one in found)
    assert min(one.index for one in found if not one.tied) >= 16


@pytest.mark.parametrize("config", [TINY, SMALL], ids=["tiny", "small"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_logits_err_by_less_than_the_tolerance_of_a_tie(
    device: torch.device, config: TargetConfig, dtype: torch.dtype
) -> None:
    """The tolerance is measured: against float64 of the same weights, the worst logit of each row."""
    pair = make_pair(device, config, dtype=dtype)
    tokens = prompt(64, 3)
    wanted, _ = pair.plain(tokens)
    found = pair.pages().run([0], [tokens]).logits
    chosen = found.argmax(-1)
    missed = differences(wanted, chosen.tolist(), dtype)
    assert all(one.tied for one in missed)
    error = ((found.double() - wanted).abs().amax(-1) / wanted.abs().amax(-1)).max()
    assert TIED[dtype] / 64 < float(error) < TIED[dtype]
