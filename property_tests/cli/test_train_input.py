"""What a training refuses in one line, and the weights that it finds again wherever it was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gpu_backend.train import drafter_stage, target_stage
from gpu_backend.train.fit import ON_A_CPU
from gpu_backend.train.recipe import RECIPES, TINY
from gpu_backend.train.session import Order
from property_tests.cli.conftest import Command

SIZE = ("--size", "tiny")
HERE = ("--device", "cpu", "--out", "t")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the tokens of a tiny training, of chance."""
    tokens, corpus = tmp_path / "t/tokens", tmp_path / "t/corpus"
    tokens.mkdir(parents=True)
    corpus.mkdir()
    ids = np.random.default_rng(1).integers(0, TINY.target.vocabulary, 4000).astype(np.uint16)
    np.save(tokens / "train.npy", ids)
    np.save(tokens / "held.npy", ids[:500])
    (tokens / "prompts.json").write_text("[]")
    (tokens / "tokens.json").write_text(json.dumps({"vocabulary": TINY.target.vocabulary}))
    (tokens / "tokenizer.json").write_text("")
    (corpus / "train.txt").write_text("a = 1\n")
    (corpus / "held.txt").write_bytes(b"json.py\0b = 2\n")
    (tmp_path / "file").write_text("")
    return tmp_path / "t"


BAD = {
    "an empty file of ids": (("target", *SIZE), "train.npy: is not an array of ids"),
    "ids of a larger size": (("target", "--size", "t1"), "vocabulary: expected 4096 ids, as this --size has"),
    "ids of another size for a drafter": (("drafter", "--size", "t1"), "as this --size has, found 512"),
    "ids of another size to be evaluated": (("evaluate", "--size", "t1"), "as this --size has, found 512"),
    "no prompts": (("evaluate", *SIZE), "prompts.json: expected prompts of 32 tokens, found none"),
    "an empty tokenizer": (("tokenizer", *SIZE), "tokenizer.json: is not a tokenizer"),
    "a seed that fits no generator": (("target", *SIZE, "--seed", "99999999999999999999"), "'--seed'"),
    "a folder below a file": (
        ("corpus", *SIZE, "--out", "file/t"),
        "file: expected a folder to write to",
    ),
    "an unknown kind of drafter": (("drafter", *SIZE, "--kind", "medusa"), "'medusa' is not one of 'dflash', 'dspark'"),
    "a kind of a target": (("target", *SIZE, "--kind", "mtp"), "expected --kind only for drafter, found target"),
    "seconds of a corpus": (
        ("corpus", *SIZE, "--seconds", "1"),
        "--schedule only for target and drafter, found corpus",
    ),
    "seconds of a tokenizer": (("tokenizer", *SIZE, "--seconds", "1"), "found tokenizer"),
    "a schedule of an evaluation": (("evaluate", *SIZE, "--schedule", "1"), "found evaluate"),
}


@pytest.mark.parametrize(("words", "told"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line(kvtwin: Command, folder: Path, words: tuple[str, ...], told: str) -> None:
    if "train.npy" in told:
        (folder / "tokens/train.npy").write_bytes(b"")
    if "prompts.json" not in told:
        (folder / "tokens/prompts.json").write_text(json.dumps([{"ids": [0] * 32}]))
    answer = kvtwin("train", words[0], *HERE, *words[1:])
    assert answer.code == 2, answer.err
    assert told in answer.err and answer.err.count("\n") == 1


TRAINS = "import sys; from gpu_backend.train.lock import *\nwith locked(Path('t')): print(flush=True); sys.stdin.read()"


def test_a_second_training_in_a_folder_ends_at_once_until_the_first_one_does_be_it_killed(
    kvtwin: Command, folder: Path
) -> None:
    path = {"PYTHONPATH": str(Path(drafter_stage.__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", TRAINS], stdin=PIPE, stdout=PIPE, env=os.environ | path) as first:
        assert first.stdout is not None and first.stdout.readline() == b"\n"
        files = sorted(folder.rglob("*"))
        for stage in ("corpus", "tokenizer", "target", "drafter", "evaluate"):
            answer = kvtwin("train", stage, *SIZE, *HERE)
            told = "kvtwin: t: expected a free folder, found a training that runs in it\n"
            assert (answer.code, answer.err) == (2, told)
        assert sorted(folder.rglob("*")) == files
        first.kill()
    answer = kvtwin("train", "evaluate", *SIZE, *HERE)
    assert "prompts.json: expected prompts of 32 tokens, found none" in answer.err


def test_texts_that_no_stage_wrote_are_not_replaced(kvtwin: Command, folder: Path) -> None:
    answer = kvtwin("train", "corpus", *SIZE, *HERE)
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "t/corpus/train.txt: expected the file on manifest.json, or none: `kvtwin train corpus`" in answer.err
    assert (folder / "corpus/train.txt").read_text() == "a = 1\n"


def test_a_size_whose_steps_do_not_fit_a_cpus_memory_is_refused_there(
    kvtwin: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert RECIPES["t1"].target_rows * RECIPES["t1"].target_length > ON_A_CPU
    kvtwin("train", "target", *SIZE, *HERE, "--seconds", "0.1")
    monkeypatch.setattr("gpu_backend.train.fit.ON_A_CPU", 8)  # now a step of the smallest size is too large as well
    for stage in ("target", "drafter"):
        answer = kvtwin("train", stage, *SIZE, *HERE, "--seconds", "0.1")
        assert (answer.code, answer.err.count("\n")) == (2, 1)
        assert "device: expected a GPU for steps of " in answer.err
    assert (folder / "target/progress.json").exists() and not (folder / "drafter").exists()


def test_weights_are_found_wherever_a_run_was_killed_and_by_the_right_size_alone(kvtwin: Command, folder: Path) -> None:
    def steps() -> int:
        answer = kvtwin("train", "target", *SIZE, *HERE, "--seconds", "0.1", "--json")
        return answer.json()["steps"]

    once = steps()
    (folder / "target").rename(folder / "target.old")  # killed before the new weights had their name
    assert steps() > once
    (folder / "target").rename(folder / "target.part")  # the same, with the new ones whole
    drafted = kvtwin("train", "drafter", *SIZE, *HERE, "--seconds", "0.1")
    assert (folder / "target/progress.json").exists() and "expected what `kvtwin train corpus` writes" in drafted.err
    assert (folder / "drafter/progress.json").exists(), "only the card lacks its corpus"
    (folder / "tokens/tokens.json").write_text(json.dumps({"vocabulary": 4096}))
    progress = json.loads((folder / "target/progress.json").read_text())
    assert progress["runs"][0]["recipe"].keys() == {
        "target_rows", "target_length", "muon", "target_adam", "target_decay", "target_shape",
    }  # fmt: skip
    for stage in ("target", "drafter"):
        answer = kvtwin("train", stage, "--size", "t1", *HERE)
        assert (answer.code, answer.err.count("\n")) == (2, 1)
        assert "config.json: expected the shape of this --size, found another" in answer.err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"ids": [1]}', "a list of prompts with ids"),
        ('[{"ids": ["a"]}]', "a list of prompts with ids"),
        ('[{"name": "a"}]', "a list of prompts with ids"),
        ('[{"ids": [1, 2]}, {"ids": [1]}]', "prompts of one length"),
    ],
)
def test_prompts_that_no_stage_left_are_one_line(kvtwin: Command, folder: Path, content: str, told: str) -> None:
    (folder / "tokens/prompts.json").write_text(content)
    answer = kvtwin("train", "evaluate", *SIZE, *HERE)
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert f"prompts.json: expected {told}" in answer.err


@pytest.mark.parametrize("content", ["[]", '{"model": "of a wheel"}', '{"steps": 1, "seconds": "2"}'])
def test_a_progress_that_no_run_can_go_on_from_is_one_line(kvtwin: Command, folder: Path, content: str) -> None:
    (folder / "target").mkdir()
    (folder / "target/progress.json").write_text(content)
    for schedule in ((), ("--schedule", "9")):
        answer = kvtwin("train", "target", *SIZE, *HERE, *schedule)
        assert answer.code == 2 and answer.err.count("\n") == 1
        assert "progress.json: expected steps, seconds, runs, curve, as `kvtwin train` leaves them" in answer.err


def test_ctrl_c_keeps_what_a_drafter_learnt_and_the_next_run_goes_on_with_what_was_written(
    kvtwin: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def third_is_cut(*arguments: Any) -> Any:
        asked.append(1)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return usual(*arguments)

    asked, usual = list[int](), drafter_stage.batch
    (folder / "corpus/manifest.json").write_text("{}")
    assert kvtwin("train", "target", *SIZE, *HERE, "--seconds", "0.1").code == 0
    with monkeypatch.context() as patch:
        patch.setattr(drafter_stage, "batch", third_is_cut)
        answer = kvtwin("train", "drafter", "--kind", "eagle3", *SIZE, *HERE)
    assert answer.code == 130 and answer.err.endswith("kvtwin: interrupted\n")
    left = json.loads((folder / "drafter-eagle3/progress.json").read_text())
    assert (left["kind"], left["steps"]) == ("eagle3", 2)
    assert kvtwin("weights", folder).code == 0, "the card is of what was kept"
    answer = kvtwin("train", "drafter", "--kind", "eagle3", *SIZE, *HERE, "--seconds", "0.1")
    assert f"drafter-eagle3: {TINY.on_policy} sequences of the target's own were there" in answer.err
    left = json.loads((folder / "drafter-eagle3/progress.json").read_text())
    assert left["steps"] >= 3 and len(left["runs"]) == 2
    assert kvtwin("train", "target", *SIZE, *HERE, "--seconds", "0.1").code == 0
    assert kvtwin("weights", folder).code == 0, "and of a target that learnt on"


def test_a_drafter_goes_on_at_the_share_of_the_rates_that_the_recipe_says_but_through_a_schedule_as_it_stands(
    folder: Path,
) -> None:
    def drafted(schedule: float | None = None) -> dict[str, torch.Tensor]:
        drafter_stage.train(order(schedule), replace(TINY, again=0.0), print)
        return load_file(folder / "drafter/model.safetensors")

    def order(schedule: float | None) -> Order:
        return Order(folder, 0.1, schedule, 0, torch.device("cpu"))

    target_stage.train(order(None), TINY, print)
    first = drafted()
    norm = load_file(folder / "target/model.safetensors")["model.norm.weight"]
    assert not torch.equal(first["norm.weight"], norm), "which it began with: a first run learns"
    again = drafted()
    assert all(torch.equal(again[name], tensor) for name, tensor in first.items())
    assert not any(torch.equal(one, first[name]) for name, one in drafted(schedule=60).items())
