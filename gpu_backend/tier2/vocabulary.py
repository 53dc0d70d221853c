"""The tokenizer of a GGUF: a byte-level BPE from its vocabulary and merges, split as SmolLM's is."""

from __future__ import annotations

from typing import Any

from gpu_backend.tier2.gguf import Gguf
from scenarios.errors import InputError, quote

MODEL, SPLIT = "gpt2", "smollm"  # in GGUF's words: byte-level BPE; single digits, then GPT-2's words
NORMAL, CONTROL = 1, 3  # types of tokens: those of text, those of a dialogue's frame


def tokenizer_of(found: Gguf, vocabulary: int) -> Any:
    """The tokenizer that ``found`` tells, of ``vocabulary`` ids; ``InputError`` for another kind."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    for key, wanted in (("model", MODEL), ("pre", SPLIT)):
        told = found.metadata.get(f"tokenizer.ggml.{key}")
        if told != wanted:
            raise InputError(found.file, 0, f"tokenizer.ggml.{key}", f"expected {wanted!r}, found {quote(told)}")
    tokens = _list(found, "tokens", str, vocabulary)
    kinds = _list(found, "token_type", int, vocabulary)
    ids = {token: number for number, token in enumerate(tokens)}
    if len(ids) < len(tokens):
        raise InputError(found.file, 0, "tokenizer.ggml.tokens", "expected each token once, found one twice")
    for number, kind in enumerate(kinds):
        if kind not in (NORMAL, CONTROL):
            problem = f"expected tokens of text ({NORMAL}) and of control ({CONTROL}), found {kind} of token {number}"
            raise InputError(found.file, 0, "tokenizer.ggml.token_type", problem)
    merges = []
    for merge in _list(found, "merges", str):
        left, blank, right = merge.partition(" ")
        if not blank or not {left, right, left + right} <= ids.keys():
            problem = f"expected two tokens that make a third one, found {quote(merge)}"
            raise InputError(found.file, 0, "tokenizer.ggml.merges", problem)
        merges.append((left, right))
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges))
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    return tokenizer


def _list(found: Gguf, key: str, kind: type, length: int | None = None) -> list[Any]:
    """A list in the metadata, of values of one kind."""
    told = found.metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(told, list) or not all(type(value) is kind for value in told):
        what = "texts" if kind is str else "integers"
        raise InputError(found.file, 0, f"tokenizer.ggml.{key}", f"expected a list of {what}, found {quote(told)}")
    if length is not None and len(told) != length:
        raise InputError(found.file, 0, f"tokenizer.ggml.{key}", f"expected {length} entries, found {len(told)}")
    return told
