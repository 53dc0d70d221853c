"""A Llama and its tokenizer from a GGUF: the model that the file says, whatever way it stores heads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_backend.al.prompts import Text
from gpu_backend.modules.loader import load_target, target_config_of
from gpu_backend.tier2.cache import t2_folder
from gpu_backend.tier2.convert import convert
from gpu_backend.tier2.gguf import Gguf, read_gguf
from gpu_backend.train.chat import Requests, cut_requests, write_chat
from gpu_backend.train.dense import Passes, run_target
from gpu_backend.train.encoding import SPLIT_SMOL, Encoder, open_tokenizer, split_of
from gpu_backend.train.files import PROGRESS, read_json
from gpu_backend.train.recipe import TINY_T2
from gpu_backend.train.session import Texts
from property_tests.gpu_room.ggufs import CONTROL, FRAMES, gguf, metadata, small_file, tensors, vocabulary
from scenarios.errors import InputError

SOURCE = Path(__file__).read_text()
TEXTS = [*FRAMES, SOURCE]
CONFIG = replace(TINY_T2.target, dtype=torch.float32)  # as the file stores them, without rounding
RECIPE = replace(TINY_T2, target=CONFIG)


@pytest.fixture(scope="module")
def content() -> bytes:
    """A file of the tiny T2's shape."""
    return small_file(CONFIG, TEXTS)


@pytest.fixture
def folder(tmp_path: Path, content: bytes) -> Path:
    """That file, converted."""
    (tmp_path / "a.gguf").write_bytes(content)
    convert(tmp_path, RECIPE, tmp_path / "a.gguf")
    return tmp_path


def plain_logits(found: Gguf, ids: list[int]) -> np.ndarray:
    """Logits ``[tokens, vocabulary]`` straight from the file in float64; heads turn by neighbours, as in llama.cpp."""

    def weights(name: str) -> np.ndarray:
        return found.tensor(f"{name}.weight").astype(np.float64)

    def norm(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + CONFIG.eps) * gain

    def turned(heads: np.ndarray) -> np.ndarray:  # [tokens, heads, dim]
        angle = np.outer(np.arange(len(ids)), CONFIG.theta ** -(np.arange(0, CONFIG.head_dim, 2) / CONFIG.head_dim))
        complex_heads = (heads[..., ::2] + 1j * heads[..., 1::2]) * np.exp(1j * angle)[:, None]
        return np.stack([complex_heads.real, complex_heads.imag], -1).reshape(heads.shape)

    x = weights("token_embd")[ids]
    for layer in range(CONFIG.layers):
        block = f"blk.{layer}."
        normed = norm(x, weights(f"{block}attn_norm"))
        q, k, v = ((normed @ weights(f"{block}attn_{kind}").T).reshape(len(ids), -1, CONFIG.head_dim) for kind in "qkv")
        group = CONFIG.heads // CONFIG.kv_heads
        k, v = turned(k).repeat(group, 1), v.repeat(group, 1)
        score = np.einsum("qhd,khd->hqk", turned(q), k) / CONFIG.head_dim**0.5
        score = np.where(np.tri(len(ids), dtype=bool), score, -np.inf)
        weight = np.exp(score - score.max(-1, keepdims=True))
        out = np.einsum("hqk,khd->qhd", weight / weight.sum(-1, keepdims=True), v)
        x = x + out.reshape(len(ids), -1) @ weights(f"{block}attn_output").T
        normed = norm(x, weights(f"{block}ffn_norm"))
        gate, up = (normed @ weights(f"{block}ffn_{kind}").T for kind in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weights(f"{block}ffn_down").T
    return norm(x, weights("output_norm")) @ weights("token_embd").T


def test_the_converted_target_has_the_logits_of_the_file(folder: Path, content: bytes) -> None:
    ids = np.random.default_rng(5).integers(0, CONFIG.vocabulary, 40).tolist()
    wanted = plain_logits(read_gguf("f", content), ids)
    assert target_config_of(folder / "target") == replace(CONFIG, windows=(None,) * CONFIG.layers)
    target = load_target(folder / "target")
    with torch.no_grad():
        states, _ = run_target(target, torch.tensor([ids]), Passes())
        (logits,) = target.head(target.model.norm(states))
    assert np.abs(logits.numpy() - wanted).max() < 1e-4 * max(1.0, np.abs(wanted).max())
    assert np.ptp(wanted, axis=0).max() > 0.01, "the file's logits differ from place to place"


def test_the_progress_says_where_the_target_comes_from(folder: Path, content: bytes) -> None:
    told = read_json(folder / "target" / PROGRESS, "target")
    assert told["model"] == "a small one" and told["licence"] == "apache-2.0" and told["release"] == "not known"
    assert told["stored"] == {"Q8_0": 1, "F32": 9, "Q4_1": 28}
    assert told["wheel"] == "a.gguf" and told["wheel_sha256"] == told["gguf_sha256"]


def test_a_target_of_another_size_is_not_replaced(folder: Path) -> None:
    before = (folder / "target/config.json").read_bytes()
    values = json.loads(before) | {"intermediate_size": 112}
    (folder / "target/config.json").write_text(json.dumps(values))
    with pytest.raises(InputError, match=r"target: config.json: expected the shape of this --size, found another"):
        convert(folder, RECIPE, folder / "a.gguf")
    assert json.loads((folder / "target/config.json").read_bytes()) == values
    (folder / "target/config.json").write_bytes(before)
    convert(folder, RECIPE, folder / "a.gguf")


def test_the_tokenizer_encodes_its_own_words_and_gives_every_text_back(folder: Path) -> None:
    tokenizer = open_tokenizer(folder / "target/tokenizer.json")
    encode = Encoder(tokenizer)
    hard = "x1 = 2024;\n\n\tdon't  'll 9\n  # naïve\r\n \x0b 7 8  \n\n\n y"
    for text in (SOURCE, hard, hard.replace("ï", "i"), f"a<|im_end|>{CONTROL[5]}b", " 12 ", "a  1", "\n 1"):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert encode(text) == ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert encode("<|im_end|>") == [2] and encode("2024") == [encode(one)[0] for one in "2024"]
    assert len(encode(SOURCE)) < len(SOURCE) / 1.2


def without(stored: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: one for key, one in stored.items() if key != name}


def renamed(stored: dict[str, Any], name: str, new: str) -> dict[str, Any]:
    return {new if key == name else key: one for key, one in stored.items()}


WRONG: dict[str, tuple[Callable[[dict, dict], tuple[dict, dict]], str]] = {
    "architecture": (lambda m, t: (m | {"general.architecture": "qwen2"}, t), "architecture: expected 'llama'"),
    "scaled": (
        lambda m, t: (m | {"llama.rope.scaling.type": "yarn"}, t),
        "scaling.type: expected 'none', found 'yarn'",
    ),
    "no count": (lambda m, t: (without(m, "llama.block_count"), t), "block_count: expected a positive integer"),
    "a text": (lambda m, t: (m | {"llama.rope.freq_base": "x"}, t), "freq_base: expected a positive number"),
    "another size": (lambda m, t: (m | {"llama.block_count": 3}, t), "block_count: expected 4, as this --size has"),
    "an own head": (lambda m, t: (m, t | {"output.weight": t["token_embd.weight"]}), "output.weight: expected a head"),
    "no embedding": (lambda m, t: (m, without(t, "token_embd.weight")), "token_embd.weight: expected this tensor"),
    "a tensor missing": (
        lambda m, t: (m, without(t, "blk.3.ffn_up.weight")),
        "model.layers.3.mlp.up_proj.weight: expected this tensor, found none",
    ),
    "a bias": (
        lambda m, t: (m, renamed(t, "blk.0.attn_q.weight", "blk.0.attn_q.bias")),
        "blk.0.attn_q.bias: the configuration has no place for this tensor",
    ),
    "a shape": (
        lambda m, t: (m, t | {"blk.1.attn_k.weight": t["blk.1.attn_q.weight"]}),
        "blk.1.attn_k.weight: expected the shape [32, 64], found [64, 64]",
    ),
    "another model of tokens": (lambda m, t: (m | {"tokenizer.ggml.model": "llama"}, t), "ggml.model: expected 'gpt2'"),
    "another split": (lambda m, t: (without(m, "tokenizer.ggml.pre"), t), "ggml.pre: expected 'smollm', found None"),
    "few tokens": (
        lambda m, t: (m | {"tokenizer.ggml.tokens": ["a"]}, t),
        "ggml.tokens: expected 512 entries, found 1",
    ),
    "a token twice": (
        lambda m, t: (m | {"tokenizer.ggml.tokens": ["a", *m["tokenizer.ggml.tokens"][:-1]]}, t),
        "ggml.tokens: expected each token once",
    ),
    "a type of token": (
        lambda m, t: (m | {"tokenizer.ggml.token_type": [6] * 512}, t),
        "ggml.token_type: expected tokens of text (1) and of control (3), found 6 of token 0",
    ),
    "a merge": (
        lambda m, t: (m | {"tokenizer.ggml.merges": ["a bcd"]}, t),
        "ggml.merges: expected two tokens that make a third one, found 'a bcd'",
    ),
    "merges of numbers": (
        lambda m, t: (m | {"tokenizer.ggml.merges": [1]}, t),
        "ggml.merges: expected a list of texts, found [1]",
    ),
}


@pytest.fixture(scope="module")
def parts() -> tuple[dict[str, Any], dict[str, Any]]:
    """Metadata and tensors of a file."""
    return metadata(CONFIG, *vocabulary(TEXTS, CONFIG.vocabulary)), dict(tensors(CONFIG))


@pytest.mark.parametrize(("change", "told"), WRONG.values(), ids=WRONG)
def test_another_model_is_refused_by_name_and_nothing_is_written(
    tmp_path: Path, parts: tuple[dict[str, Any], dict[str, Any]], change: Callable[..., Any], told: str
) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf(*change(*parts)))
    with pytest.raises(InputError) as caught:
        convert(tmp_path, RECIPE, path)
    assert told in str(caught.value) and str(caught.value).startswith(f"{path}: ")
    assert [one.name for one in tmp_path.iterdir()] == ["a.gguf"]


def test_requests_have_their_length_their_frames_and_text_of_one_file(folder: Path) -> None:
    tokenizer = open_tokenizer(folder / "target/tokenizer.json")
    chat = write_chat(folder, tokenizer)
    source = tokenizer.encode(SOURCE).ids
    line = np.array([token for _ in range(12) for token in (0, *source[:1500])])
    requests = Requests(chat, Texts(line.astype(np.uint16), torch.device("cpu"), Path("ids")))
    found = requests.crops(10, TINY_T2.prompt, 3)
    assert found.shape == (10, TINY_T2.prompt)
    assert torch.equal(found, requests.crops(10, TINY_T2.prompt, 3)) and not torch.equal(
        found, requests.crops(10, TINY_T2.prompt, 4)
    )
    kinds = [kind for kind in range(4) for _ in range(kind, 10, 4)]
    for row, kind in zip(found.tolist(), kinds, strict=True):
        before, behind = chat.kinds[kind]
        assert tuple(row[: len(before)]) == before and tuple(row[-len(behind) :]) == behind
        assert not set(row[len(before) : -len(behind)]) & set(chat.control)
        assert tokenizer.decode(row, skip_special_tokens=False).endswith("<|im_start|>assistant\n")
    held = {name: np.array([0, *source[first : first + 200]]) for name, first in (("a", 0), ("b", 300), ("c", 600))}
    prompts = cut_requests(chat, held, 64, 8)
    assert {len(prompt["ids"]) for prompt in prompts} == {64} and len({prompt["name"] for prompt in prompts}) == len(
        prompts
    )
    assert [prompt["end"] for prompt in prompts] == [len(chat.kinds[place % 4][1]) for place in range(len(prompts))]
    with pytest.raises(InputError, match="expected room for a text in 20 tokens"):
        cut_requests(chat, held, 20, 8)


def test_a_request_of_any_length_ends_as_a_whole_one_and_a_later_message_has_its_frame() -> None:
    text = Text("a", tuple(range(100, 140)), end=(7, 8, 9), turn=((1, 2), (3,)))
    plain = Text("b", text.ids)
    assert text.prompt(20) == (*range(100, 117), 7, 8, 9) and plain.prompt(20) == text.ids[:20]
    assert text.more(5, 9) == (1, 2, *range(105, 111), 3) and plain.more(5, 9) == text.ids[5:14]
    assert text.more(5, 2) == (1, 2, 3), "its frame at least"
    assert text.tail(2, 10) == (*range(106, 113), 7, 8, 9) and plain.tail(2, 10) == text.ids[6:16]
    assert text.tail(0, 2, first=30) == (130, 7, 8, 9) and len(plain.tail(50, 12, first=20)) == 12


def test_a_tokenizer_that_splits_in_a_way_unknown_here_encodes_whole_texts(folder: Path) -> None:
    from tokenizers import normalizers, pre_tokenizers

    text = "def f(x1):\n    return x1  # twice"
    known = open_tokenizer(folder / "target/tokenizer.json")
    assert split_of(known) is SPLIT_SMOL
    for change in (
        {"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=True)},
        {"normalizer": normalizers.Lowercase()},
    ):
        other = open_tokenizer(folder / "target/tokenizer.json")
        for name, part in change.items():
            setattr(other, name, part)
        assert split_of(other) is None
        assert Encoder(other)(text) == other.encode(text, add_special_tokens=False).ids


def test_t2_is_kept_where_the_variable_says_else_in_the_cache_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, folder in (("KVTWIN_CACHE", "kept"), ("XDG_CACHE_HOME", "own"), ("HOME", "user")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    assert t2_folder() == tmp_path / "kept/t2"
    monkeypatch.delenv("KVTWIN_CACHE")
    assert t2_folder() == tmp_path / "own/kvtwin/t2"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert t2_folder() == tmp_path / "user/.cache/kvtwin/t2"
