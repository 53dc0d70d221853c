"""The tokenizer, a byte-level BPE, and texts as its ids. No torch: processes that encode start at once."""

from __future__ import annotations

import json
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
# SmolLM's, for text of ASCII alone: single digits, then GPT-2's words in what lies between them.
SPLIT_SMOL = re.compile(r"[0-9]|'(?:[sdmt]|ll|ve|re)| ?[A-Za-z]+| ?[^\sA-Za-z0-9]+|\s+(?![^\s0-9])|\s+", re.ASCII)
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
        self._split = split_of(tokenizer)
        self._special = [token.content for token in tokenizer.get_added_tokens_decoder().values()]

    def __call__(self, text: str) -> list[int]:
        if self._split is None or not text.isascii() or any(token in text for token in self._special):
            return self._tokenizer.encode(text, add_special_tokens=False).ids
        found: list[int] = []
        for word in self._split.findall(text):
            ids = self._known.get(word)
            if ids is None:
                ids = self._tokenizer.encode(word, add_special_tokens=False).ids
                if len(self._known) < MOST_CACHED:
                    self._known[word] = ids
            found += ids
        return found


def split_of(tokenizer: Any) -> re.Pattern[str] | None:
    """How the tokenizer splits text of ASCII into words that it encodes one by one; None for ways unknown here."""
    if tokenizer.pre_tokenizer is None or tokenizer.normalizer is not None:
        return None
    parts = json.loads(tokenizer.pre_tokenizer.__getstate__()).get("pretokenizers", [])
    if [part["type"] for part in parts] == ["Split", "ByteLevel"]:
        return SPLIT_ASCII if parts[0]["pattern"] == {"Regex": SPLIT} and not parts[1]["use_regex"] else None
    if [part["type"] for part in parts] == ["Digits", "ByteLevel"] and not parts[1]["add_prefix_space"]:
        return SPLIT_SMOL if parts[0]["individual_digits"] and parts[1]["use_regex"] else None
    return None


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
