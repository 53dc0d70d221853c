"""The tokenizer, a byte-level BPE, and texts as its ids. No torch: processes that encode start at once."""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.errors import InputError

SPECIAL = ("<|endoftext|>", "<|mask|>", "<|pad|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(11)))
END_OF_TEXT, MASK = 0, 1
# Words with one character before them, single digits, punctuation, line ends, blanks (after Qwen2).
SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# The same for text of ASCII alone, in the words of `re`.
SPLIT_ASCII = re.compile(
    r"[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+", re.ASCII
)
MOST_CACHED = 400_000
PART = 100  # texts that a worker takes at a time
WORTH_WORKERS = 20_000_000  # bytes of texts from which on workers are started


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


def open_tokenizer(path: Path) -> Any:
    """The tokenizer in the file ``path``."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # of no class of its own
        raise InputError(str(path), 0, "", f"is not a tokenizer: {error}") from error


def encoded(tokenizer: Path, texts: list[bytes]) -> Iterator[np.ndarray]:
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
    return [ids_of(_encoder[0], text) for text in texts]


def ids_of(encode: Encoder, text: bytes) -> np.ndarray:
    """Ids of one text behind the id that ends the one before."""
    return np.array([END_OF_TEXT, *encode(text.decode())], dtype=np.uint16)
