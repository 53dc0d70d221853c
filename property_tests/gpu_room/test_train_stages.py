"""Stages of a training: weights are replaced whole, generation keeps its time, and nothing held out is trained on."""

from __future__ import annotations

import dataclasses
import fcntl
import io
import json
import os
import time
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
import torch

from gpu_backend.modules.drafter import Drafter
from gpu_backend.modules.target import Target, place_for_inference
from gpu_backend.train.chat import Chat, Requests
from gpu_backend.train.corpus import HELD, STDLIB, TRAIN, Corpus, Source, gather, require_own, write
from gpu_backend.train.dense import Passes
from gpu_backend.train.drafter_stage import batch
from gpu_backend.train.files import PROGRESS, recover, replace
from gpu_backend.train.generate import generate
from gpu_backend.train.kinds import KINDS
from gpu_backend.train.lock import LOCK, locked
from gpu_backend.train.optimiser import start
from gpu_backend.train.recipe import TINY
from gpu_backend.train.session import Order, Session, Texts
from gpu_backend.train.written import sequences
from scenarios.errors import InputError

CPU = torch.device("cpu")


def weights(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / "model").write_text(text)
    (folder / PROGRESS).write_text("{}")


@pytest.mark.parametrize("killed_at", [0, 1, 2])
@pytest.mark.parametrize("before", [True, False], ids=["replaced", "first"])
def test_a_kill_while_weights_are_replaced_leaves_some_that_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int, before: bool
) -> None:
    def rename(path: Path, to: Path) -> Path:
        calls.append(path)
        if len(calls) > killed_at:
            raise KeyboardInterrupt
        return usual(path, to)

    folder, calls, usual = tmp_path / "target", list[Path](), Path.rename
    if before:
        weights(folder, "old")
    weights(tmp_path / "target.part", "new")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        if killed_at < 1 + before:
            with pytest.raises(KeyboardInterrupt):
                replace(folder)
        else:
            replace(folder)
    recover(folder)
    assert (folder / "model").read_text() == ("old" if before and killed_at == 0 else "new")
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize("killed_at", range(3))
def test_a_corpus_takes_the_place_of_one_wherever_it_was_killed_but_not_of_texts_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int
) -> None:
    def put(part: Path, path: Path) -> None:
        calls.append(path)
        if len(calls) > killed_at:
            raise KeyboardInterrupt
        usual(part, path)

    calls, usual = list[Path](), os.replace
    one, another = (Corpus(train=[text], held=[("json.py", text)]) for text in (b"one", b"another"))
    write(tmp_path, one)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", put)
        write(tmp_path, another)
    require_own(tmp_path)
    write(tmp_path, another)
    require_own(tmp_path)
    for name, text in ((TRAIN, b"another"), (HELD, b"json.py\0another")):
        assert (tmp_path / name).read_bytes() == text
        (tmp_path / name).write_bytes(b"mine")
        with pytest.raises(InputError, match=rf"{name}: expected the file on manifest\.json, or none: .* it wrote$"):
            require_own(tmp_path)
        (tmp_path / name).write_bytes(text)


def test_a_file_in_the_place_of_the_corpus_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "corpus").write_text("mine")
    with pytest.raises(InputError, match=r"corpus: expected a folder to write to: "):
        write(tmp_path / "corpus", Corpus(train=[b"one"], held=[("json.py", b"two")]))


def test_a_lock_whose_file_was_removed_when_another_training_ended_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(file: BinaryIO, how: int) -> None:
        (tmp_path / LOCK).unlink()
        usual(file, how)

    usual = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(InputError, match="found a training that runs in it"), locked(tmp_path):
        pass


def test_new_weights_that_are_not_whole_are_not_taken_and_old_ones_come_back(tmp_path: Path) -> None:
    folder = tmp_path / "target"
    weights(tmp_path / "target.old", "old")
    (tmp_path / "target.part").mkdir()
    (tmp_path / "target.part/model").write_text("half")
    recover(folder)
    assert (folder / "model").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


@pytest.fixture
def target() -> Target:
    target = Target(TINY.target, TINY.drafter.taps)
    start(target, TINY.target.layers, 1)
    place_for_inference(target, CPU, torch.float32)
    return target


def test_a_generation_that_is_cut_short_gives_the_head_of_the_whole_one(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = torch.randint(0, 512, (6, 10), generator=torch.Generator().manual_seed(1))
    temperature = torch.tensor([0.0, 1.0] * 3)
    whole = generate(target, prompts, 8, temperature, 3)
    asked: list[int] = []
    cut = generate(target, prompts, 8, temperature, 3, over=lambda: asked.append(1) or len(asked) > 3)
    assert torch.equal(cut, whole[:, : 10 + 4])
    assert generate(target, prompts, 8, temperature, 3, over=lambda: True, every=3).shape == (6, 13)
    monkeypatch.setattr("gpu_backend.train.generate.PREFILL_TOKENS", 20)  # two rows a pass
    assert torch.equal(generate(target, prompts, 8, temperature, 3)[::2], whole[::2]), "greedy rows stay"
    assert generate(target, prompts, 8, temperature, 3, over=lambda: True).shape == (2, 11)


def late(folder: Path, told: list[str], seconds: float) -> Session:
    """A session so many seconds old, of five."""
    order = Order(folder, 5.0, None, 1, CPU)
    return Session("drafter", order, ("step", "seconds"), told.append, begun=time.monotonic() - seconds)


TEXTS = Texts(np.arange(2000) % 512, CPU, Path("ids"))


def test_a_run_whose_time_is_up_trains_on_what_its_target_wrote_so_far(target: Target, tmp_path: Path) -> None:
    told: list[str] = []
    session = late(tmp_path, told, 100)
    written = sequences(target, TEXTS, session, TINY)
    assert written.shape == (TINY.on_policy, TINY.prompt + TINY.stride)
    assert told[0].startswith(f"drafter: {TINY.on_policy} sequences with {TINY.stride} tokens of the target's own in")
    assert not list(tmp_path.iterdir()), "half a round is not kept"
    ids, own = batch(written, TEXTS, TINY, 1, 0)
    slots = KINDS["dflash"].slots(target, Drafter(TINY.drafter), ids, own, TINY, Passes())
    anchors = (TINY.prompt - 16) // TINY.stride
    assert slots.hidden.shape[:3] == slots.labels.shape == slots.wanted.shape[:3] == (TINY.drafter_rows, anchors, 3)
    assert not session.over(), "one step is taken"
    session.stepped(1, tuple)
    assert session.over()


def test_what_a_target_wrote_is_kept_for_the_drafters_of_all_kinds_and_thrown_away_with_it(
    target: Target, tmp_path: Path
) -> None:
    recipe, told = dataclasses.replace(TINY, rounds=2), list[str]()
    (tmp_path / "target").mkdir()
    (tmp_path / "target/model.safetensors").write_bytes(b"one")
    first = sequences(target, TEXTS, late(tmp_path, told, 2), recipe)
    assert len(first) == TINY.on_policy and len(told) == 1, "late, so one round was enough"
    both = sequences(target, TEXTS, late(tmp_path, told, 0), recipe)
    assert torch.equal(both[: len(first)], first) and len(both) == 2 * len(first) and len(told) == 3
    assert not torch.equal(both[len(first) :], first), "the second round is another one"
    again = sequences(target, TEXTS, late(tmp_path, told, 100), recipe)
    assert torch.equal(again, both) and told[3:] == [f"drafter: {len(both)} sequences of the target's own were there"]
    (tmp_path / "target/model.safetensors").write_bytes(b"another")
    assert len(sequences(target, TEXTS, late(tmp_path, told, 2), recipe)) == TINY.on_policy
    other = Texts(np.arange(2000) % 511, CPU, Path("ids"))
    seen = sequences(target, other, late(tmp_path, told, 2), recipe)
    assert len(seen) == TINY.on_policy and "were there" not in told[-1], "prompts from another text"
    chats = [Chat((((1,), (2, number)),), ((3,), (4,)), (5,)) for number in (6, 7)]
    for chat in chats:
        seen = sequences(target, Requests(chat, other), late(tmp_path, told, 2), recipe)
        assert "were there" not in told[-1] and set(seen[:, TINY.prompt - 1].tolist()) == {chat.kinds[0][1][1]}
    manifest = tmp_path / "written/written.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"rounds": ["one"]}))
    assert len(sequences(target, Requests(chats[1], other), late(tmp_path, told, 2), recipe)) == TINY.on_policy
    assert [path.name for path in sorted((tmp_path / "written").iterdir())] == ["round-0.npy", "written.json"]
    path = tmp_path / "written/round-0.npy"
    several, longer = io.BytesIO(), io.BytesIO()
    np.savez(several, np.load(path))
    np.save(longer, np.load(path).repeat(2, 0))
    for content in (b"", several.getvalue(), longer.getvalue()):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"round-0\.npy: is not an array of sequences"):
            sequences(target, Requests(chats[1], other), late(tmp_path, told, 0), recipe)


def test_a_copy_of_a_held_out_text_under_another_name_is_not_trained_on(tmp_path: Path) -> None:
    held, free = (f"{name} = {name!r}\n" * 100 for name in ("held", "free"))
    files = {"aaa.py": held, "bbb.py": free, "ccc.py": free, "json/decoder.py": held}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    copy = tmp_path / "package/copied.py"
    copy.parent.mkdir()
    copy.write_text(held)
    package = Source("package", "1", "MIT", tmp_path, [copy])
    corpus = gather([package, Source(STDLIB, "3", "PSF-2.0", tmp_path, [tmp_path / name for name in files])], [])
    assert corpus.train == [free.encode()]
    assert corpus.held == [("json/decoder.py", held.encode())]
