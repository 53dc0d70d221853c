"""Unmodified ``transformers`` and PyPI's ``dflash`` read the same folders: logits, drafts, tokens and traces are equal.

Collected where both are installed (checked with transformers 5.24.0 and dflash 0.1.0). ``KVTWIN_PAIR=DIR`` adds the
pair in ``DIR/target`` and ``DIR/drafter``, which has to be in the packaging of z-lab, the one that ``dflash`` reads.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
# No target installs either.

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import dflash.model
import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from gpu_backend.acceptance.texts import open_texts
from gpu_backend.modules.config import TargetConfig
from gpu_backend.modules.drafter import Drafter
from gpu_backend.modules.drafters import in_blocks
from gpu_backend.modules.loader import load_pair, target_config_of
from gpu_backend.modules.own_pages import OwnPages
from gpu_backend.modules.plain import PlainDrafter, PlainTarget
from gpu_backend.modules.saver import save
from gpu_backend.modules.speculate import speculate_plain
from gpu_backend.modules.target import Target
from gpu_backend.modules.tier0 import TINY, drafter_for, random_drafter, random_target
from property_tests.gpu_room.pairs import NEAR, distance, prompt

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
FEW = replace(TINY, layers=6, vocabulary=6)  # words, so that random drafts are right now and then
SHAPES = {
    "qwen": (FEW, (20, 20)),
    "sliding layers, tied": (replace(FEW, windows=(None, 24) * 3, tied=True), (None, 9)),
    "llama": (replace(FEW, qk_norm=False), (20, 20)),
    "causal where it slides": (FEW, (None, 9)),
    "many words": (replace(TINY, layers=6), (8, 8)),
}


CAUSAL = {"causal where it slides": (False, True)}
PAIR = os.environ.get("KVTWIN_PAIR")
LENGTH, MORE, PROMPTS = 300, 64, 4  # of a given pair: tokens of a prompt and of its output, and prompts


def random(
    folder: Path, config: TargetConfig, windows: tuple[int | None, ...], causal: tuple[bool, ...]
) -> tuple[Path, list[list[int]], int]:
    """A random pair in ``folder``, one prompt, and how many tokens to write."""
    drafter_config = replace(drafter_for(config), windows=windows, causal=causal)
    save(folder / "target", random_target(config, 3, drafter_config.taps), config)
    save(folder / "drafter", random_drafter(drafter_config, 3), drafter_config)
    return folder, [prompt(50, 1, config.vocabulary)], 60


def given(folder: Path) -> tuple[Path, list[list[int]], int]:
    """The pair in ``folder``, prompts of its own text if it has a tokenizer, and how many tokens to write."""
    vocabulary = target_config_of(folder / "target").vocabulary
    texts = open_texts(folder, vocabulary)
    if texts is None:
        return folder, [prompt(LENGTH, seed, vocabulary) for seed in range(PROMPTS)], MORE
    return folder, [texts.run(place * len(texts.ids) // PROMPTS, LENGTH).tolist() for place in range(PROMPTS)], MORE


CASES: dict[str, Callable[[Path], tuple[Path, list[list[int]], int]]] = {
    name: partial(random, config=config, windows=windows, causal=CAUSAL.get(name, ()))
    for name, (config, windows) in SHAPES.items()
}
if PAIR:
    CASES[PAIR] = lambda _, folder=Path(PAIR): given(folder)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_both_libraries_find_what_the_modules_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Callable[[Path], tuple[Path, list[list[int]], int]]
) -> None:
    folder, prompts, count = case(tmp_path)
    steps = libraries_agree(folder, prompts, count, monkeypatch)
    print(f"{folder}: {len(prompts)} requests equal, {sum(steps)} tokens in {len(steps)} steps")


def libraries_agree(
    folder: Path, prompts: list[list[int]], count: int, monkeypatch: pytest.MonkeyPatch
) -> list[int]:  # fmt: skip
    """Hold a pair in float32 to both libraries: features and drafts behind the first of ``prompts``, then ``count``
    greedy tokens and the accept trace behind each. Returns what all steps committed."""
    theirs: Any = AutoModelForCausalLM.from_pretrained(folder / "target", dtype=torch.float32).eval()
    their_drafter: Any = dflash.model.DFlashDraftModel.from_pretrained(folder / "drafter", dtype=torch.float32).eval()
    target, drafter = load_pair(folder / "target", folder / "drafter", "cpu", dtype=torch.float32)
    drafter = in_blocks(drafter)
    _one_block(target, drafter, theirs, their_drafter, prompts[0])
    monkeypatch.setattr(dflash.model, "_cuda_time", time.perf_counter)  # its statistics wait for a GPU
    plain = PlainTarget(target.config, target.state_dict()), PlainDrafter(drafter.config, drafter.state_dict())
    committed: list[int] = []
    for tokens in prompts:
        spare = drafter.config.block  # their blocks become shorter ahead of the last token, and draft otherwise
        done = dflash.model.dflash_generate(
            their_drafter, theirs, torch.tensor([tokens]), count + spare, None, 0.0, return_stats=True
        )  # fmt: skip
        found, steps = speculate_plain(*plain, tokens, count)
        assert done.output_ids[0, len(tokens) :][:count].tolist() == found[:count]
        assert done.acceptance_lengths[: len(steps)] == steps
        committed += steps
    return committed


def _one_block(target: Target, drafter: Drafter, theirs: Any, their_drafter: Any, tokens: list[int]) -> None:
    """Logits and features of a prompt, and the block behind it, on pages and in both libraries."""
    length = len(tokens)
    with torch.no_grad():
        wanted = theirs(torch.tensor([tokens]), output_hidden_states=True)
    features = torch.cat([wanted.hidden_states[layer + 1][0] for layer in drafter.config.taps], -1)
    pages = OwnPages(target, drafter, 1, length + 32, 16)
    output = pages.run([0], [tokens])
    pages.settle([0], [length], [length], output)
    assert distance(output.logits, wanted.logits[0]) < NEAR[torch.float32]
    assert distance(output.features, features) < NEAR[torch.float32]
    anchor = int(output.logits[-1].argmax())
    block = torch.tensor([anchor, *[drafter.config.mask_token] * (drafter.config.block - 1)])
    with torch.no_grad():
        hidden = their_drafter(
            target_hidden=features[None], noise_embedding=theirs.get_input_embeddings()(block)[None],
            position_ids=torch.arange(length + len(block))[None], past_key_values=DynamicCache(),
        )  # fmt: skip
        drafted = theirs.lm_head(hidden)[0, 1:]
    assert distance(pages.draft([0], [anchor])[0], drafted) < NEAR[torch.float32]
