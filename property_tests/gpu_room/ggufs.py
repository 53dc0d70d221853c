"""Small GGUF files, written byte by byte, and scalar readings of their blocks."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from gpu_backend.modules.config import TargetConfig
from gpu_backend.modules.target import Target
from gpu_backend.tier2.llama import EMBEDDING, INNER, pairs
from gpu_backend.train.chat import ASKED, ASSISTANT, OPENING
from gpu_backend.train.optimiser import start

F32, Q4_1, Q8_0 = 0, 3, 8
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<control_{number}>" for number in range(14)))
FRAMES = [OPENING, ASSISTANT, *(part for pair in ASKED.values() for part in pair)] * 50  # learnt well: short prompts
Stored = Mapping[str, tuple[tuple[int, ...], int, bytes]]  # shape, rows first, type and content


def text(value: str) -> bytes:
    """A text with its length."""
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def value(told: Any) -> bytes:
    """Metadata with its type: texts, booleans, integers, floats, and lists of texts or integers."""
    if isinstance(told, str):
        return struct.pack("<I", 8) + text(told)
    if isinstance(told, bool):
        return struct.pack("<IB", 7, told)
    if isinstance(told, int):
        return struct.pack("<II", 4, told)
    if isinstance(told, float):
        return struct.pack("<If", 6, told)
    if told and isinstance(told[0], int):
        return struct.pack("<IIQ", 9, 5, len(told)) + struct.pack(f"<{len(told)}i", *told)
    return struct.pack("<IIQ", 9, 8, len(told)) + b"".join(map(text, told))


def gguf(metadata: Mapping[str, Any], tensors: Stored, *, magic: bytes = b"GGUF", version: int = 3) -> bytes:
    """A file; tensors begin at multiples of 32."""
    head = magic + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(text(key) + value(told) for key, told in metadata.items())
    body = b""
    for name, (shape, kind, content) in tensors.items():
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        head += struct.pack("<IQ", kind, len(body))
        body += content + bytes(-len(content) % 32)
    return head + bytes(-len(head) % 32) + body


def half(number: float) -> bytes:
    """A number in 16 bits."""
    return struct.pack("<e", number)


def scalar_q4_1(content: bytes) -> list[float]:
    """Weights of blocks of Q4_1, one by one."""
    found = []
    for first in range(0, len(content), 20):
        scale, least = struct.unpack("<ee", content[first : first + 4])
        pairs_of = content[first + 4 : first + 20]
        found += [scale * (byte % 16) + least for byte in pairs_of] + [
            scale * (byte // 16) + least for byte in pairs_of
        ]
    return found


def scalar_q8_0(content: bytes) -> list[float]:
    """Weights of blocks of Q8_0, one by one."""
    found = []
    for first in range(0, len(content), 34):
        (scale,) = struct.unpack("<e", content[first : first + 2])
        found += [scale * one for one in struct.unpack("<32b", content[first + 2 : first + 34])]
    return found


def as_q4_1(weights: np.ndarray) -> bytes:
    """Blocks of Q4_1 near ``weights``."""
    found = b""
    for block in weights.reshape(-1, 32):
        scale = (block.max() - block.min()) / 15 or 1.0
        quantised = np.clip(np.round((block - block.min()) / scale), 0, 15).astype(np.uint8)
        found += half(scale) + half(block.min()) + (quantised[:16] | quantised[16:] << 4).tobytes()
    return found


def as_q8_0(weights: np.ndarray) -> bytes:
    """Blocks of Q8_0 near ``weights``."""
    found = b""
    for block in weights.reshape(-1, 32):
        scale = abs(block).max() / 127 or 1.0
        found += half(scale) + np.round(block / scale).astype(np.int8).tobytes()
    return found


def metadata(config: TargetConfig, tokens: list[str], merges: list[str]) -> dict[str, Any]:
    """What a file tells of a Llama and of its tokenizer, whose first tokens are those of control."""
    return {
        "general.architecture": "llama",
        "general.name": "a small one",
        "general.license": "apache-2.0",
        "llama.block_count": config.layers,
        "llama.context_length": config.positions,
        "llama.embedding_length": config.hidden,
        "llama.feed_forward_length": config.intermediate,
        "llama.attention.head_count": config.heads,
        "llama.attention.head_count_kv": config.kv_heads,
        "llama.rope.freq_base": config.theta,
        "llama.attention.layer_norm_rms_epsilon": config.eps,
        "llama.rope.dimension_count": config.head_dim,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(CONTROL) + [1] * (len(tokens) - len(CONTROL)),
        "tokenizer.ggml.merges": merges,
    }


def tensors(config: TargetConfig, seed: int = 1) -> Stored:
    """Random weights as llama.cpp stores them: gains as they are, the embedding in Q8_0, matrices in Q4_1."""
    target = Target(config)
    start(target, config.layers, seed)
    names = {told: name for name, told in INNER.items()}
    found: dict[str, tuple[tuple[int, ...], int, bytes]] = {}
    for name, tensor in target.state_dict().items():
        weights = tensor.numpy()
        if name == "model.embed_tokens.weight":
            found[EMBEDDING] = (weights.shape, Q8_0, as_q8_0(weights))
        elif name == "model.norm.weight":
            found["output_norm.weight"] = (weights.shape, F32, weights.tobytes())
        else:
            _, _, layer, *kind, _ = name.split(".")
            stored = names[".".join(kind)]
            heads = {"attn_q": config.heads, "attn_k": config.kv_heads}.get(stored)
            rows = weights if heads is None else pairs(weights, heads)
            content = rows.tobytes() if rows.ndim == 1 else as_q4_1(rows)
            found[f"blk.{layer}.{stored}.weight"] = (rows.shape, F32 if rows.ndim == 1 else Q4_1, content)
    return found


def vocabulary(texts: list[str], size: int) -> tuple[list[str], list[str]]:
    """Tokens and merges of a byte-level BPE that is learnt from ``texts`` behind the tokens of control."""
    import json

    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=size, special_tokens=list(CONTROL), initial_alphabet=alphabet, show_progress=False
        ),
    )
    told = json.loads(tokenizer.to_str())["model"]
    return sorted(told["vocab"], key=told["vocab"].get), [" ".join(pair) for pair in told["merges"]]


def small_file(config: TargetConfig, texts: list[str], **changed: Any) -> bytes:
    """A whole file of ``config``; ``changed`` metadata has dots for double underscores, None leaves a key out."""
    told = metadata(config, *vocabulary(texts, config.vocabulary))
    for key, new in changed.items():
        told[key.replace("__", ".")] = new
    return gguf({key: new for key, new in told.items() if new is not None}, tensors(config))


def state_of(found: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Arrays as tensors."""
    return {name: torch.from_numpy(array) for name, array in found.items()}
