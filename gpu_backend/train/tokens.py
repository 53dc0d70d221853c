"""The corpus as ids: uint16 arrays, evaluation prompts named by content."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from gpu_backend.train.arrays import read_ids, write_ids
from gpu_backend.train.chat import CHAT, cut_requests, write_chat
from gpu_backend.train.corpus import HELD, MANIFEST, SEPARATOR, TRAIN
from gpu_backend.train.encoding import Encoder, encoded, ids_of, open_tokenizer, train_tokenizer
from gpu_backend.train.files import CORPUS, TARGET, TOKENS, read_bytes, read_json, write_json, write_whole
from gpu_backend.train.fit import INFO, vocabulary_fits
from gpu_backend.train.recipe import Recipe
from scenarios.errors import InputError

TOKENIZER, IDS, HELD_IDS, PROMPTS = "tokenizer.json", "train.npy", "held.npy", "prompts.json"


def build(folder: Path, recipe: Recipe) -> dict[str, Any]:
    """Train the tokenizer unless ``folder`` has one, encode the corpus, cut the prompts. An instruct model has its own
    tokenizer, which its target came with."""
    texts = read_bytes(folder / CORPUS / TRAIN, "corpus").split(SEPARATOR)
    held = read_bytes(folder / CORPUS / HELD, "corpus").split(SEPARATOR)
    if len(held) % 2:
        raise InputError(str(folder / CORPUS / HELD), 0, "", "expected names and texts in turn")
    out = folder / TOKENS
    if recipe.instruct:
        write_whole(out / TOKENIZER, read_bytes(folder / TARGET / TOKENIZER, f"{TARGET} --wheel FILE"))
    texts = _first(texts, recipe.text_bytes)
    if (out / TOKENIZER).exists():
        tokenizer = open_tokenizer(out / TOKENIZER)
        vocabulary_fits(out / TOKENIZER, tokenizer.get_vocab_size(), recipe)
    else:
        tokenizer = train_tokenizer(
            [text.decode() for text in _first(texts, recipe.sample_bytes)], recipe.target.vocabulary
        )
        vocabulary_fits(folder / CORPUS / TRAIN, tokenizer.get_vocab_size(), recipe)
        write_whole(out / TOKENIZER, tokenizer.to_str(pretty=False).encode())
    parts = list(encoded(out / TOKENIZER, texts))
    encode = Encoder(tokenizer)
    held_ids = {name.decode(): ids_of(encode, text) for name, text in zip(held[::2], held[1::2], strict=True)}
    ids = np.concatenate(parts)
    (out / INFO).unlink(missing_ok=True)  # no stage reads what is not whole
    write_ids(out / IDS, ids)
    write_ids(out / HELD_IDS, np.concatenate(list(held_ids.values())))
    if recipe.instruct:
        chat = write_chat(folder, tokenizer)
        prompts = cut_requests(chat, held_ids, recipe.eval_prompt, recipe.eval_prompts)
    else:
        (out / CHAT).unlink(missing_ok=True)  # of an instruct model that was here before
        prompts = cut_prompts(held_ids, recipe.eval_prompt, recipe.eval_prompts)
    write_json(out / PROMPTS, prompts)
    info = {
        "vocabulary": tokenizer.get_vocab_size(),
        "sha256": hashlib.sha256((out / TOKENIZER).read_bytes()).hexdigest(),
        "files": len(parts),
        "tokens": len(ids),
        "bytes_per_token": round(sum(map(len, texts)) / len(ids), 3),
        "held_out_tokens": sum(map(len, held_ids.values())),
        "prompts": len(prompts),
        "corpus": read_json(folder / CORPUS / MANIFEST, "corpus")["sha256"],
    }
    write_json(out / INFO, info)
    return info


def cut_prompts(held: dict[str, np.ndarray], length: int, count: int) -> list[dict[str, Any]]:
    """At most ``count`` prompts of ``length`` tokens: the head of each file, then second pieces, and so on.

    A prompt's name is the hash of its ids, so another Python's text gives another name.
    """
    found: list[dict[str, Any]] = []
    for piece in range(max(map(len, held.values())) // length):
        for name in sorted(held):
            ids = held[name][piece * length : (piece + 1) * length]
            if len(ids) == length and len(found) < count:
                digest = hashlib.sha256(ids.astype("<u2").tobytes()).hexdigest()
                found.append({"name": digest[:16], "file": name, "first": piece * length, "ids": ids.tolist()})
    return found


def load_ids(folder: Path, name: str = IDS) -> np.ndarray:
    """Ids that :func:`build` wrote, uint16 ``[tokens]``."""
    return read_ids(folder / TOKENS / name, "tokenizer")


def _first(texts: list[bytes], most: int) -> list[bytes]:
    taken, size = [], 0
    for text in texts:
        if size > most:
            break
        taken.append(text)
        size += len(text)
    return taken
