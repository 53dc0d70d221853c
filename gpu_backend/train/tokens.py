"""The tokenizer, a byte-level BPE, and the corpus as ids: uint16 arrays, evaluation prompts named by content."""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import os
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from gpu_backend.train.corpus import HELD, MANIFEST, SEPARATOR, TRAIN
from gpu_backend.train.files import CORPUS, TOKENS, read_bytes, read_json, write_json, write_whole
from gpu_backend.train.fit import INFO, vocabulary_fits
from gpu_backend.train.recipe import END_OF_TEXT, SPECIAL, Recipe
from scenarios.errors import InputError

# Words with one character before them, single digits, punctuation, line ends, blanks (after Qwen2).
SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# The same for text of ASCII alone, in the words of `re`.
SPLIT_ASCII = re.compile(
    r"[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+", re.ASCII
)
MOST_CACHED = 400_000
PART = 100  # texts that a worker takes at a time
WORTH_WORKERS = 20_000_000  # bytes of texts from which on workers are started
TOKENIZER, IDS, HELD_IDS, PROMPTS = "tokenizer.json", "train.npy", "held.npy", "prompts.json"


def train_tokenizer(texts: list[str], vocabulary: int) -> Any:
    """A byte-level BPE of ``vocabulary`` ids trained on ``texts``; the first ids are the special tokens."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    words = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, as_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


class Encoder:
    """Ids as the tokenizer gives them; what was split off once is not encoded again."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, list[int]] = {}

    def __call__(self, text: str) -> list[int]:
        if not text.isascii() or "<|" in text:  # other letters, or what may read as a special token
            return self._tokenizer.encode(text, add_special_tokens=False).ids
        found: list[int] = []
        for word in SPLIT_ASCII.findall(text):
            ids = self._known.get(word)
            if ids is None:
                ids = self._tokenizer.encode(word, add_special_tokens=False).ids
                if len(self._known) < MOST_CACHED:
                    self._known[word] = ids
            found += ids
        return found


def build(folder: Path, recipe: Recipe) -> dict[str, Any]:
    """Train the tokenizer unless ``folder`` has one, encode the corpus, cut the prompts."""
    texts = read_bytes(folder / CORPUS / TRAIN, "corpus").split(SEPARATOR)
    held = read_bytes(folder / CORPUS / HELD, "corpus").split(SEPARATOR)
    if len(held) % 2:
        raise InputError(str(folder / CORPUS / HELD), 0, "", "expected names and texts in turn")
    out = folder / TOKENS
    if (out / TOKENIZER).exists():
        tokenizer = open_tokenizer(out / TOKENIZER)
        vocabulary_fits(out / TOKENIZER, tokenizer.get_vocab_size(), recipe)
    else:
        tokenizer = train_tokenizer(_sample(texts, recipe.sample_bytes), recipe.target.vocabulary)
        vocabulary_fits(folder / CORPUS / TRAIN, tokenizer.get_vocab_size(), recipe)
        write_whole(out / TOKENIZER, tokenizer.to_str(pretty=False).encode())
    parts = list(_encoded(out / TOKENIZER, texts))
    encode = Encoder(tokenizer)
    held_ids = {name.decode(): _ids(encode, text) for name, text in zip(held[::2], held[1::2], strict=True)}
    ids = np.concatenate(parts)
    _save(out / IDS, ids)
    _save(out / HELD_IDS, np.concatenate(list(held_ids.values())))
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
    content = read_bytes(folder / TOKENS / name, "tokenizer")
    try:
        ids = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError) as error:  # EOFError: of an empty file
        raise InputError(str(folder / TOKENS / name), 0, "", "is not an array of ids") from error
    if not isinstance(ids, np.ndarray) or ids.dtype != np.uint16 or ids.ndim != 1:
        raise InputError(str(folder / TOKENS / name), 0, "", "is not an array of ids")
    return ids


def open_tokenizer(path: Path) -> Any:
    """The tokenizer in the file ``path``."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # of no class of its own
        raise InputError(str(path), 0, "", f"is not a tokenizer: {error}") from error


def _sample(texts: list[bytes], most: int) -> list[str]:
    taken, size = [], 0
    for text in texts:
        if size > most:
            break
        taken.append(text.decode())
        size += len(text)
    return taken


def _encoded(tokenizer: Path, texts: list[bytes]) -> Iterator[np.ndarray]:
    """Ids of each text, in their order; many texts are shared out to processes."""
    parts = [texts[first : first + PART] for first in range(0, len(texts), PART)]
    cores = len(os.sched_getaffinity(0))
    if cores == 1 or sum(map(len, texts)) < WORTH_WORKERS:
        _open(tokenizer)
        for part in parts:
            yield from _encode_part(part)
        return
    spawn = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    pool = ProcessPoolExecutor(cores, spawn, _open, (tokenizer,))
    try:
        for found in pool.map(_encode_part, parts):
            yield from found
    finally:
        pool.shutdown(cancel_futures=True)


_encoder: list[Encoder] = []  # of a worker: its cache lives as long as it does


def _open(tokenizer: Path) -> None:
    _encoder[:] = [Encoder(open_tokenizer(tokenizer))]


def _encode_part(texts: list[bytes]) -> list[np.ndarray]:
    return [_ids(_encoder[0], text) for text in texts]


def _ids(encode: Encoder, text: bytes) -> np.ndarray:
    """Ids of one text behind the id that ends the one before."""
    return np.array([END_OF_TEXT, *encode(text.decode())], dtype=np.uint16)


def _save(path: Path, ids: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.save(buffer, ids)
    write_whole(path, buffer.getvalue())
