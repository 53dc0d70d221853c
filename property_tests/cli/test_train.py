"""A training from nothing: stages, budgets, resumption, and what a stage says when the one before it did not run."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_backend.modules.loader import load_pair
from gpu_backend.train.card import write_card
from gpu_backend.train.corpus import is_held
from gpu_backend.train.encoding import Encoder
from gpu_backend.train.licences import of_expression
from gpu_backend.train.recipe import TINY as TINY_RECIPE
from gpu_backend.train.tokens import cut_prompts
from property_tests.cli.conftest import Command

TINY = ("--size", "tiny", "--device", "cpu", "--out", "t")


def test_four_stages_leave_a_pair_that_loads_and_its_card(kvtwin: Command) -> None:
    torch.set_num_threads(1)
    corpus = kvtwin("train", "corpus", *TINY, "--files", "3", "--seed", "1", "--json").json()
    licences = {one for package in corpus["packages"] for one in package["licence"].split(" AND ")}
    assert licences <= {"PSF-2.0", "BSD", "MIT", "Apache-2.0"}
    tokens = kvtwin("train", "tokenizer", *TINY, "--json").json()
    assert tokens["vocabulary"] == 512 and tokens["prompts"] > 0
    first = kvtwin("train", "target", *TINY, "--seconds", "1", "--schedule", "4", "--json").json()
    second = kvtwin("train", "target", *TINY, "--seconds", "4", "--schedule", "4", "--json").json()
    assert second["steps"] > first["steps"] and len(second["runs"]) == 2
    assert second["held_out_loss"] < first["held_out_loss"]
    one = kvtwin("train", "drafter", *TINY, "--seconds", "0.1", "--json").json()
    assert one["steps"] > 0, "one step is taken, however short the time"
    two = kvtwin("train", "drafter", *TINY, "--seconds", "1", "--json").json()
    assert two["steps"] > one["steps"] and len(two["runs"]) == 2
    for kind in ("dspark", "eagle3", "mtp"):
        left = kvtwin("train", "drafter", "--kind", kind, *TINY, "--seconds", "0.1", "--json").json()
        assert left["kind"] == kind and left["steps"] >= 1
        assert Path(f"t/drafter-{kind}/curve.png").read_bytes().startswith(b"\x89PNG")
    told = kvtwin("train", "evaluate", *TINY, "--json").json()
    found = told["drafters"]
    assert list(found) == ["dflash", "dspark", "eagle3", "mtp"]
    assert [one["drafts"] for one in found.values()] == [3, 3, 3, 2]
    for one in found.values():
        assert 1 <= one["AL16"] <= 4 and 1 <= one["seed"]["AL32"] <= 4 and len(one["slots"]) == one["drafts"]
        assert (one["placeholder_steps"], one["seed"]["placeholder_steps"]) == (0, told["prompts"])
    load_pair(Path("t/target"), Path("t/drafter"), "cpu")
    assert Path("t/target/curve.png").read_bytes().startswith(b"\x89PNG")
    card = json.loads(Path("t/card.json").read_text())
    assert card["acceptance"] == told and card["window"]["tokens"] == 16
    assert "DFlash" in card["drafter-dspark"]["began_with"] and card["drafter-mtp"]["kind"] == "mtp"
    assert {name.partition("/")[0] for name in card["sha256"]} >= {"target", "drafter", "drafter-eagle3"}
    for name, digest in card["sha256"].items():
        assert hashlib.sha256((Path("t") / name).read_bytes()).hexdigest() == digest
    check_ids(Path("t/tokens"))
    check_recipes()
    check_another_corpus(kvtwin)
    again = kvtwin("train", "target", *TINY, "--seconds", "1", "--schedule", "0.5")
    assert again.code == 2 and "schedule: expected more than the" in again.err


def check_another_corpus(kvtwin: Command) -> None:
    """Weights and a tokenizer that are carried elsewhere stay what they are where the corpus is another one."""
    tokenizer = Path("t/tokens/tokenizer.json").read_bytes()
    for path in (*Path("t/tokens").glob("*.npy"), Path("t/tokens/tokens.json")):
        path.unlink()
    manifest = json.loads(Path("t/corpus/manifest.json").read_text())
    text = Path("t/corpus/train.txt").read_bytes()
    Path("t/corpus/train.txt").write_bytes(text[: text.index(b"\0", 100_000)])
    Path("t/corpus/manifest.json").write_text(json.dumps(manifest | {"sha256": "another"}))
    Path("t/tokens/chat.json").write_text("{}")
    assert kvtwin("train", "tokenizer", *TINY, "--json").json()["corpus"] == "another"
    assert not Path("t/tokens/chat.json").exists(), "prompts are no longer a user's requests"
    assert Path("t/tokens/tokenizer.json").read_bytes() == tokenizer
    answer = kvtwin("train", "drafter", "--kind", "mtp", *TINY, "--seconds", "0.1", "--json")
    assert len(answer.json()["runs"]) == 2
    assert "were there" not in answer.err, "what the target wrote behind the other corpus is not trained on"


def check_recipes() -> None:
    """The card has the last recipe; of a run that had another one, in what; of one that kept none, nothing."""
    path = Path("t/drafter/progress.json")
    progress = json.loads(path.read_text())
    assert [run["recipe"] for run in progress["runs"]] == [TINY_RECIPE.told()] * 2
    progress["runs"][0]["recipe"]["raw"] = 0.25
    del progress["runs"][1]["recipe"]
    path.write_text(json.dumps(progress))
    card = write_card(Path("t"), TINY_RECIPE)
    assert card["recipe"] == TINY_RECIPE.told() and card["drafter"]["runs"][0]["recipe"] == {"raw": 0.25}
    assert "recipe" not in card["drafter"]["runs"][1] and card["target"]["runs"][0]["recipe"] == {}


def check_ids(folder: Path) -> None:
    """Cached encoding gives the tokenizer's own ids, and prompts have the names of their content."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert [tokenizer.id_to_token(number) for number in (0, 1, 2)] == ["<|endoftext|>", "<|mask|>", "<|pad|>"]
    encode = Encoder(tokenizer)
    texts = (Path(__file__).read_text(), "naïve = 'ü'\n\n\n  x\t= 12345 # <|mask|>\r\n", "  \n   if a:\n\treturn  b ")
    for text in texts:
        ids = encode(text)
        assert ids == tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(encode(texts[2])) == texts[2]
    ids = np.load(folder / "train.npy")
    assert ids.dtype == np.uint16 and ids[0] == 0
    held = np.load(folder / "held.npy").tobytes()
    for prompt in json.loads((folder / "prompts.json").read_text()):
        assert np.array(prompt["ids"], dtype=np.uint16).tobytes() in held, "of text that is not trained on"
        digest = hashlib.sha256(np.array(prompt["ids"], dtype="<u2").tobytes()).hexdigest()
        assert digest.startswith(prompt["name"])


def test_prompts_are_the_heads_of_held_out_files_then_what_follows_them() -> None:
    found = cut_prompts({"b": np.arange(100, 105), "a": np.arange(9), "c": np.arange(2)}, 3, 4)
    assert [(one["file"], one["first"], one["ids"]) for one in found] == [
        ("a", 0, [0, 1, 2]), ("b", 0, [100, 101, 102]), ("a", 3, [3, 4, 5]), ("a", 6, [6, 7, 8]),
    ]  # fmt: skip
    assert len(cut_prompts({"a": np.arange(9)}, 3, 2)) == 2


@pytest.mark.parametrize(
    ("stage", "needs"), [("tokenizer", "corpus"), ("target", "tokenizer"), ("drafter", "tokenizer")]
)
def test_a_stage_names_the_one_that_has_to_come_before(kvtwin: Command, stage: str, needs: str) -> None:
    answer = kvtwin("train", stage, *TINY)
    assert answer.code == 2
    assert f"expected what `kvtwin train {needs}` writes" in answer.err and answer.err.count("\n") == 1
    assert not Path("t").exists(), "nothing is left of a training that did not begin"
    Path("t").mkdir()
    assert kvtwin("train", stage, *TINY).code == 2 and Path("t").is_dir(), "but a user's own folder is"


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("MIT", "MIT"),
        ("BSD-3-Clause AND MIT", "BSD AND MIT"),
        ("GPL-3.0-only OR Apache-2.0", "Apache-2.0"),
        ("Apache-2.0 OR BSD-2-Clause", "Apache-2.0"),
        ("MIT AND MPL-2.0", None),
        ("MIT AND (GPL-2.0 OR MPL-2.0)", None),
        ("Apache-2.0 WITH LLVM-exception", None),
        ("", None),
        ("UNKNOWN", None),
    ],
)
def test_only_licences_on_the_list_are_taken(expression: str, wanted: str | None) -> None:
    assert of_expression(expression) == wanted


def test_a_held_out_module_is_left_out_with_its_tests_and_copies() -> None:
    held = ("json/decoder.py", "argparse.py", "test/test_argparse.py", "some/_vendored/typing.py", "_json.py")
    assert [name for name in held if not is_held(Path(name))] == []
    assert not is_held(Path("sympy/core/basic.py"))
