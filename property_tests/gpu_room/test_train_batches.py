"""What a drafter is trained and measured on: batches, what its target wrote, requests that are held out."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_backend.modules.target import Target, place_for_inference
from gpu_backend.train.chat import Chat, cut_requests
from gpu_backend.train.drafter_stage import batch
from gpu_backend.train.generate import generate
from gpu_backend.train.optimiser import start
from gpu_backend.train.recipe import TINY
from gpu_backend.train.session import Order, Session, Texts, seed_of
from gpu_backend.train.written import sequences

CPU = torch.device("cpu")


@pytest.mark.parametrize("joined", [1, 2])
def test_a_batch_is_what_the_target_wrote_and_behind_it_as_much_raw_text_as_the_recipe_says(joined: int) -> None:
    recipe = replace(TINY, drafter_rows=8, raw=0.25, stride=4)
    written = torch.arange(5 * 16, dtype=torch.int32).view(5, 16)  # an id tells its sequence and its place
    texts = Texts(np.arange(1000, 2000), CPU, Path("ids"))
    begun, drawn = set[int](), set[int]()
    for step in range(24):
        ids, own = batch(written, texts, recipe, 1, step, joined)
        assert ids.shape == (8 // joined, 12 * joined) and own == 6 // joined
        parts, raw = ids[:own].view(6, 12), ids[own:]
        assert parts.max() < 80 and raw.min() >= 1000
        assert (parts.diff() == 1).all() and (raw.diff() == 1).all(), "whole pieces of one sequence or text"
        (first,) = set((parts[:, 0] % 16).tolist())
        begun.add(first)
        drawn |= set((parts[:, 0] // 16).tolist())
    assert begun == {0, 1, 2, 3}, "a grid of anchors meets every place"
    assert drawn == {0, 1, 2, 3, 4}


def test_every_sequence_of_a_round_is_written_at_a_temperature_of_its_own(tmp_path: Path) -> None:
    recipe = replace(TINY, on_policy=6, new=8)
    target = Target(recipe.target)
    start(target, recipe.target.layers, 1)
    target.model.norm.weight.data.mul_(10)  # so sure that a temperature counts
    place_for_inference(target, CPU, torch.float32)
    texts = Texts(np.arange(2000) % 512, CPU, Path("ids"))
    written = sequences(target, texts, Session("drafter", Order(tmp_path, 60, None, 1, CPU), (), print), recipe)
    seed = seed_of(1, 0, 1)
    prompts = texts.crops(6, recipe.prompt, seed)
    assert recipe.temperatures == (0.0, 0.0, 0.6, 1.0)
    for temperature, rows in ((0.0, [0, 1, 4, 5]), (0.6, [2]), (1.0, [3])):
        all_alike = generate(target, prompts, recipe.new, torch.full((6,), temperature), seed)
        assert (written == all_alike).all(1).nonzero().flatten().tolist() == rows


def test_requests_are_heads_of_held_out_files_then_what_follows_them_and_each_has_the_next_kind() -> None:
    chat = Chat((((50,), (60,)), ((51,), (61, 62))), ((), ()), control=(9,))
    held = {  # 0 ends the file before
        "b": np.array([0, 20, 21, 22, 23]),
        "a": np.array([0, 10, 11, 12, 13, 14, 15]),
        "c": np.array([0, 9, 31, 32]),  # with a word of a dialogue's frame
    }
    found = cut_requests(chat, held, 5, 8)
    assert [(one["file"], one["first"], one["ids"], one["end"]) for one in found] == [
        ("a", 1, [50, 10, 11, 12, 60], 1), ("b", 1, [51, 20, 21, 61, 62], 2),
        ("a", 4, [50, 13, 14, 15, 60], 1), ("b", 3, [51, 22, 23, 61, 62], 2),
    ]  # fmt: skip
    for one in found:
        assert hashlib.sha256(np.array(one["ids"], dtype="<u2").tobytes()).hexdigest().startswith(one["name"])
    assert cut_requests(chat, held, 5, 3) == found[:3]
