"""Unmodified ``transformers`` and PyPI's ``dflash`` read the same folders: logits, drafts, tokens and traces are equal.

Collected where both are installed (checked with transformers 5.24.0 and dflash 0.1.0).
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
# No target installs either.

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import dflash.model
import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from gpu_backend.modules.config import TargetConfig
from gpu_backend.modules.drafters import in_blocks
from gpu_backend.modules.loader import load_pair
from gpu_backend.modules.own_pages import OwnPages
from gpu_backend.modules.plain import PlainDrafter, PlainTarget
from gpu_backend.modules.saver import save
from gpu_backend.modules.speculate import speculate_plain
from gpu_backend.modules.tier0 import TINY, drafter_for, random_drafter, random_target
from property_tests.gpu_room.pairs import NEAR, distance, prompt

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
FEW = replace(TINY, layers=6, vocabulary=6)  # words, so that random drafts are right now and then
SHAPES = {
    "qwen": (FEW, (20, 20)),
    "sliding layers, tied": (replace(FEW, windows=(None, 24) * 3, tied=True), (None, 9)),
    "llama": (replace(FEW, qk_norm=False), (20, 20)),
    "many words": (replace(TINY, layers=6), (8, 8)),
}


@pytest.mark.parametrize(("config", "windows"), SHAPES.values(), ids=SHAPES)
def test_both_libraries_find_what_the_modules_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: TargetConfig, windows: tuple[int | None, ...]
) -> None:
    drafter_config = replace(drafter_for(config), windows=windows)
    save(tmp_path / "target", random_target(config, 3, drafter_config.taps), config)
    save(tmp_path / "drafter", random_drafter(drafter_config, 3), drafter_config)
    theirs: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "target", dtype=torch.float32).eval()
    their_drafter: Any = dflash.model.DFlashDraftModel.from_pretrained(tmp_path / "drafter", dtype=torch.float32).eval()
    target, drafter = load_pair(tmp_path / "target", tmp_path / "drafter", "cpu")
    tokens = prompt(50, 1, config.vocabulary)
    with torch.no_grad():
        wanted = theirs(torch.tensor([tokens]), output_hidden_states=True)
    features = torch.cat([wanted.hidden_states[layer + 1][0] for layer in drafter_config.taps], -1)
    pages = OwnPages(target, in_blocks(drafter), 1, 160, 16)
    output = pages.run([0], [tokens])
    pages.settle([0], [50], [50], output)
    assert distance(output.logits, wanted.logits[0]) < NEAR[torch.float32]
    assert distance(output.features, features) < NEAR[torch.float32]
    anchor = int(output.logits[-1].argmax())
    block = torch.tensor([anchor, *[drafter_config.mask_token] * (drafter_config.block - 1)])
    with torch.no_grad():
        hidden = their_drafter(
            target_hidden=features[None], noise_embedding=theirs.get_input_embeddings()(block)[None],
            position_ids=torch.arange(50 + len(block))[None], past_key_values=DynamicCache(),
        )  # fmt: skip
        drafted = theirs.lm_head(hidden)[0, 1:]
    assert distance(pages.draft([0], [anchor])[0], drafted) < NEAR[torch.float32]
    monkeypatch.setattr(dflash.model, "_cuda_time", time.perf_counter)  # its statistics wait for a GPU
    done = dflash.model.dflash_generate(
        their_drafter, theirs, torch.tensor([tokens]), 60, None, 0.0, return_stats=True
    )  # fmt: skip
    plain = PlainTarget(config, target.state_dict()), PlainDrafter(drafter_config, drafter.state_dict())
    found, steps = speculate_plain(*plain, tokens, 60)
    assert done.output_ids[0, 50:].tolist() == found[:60]
    assert done.acceptance_lengths[:-1] == steps[: len(done.acceptance_lengths) - 1], "but the last, cut at the end"
