"""What is shipped: sizes, hashes, prompts that anybody can rebuild, and T1 in seconds on a CPU.

Gates compare runs of one process, never figures of another Python, torch or device: prompts are the standard library's
text, and so differ from one Python to the next.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import platform
import tomllib
from functools import cache
from pathlib import Path

import numpy as np
import torch

from gpu_backend.al.arms import Arm
from gpu_backend.al.experiment import Ask, Results, Served, subject
from gpu_backend.al.order import IDENTICAL, REPEAT
from gpu_backend.al.prompts import head_of, held_out
from gpu_backend.shipped.card import DRAFTERS, HOME, TARGET, TOKENS, WEIGHTS, card_of, checked, digest_of
from gpu_backend.shipped.pack import MOST, MOST_FILE, MOST_PAIR, NAMES, sizes_of
from gpu_backend.train.corpus import held_texts
from gpu_backend.train.encoding import Encoder, ids_of, open_tokenizer
from sim.rulespec import find

T1 = HOME / "t1"
ROOT = Path(__file__).parents[2]
HITS, TOKENS_OF_EACH = 3, 8


def test_the_pair_and_all_that_is_shipped_are_as_small_as_they_have_to_be() -> None:
    sizes = {f"{tier.name}/{name}": size for tier in HOME.iterdir() for name, size in sizes_of(tier).items()}
    pair = [size for name, size in sizes.items() if name.split("/")[:2] in (["t1", TARGET], ["t1", DRAFTERS["dflash"]])]
    assert max(sizes.values()) <= MOST_FILE == 15 << 20
    assert sum(pair) <= MOST_PAIR == 40_000_000 and sum(sizes.values()) <= MOST == 56_000_000
    assert {name for name in DRAFTERS.values() if (T1 / name).is_dir()} == set(DRAFTERS.values())


def test_every_weight_is_on_its_card_and_is_the_one_that_stands_there() -> None:
    for tier in HOME.iterdir():
        found = checked(tier, (TARGET, TOKENS, *DRAFTERS.values()))
        assert found == card_of(tier)["sha256"]
        assert {str(path.relative_to(tier)) for path in tier.rglob(WEIGHTS)} <= found.keys()
        page = (tier / "README.md").read_text()
        assert all(digest in page for digest in found.values())


def test_a_wheel_has_the_weights() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = settings["package-data"]["gpu_backend"]
    for path in HOME.rglob("*"):
        name = str(path.relative_to(HOME.parent))
        assert path.is_dir() or any(fnmatch.fnmatch(name, pattern) for pattern in patterns), name


def test_prompts_are_heads_of_held_out_modules_and_have_the_names_of_their_content() -> None:
    names = json.loads((T1 / TOKENS / NAMES).read_text())
    texts = held_out(T1, 3, names["tokens"])
    for text in texts:
        assert hashlib.sha256(np.array(text.ids, dtype="<u2").tobytes()).hexdigest().startswith(text.name)
    if platform.python_version() == names["python"]:
        assert [text.name for text in texts] == [one["name"] for one in names["prompts"][:3]]
    encode, held = Encoder(open_tokenizer(T1 / TOKENS / "tokenizer.json")), dict(held_texts())
    whole = [ids_of(encode, held[name])[: names["tokens"]] for name in sorted(held)[:8]]
    assert [list(text.ids) for text in texts] == [ids.tolist() for ids in whole if len(ids) == names["tokens"]][:3]
    long = next(text.decode() for _, text in sorted(held.items()) if len(text) > 40_000)
    assert head_of(long, 64, encode).tolist() == ids_of(encode, long.encode())[:64].tolist()


@cache
def served() -> Served:
    """T1 with its DFlash drafter on one thread; prompts are a window long."""
    pair, texts = subject(T1, torch.device("cpu"), HITS, exact=True, seed=0, spans=1)
    return Served(Ask(pair, texts, TOKENS_OF_EACH, (), ()), Results())


@cache
def arm(build: str) -> Arm:
    """The same prompts again, on a build."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small products are slower on more, where others run as well
    try:
        return served().arm(REPEAT, find(build))
    finally:
        torch.set_num_threads(threads)


def test_sound_reuse_of_t1_changes_no_step() -> None:
    found = arm("unified")
    assert found.verdict == IDENTICAL and found.owed.all() and found.same.all() and found.same_output.all()
    assert served().ask.pair.sha256.items() <= card_of(T1)["sha256"].items()
    assert all(digest_of(T1 / name) == digest for name, digest in served().ask.pair.sha256.items())


def test_context_that_is_lost_costs_a_quarter_of_t1s_acceptance_at_least() -> None:
    found = arm("mirror-21281")
    change = found.change(16)
    assert change is not None and change.value < 0.75, "three prompts lose some three quarters"
    assert change.high < 0.9 and found.same_output.all(), "no token is another one"
