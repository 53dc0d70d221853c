"""Real text for prompts that a scenario only names: equal names give equal text, so that shared prefixes share text.

A scenario's prompt is made of runs: so many tokens of an endless stream that a seed names. Here each seed names a place
in one line of held-out text, where its run begins and goes on for as long as it is asked to. The place is a hash of the
seed: the order of requests, and so the build, changes none of it. A run that is to differ at once from its siblings
begins at a place whose token no sibling begins with, and which is not how the text before it would have gone on, so
prompts branch where the scenario says. Ids that a scenario spells out stay as they are, and the output in the prompt of
a later turn is the one that was really written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpu_backend.train.corpus import held_texts
from gpu_backend.train.encoding import END_OF_TEXT, SPECIAL, open_tokenizer
from gpu_backend.train.files import TOKENS, read_prompts
from gpu_backend.train.tokens import HELD_IDS, PROMPTS, TOKENIZER, load_ids
from model.config import RequestSpec
from model.tokens import Segment, mix64
from scenarios.errors import InputError

Ids = NDArray[np.int64]
Written = Callable[[int], Ids | None]  # the output with this seed, as far as a device committed it
ENOUGH = 1 << 17  # tokens of the standard library
SPARE = 2  # first tokens for runs whose own would go on with the text before them


class Texts:
    """A line of token ids ``[tokens]``, documents one behind the other; at least a few different tokens."""

    def __init__(self, ids: Ids, source: str) -> None:
        self.ids, self.source = ids, source
        token, count = np.unique(ids[ids >= len(SPECIAL)], return_counts=True)
        if len(token) <= SPARE:
            raise InputError(source, 0, "", f"expected text of more than {SPARE} different tokens, found {len(token)}")
        self.firsts = token[np.lexsort((token, -count))]  # the most frequent first
        self._order = np.argsort(ids, kind="stable")
        self._sorted = ids[self._order]

    @property
    def name(self) -> str:
        """Hash of the content: another Python's standard library is another text."""
        return hashlib.sha256(self.ids.astype("<u4").tobytes()).hexdigest()[:16]

    def start(self, segment: Segment, before: int | None) -> int:
        """Place where the text of a run begins; ``before``: how the text in front of it would have gone on."""
        where = mix64(segment.seed & ((1 << 64) - 1))
        if segment.first < 0:
            return where % len(self.ids)
        token = int(self.firsts[segment.first % (len(self.firsts) - SPARE)])
        spare = (int(one) for one in self.firsts[-SPARE:])
        while token == before:
            token = next(spare)
        low, high = np.searchsorted(self._sorted, (token, token + 1)).tolist()
        return int(self._order[low + where % (high - low)])

    def run(self, begin: int, length: int) -> Ids:
        """``length`` ids from ``begin`` on; behind the end of the line comes its beginning."""
        return self.ids[(begin + np.arange(length)) % len(self.ids)]


class Spoken:
    """Requests with text in the place of streams; ``written`` knows outputs."""

    def __init__(self, texts: Texts | None, written: Written) -> None:
        self.texts, self.written = texts, written

    def told(self, spec: RequestSpec) -> RequestSpec:
        """``spec`` with every id of its prompt spelled out, as far as there is text or an output for it."""
        prompt: list[Segment] = []
        goes_on: int | None = None
        for segment in spec.prompt:
            output = None if segment.literal else self.written(segment.seed)
            if output is not None and len(output) >= segment.length:
                prompt.append(_literal(output[: segment.length]))
                goes_on = None
            elif segment.literal or self.texts is None or not segment.length:
                prompt.append(segment)
                goes_on = None
            else:
                begin = self.texts.start(segment, goes_on)
                ids = self.texts.run(begin, segment.length + 1)
                prompt.append(_literal(ids[:-1]))
                goes_on = int(ids[-1])
        return replace(spec, prompt=tuple(prompt))


def _literal(ids: Ids) -> Segment:
    return Segment.of(tuple(ids.tolist()))


def open_texts(folder: Path, vocabulary: int) -> Texts | None:
    """Text beside the weights in ``folder``, as ids below ``vocabulary``; None where there is no tokenizer either.

    What was held out of the training, or its evaluation prompts, where the training left them; else the modules of the
    standard library that are held out always, by the tokenizer beside the weights (in ``tokens`` or in ``target``).
    """
    ids, source = _found(folder)
    if ids is None:
        return None
    if len(ids) and int(ids.max()) >= vocabulary:
        problem = f"expected ids below the target's vocabulary of {vocabulary}, found {int(ids.max())}"
        raise InputError(str(source), 0, "", problem)
    return Texts(ids, str(source))


def _found(folder: Path) -> tuple[Ids | None, Path]:
    if (folder / TOKENS / HELD_IDS).exists():
        return load_ids(folder, HELD_IDS).astype(np.int64), folder / TOKENS / HELD_IDS
    path = folder / TOKENS / PROMPTS
    if path.exists():
        ids = [token for prompt in read_prompts(path) for token in prompt["ids"]]
        return np.array(ids, dtype=np.int64), path
    for path in (folder / TOKENS / TOKENIZER, folder / "target" / TOKENIZER):
        if path.exists():
            return _of_the_standard_library(path), path
    return None, folder


def _of_the_standard_library(path: Path) -> Ids:
    """Held-out modules by the tokenizer in ``path``, each behind the id that ends a text, if it has one."""
    tokenizer = open_tokenizer(path)
    end = tokenizer.token_to_id(SPECIAL[END_OF_TEXT])
    found: list[int] = []
    for _, text in held_texts():
        found += [] if end is None else [end]
        found += tokenizer.encode(text.decode(), add_special_tokens=False).ids
        if len(found) >= ENOUGH:
            break
    return np.array(found, dtype=np.int64)
