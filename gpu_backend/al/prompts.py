"""Prompts of the experiment: held-out text that the pair was not trained on, each named by the hash of its ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from gpu_backend.train.chat import CHAT, read_chat
from gpu_backend.train.corpus import held_texts
from gpu_backend.train.encoding import Encoder, ids_of, open_tokenizer
from gpu_backend.train.files import TOKENS, read_prompts
from gpu_backend.train.tokens import HELD_IDS, PROMPTS, TOKENIZER, load_ids
from model.tokens import named_seed, stream_tokens
from scenarios.errors import InputError, quote

LETTERS, SPARE = 6, 256  # of a token at most, as a rule; ids behind a head that the end of its text may change


@dataclass(frozen=True, slots=True)
class Text:
    """One piece of text as token ids.

    In a dialogue it is a user's request as far as the text that it is about goes; ``end`` is what stands behind that
    text, and ``turn`` what stands before and behind a later message.
    """

    name: str
    ids: tuple[int, ...]
    end: tuple[int, ...] = ()
    turn: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    def prompt(self, length: int) -> tuple[int, ...]:
        """A first prompt of ``length`` tokens."""
        return (*self.ids[: length - len(self.end)], *self.end)

    def more(self, first: int, length: int) -> tuple[int, ...]:
        """A later message of ``length`` tokens, its frame at least: the text from token ``first`` on."""
        before, behind = self.turn
        return (*before, *self.ids[first:][: max(0, length - len(before) - len(behind))], *behind)

    def tail(self, number: int, length: int, first: int = 0) -> tuple[int, ...]:
        """What ends a first prompt: some ``length`` tokens of the text behind ``first``, from a place that ``number``
        names."""
        ids, own = self.ids[first:], max(1, length - len(self.end))
        place = (number * 3) % max(1, len(ids) - own)
        return (*ids[place : place + own], *self.end)

    @classmethod
    def of(cls, ids: np.ndarray) -> Text:
        """The piece ``ids``, any integers ``[n]``, with its name: the one that the training has for it."""
        kind = "<u2" if ids.max(initial=0) < 1 << 16 else "<u4"
        return cls(hashlib.sha256(ids.astype(kind).tobytes()).hexdigest()[:16], tuple(ids.tolist()))


def held_out(folder: Path, count: int, length: int) -> list[Text]:
    """``count`` pieces of ``length`` tokens that the pair in ``folder`` was not trained on.

    They are the prompts of its training, else cut from all that it held out, else from those modules of this Python's
    standard library that are held out always. InputError where all of that is too little.
    """
    if has_requests(folder):
        return _requests(folder, count, length)
    for source in (_prompts, _held, _library):
        found = source(folder, count, length)
        if len(found) == count:
            return [Text.of(ids) for ids in found]
    problem = f"expected {count} pieces of {length} tokens of held-out text, found fewer"
    raise InputError(str(folder / TOKENS), 0, "prompts", problem)


def require_known(folder: Path, texts: Sequence[Text], vocabulary: int) -> None:
    """InputError for a piece of text with an id that the weights in ``folder`` have no embedding of."""
    for text in texts:
        for one in chain(text.ids, text.end, *text.turn):
            if type(one) is not int or not 0 <= one < vocabulary:
                problem = f"expected ids of the target's vocabulary, 0 to {vocabulary - 1:,}, found {quote(one)}"
                raise InputError(str(folder / TOKENS), 0, f"text {text.name}", problem)


def has_requests(folder: Path) -> bool:
    """Whether the pair in ``folder`` was trained for a dialogue: its texts are a user's requests."""
    return (folder / TOKENS / CHAT).exists()


def sizes(folder: Path) -> tuple[int, int]:
    """How many requests there are in ``folder``, and how many tokens the shortest has."""
    lengths = [len(one["ids"]) for one in read_prompts(folder / TOKENS / PROMPTS)]
    if not lengths:
        raise InputError(str(folder / TOKENS / PROMPTS), 0, "", "expected requests, found none")
    return len(lengths), min(lengths)


def _requests(folder: Path, count: int, length: int) -> list[Text]:
    turn, path = read_chat(folder).turn, folder / TOKENS / PROMPTS
    told = [one for one in read_prompts(path) if len(one["ids"]) >= length]
    if not all(isinstance(one.get("name"), str) and isinstance(one.get("end"), int) for one in told):
        raise InputError(str(path), 0, "", "expected requests with name and end")
    if len(told) < count:
        raise InputError(str(path), 0, "", f"expected {count} requests of {length} tokens, found {len(told)}")
    found = []
    for one in told[:count]:
        begins = len(one["ids"]) - one["end"]
        found.append(Text(one["name"], tuple(one["ids"][:begins]), tuple(one["ids"][begins:]), turn))
    return found


def _prompts(folder: Path, count: int, length: int) -> list[np.ndarray]:
    path = folder / TOKENS / PROMPTS
    told = read_prompts(path) if path.exists() else []
    cut = [np.array(one["ids"][:length], dtype=np.int64) for one in told]
    return [ids for ids in cut if len(ids) == length][:count]


def _held(folder: Path, count: int, length: int) -> list[np.ndarray]:
    if not (folder / TOKENS / HELD_IDS).exists():
        return []
    every = load_ids(folder, HELD_IDS)
    stride = max(length, (len(every) - length) // count)
    return [every[first : first + length] for first in range(0, len(every) - length, stride)][:count]


def _library(folder: Path, count: int, length: int) -> list[np.ndarray]:
    """The prompts that a training cuts from these modules; no more of them is encoded than it takes."""
    if not (folder / TOKENS / TOKENIZER).exists():
        return []
    encode = Encoder(open_tokenizer(folder / TOKENS / TOKENIZER))
    return list(islice(_pieces([text.decode() for _, text in sorted(held_texts())], length, encode), count))


def _pieces(texts: list[str], length: int, encode: Encoder) -> Iterator[np.ndarray]:
    """Heads of all texts first, then second pieces, and so on."""
    number = 0
    while texts:
        end, left = (number + 1) * length, []
        for text in texts:
            ids = head_of(text, end, encode)
            if len(ids) == end:
                left.append(text)
                yield ids[number * length :]
        texts, number = left, number + 1


def head_of(text: str, length: int, encode: Encoder) -> np.ndarray:
    """The first ``length`` ids of a text, fewer if it has fewer; how the part of it that is encoded ends shows in none
    of them."""
    size = LETTERS * length
    while True:
        ids = ids_of(encode, text[:size].encode())
        if size >= len(text) or len(ids) >= length + SPARE:
            return ids[:length].astype(np.int64)
        size *= 2


def drawn(count: int, length: int, vocabulary: int, seed: int) -> list[Text]:
    """Pieces of random ids, for a pair that knows no language."""
    return [
        Text.of(stream_tokens(named_seed("al prompts", seed, number), 0, length, vocabulary)) for number in range(count)
    ]


def digest(texts: list[Text]) -> str:
    """SHA-256 over the names of all pieces: what a figure was measured on."""
    return hashlib.sha256(" ".join(text.name for text in texts).encode()).hexdigest()
