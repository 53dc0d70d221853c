"""A Llama in GGUF as a target: its configuration, and its weights under the names of HF.

llama.cpp rotates neighbours, HF halves: the rows of a head's queries and keys are stored as pairs ``(0, half)``,
``(1, half + 1)`` and so on, and go back to halves here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from gpu_backend.modules.config import TargetConfig
from gpu_backend.tier2.gguf import Floats, Gguf
from scenarios.errors import InputError, quote

# Metadata, behind `llama.`, of the fields of a configuration.
FIELDS: dict[str, tuple[str, type]] = {
    "hidden": ("embedding_length", int),
    "layers": ("block_count", int),
    "heads": ("attention.head_count", int),
    "kv_heads": ("attention.head_count_kv", int),
    "head_dim": ("rope.dimension_count", int),
    "intermediate": ("feed_forward_length", int),
    "positions": ("context_length", int),
    "theta": ("rope.freq_base", float),
    "eps": ("attention.layer_norm_rms_epsilon", float),
}
EMBEDDING, HEAD = "token_embd.weight", "output.weight"
OUTER = {EMBEDDING: "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", HEAD: "lm_head.weight"}
INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def config_of(found: Gguf, dtype: torch.dtype) -> TargetConfig:
    """The configuration that ``found`` tells; ``InputError`` for what is no plain Llama."""
    told = found.metadata
    if told.get("general.architecture") != "llama":
        problem = f"expected 'llama', found {quote(told.get('general.architecture'))}"
        raise InputError(found.file, 0, "general.architecture", problem)
    scaling = told.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise InputError(found.file, 0, "llama.rope.scaling.type", f"expected 'none', found {quote(scaling)}")
    if EMBEDDING not in found.infos:
        raise InputError(found.file, 0, EMBEDDING, "expected this tensor, found none")
    values: dict[str, Any] = {}
    for name, (key, kind) in FIELDS.items():
        value: Any = told.get(f"llama.{key}")
        if type(value) is not kind or not value > 0:
            problem = f"expected a positive {'number' if kind is float else 'integer'}, found {quote(value)}"
            raise InputError(found.file, 0, f"llama.{key}", problem)
        values[name] = float(str(np.float32(value))) if kind is float else value  # 1e-05, not what float32 makes of it
    vocabulary = found.infos[EMBEDDING].shape[0]
    return TargetConfig(vocabulary, **values, qk_norm=False, dtype=dtype, tied=HEAD not in found.infos)


def require_config(found: Gguf, config: TargetConfig, wanted: TargetConfig) -> None:
    """``InputError`` for the first field in which ``config``, of ``found``, is another model than the one wanted."""
    for name, (key, _) in FIELDS.items():
        if getattr(config, name) != getattr(wanted, name):
            problem = f"expected {getattr(wanted, name)}, as this --size has, found {getattr(config, name)}"
            raise InputError(found.file, 0, f"llama.{key}", problem)
    if config.vocabulary != wanted.vocabulary:
        problem = f"expected {wanted.vocabulary} rows, as this --size has, found {config.vocabulary}"
        raise InputError(found.file, 0, EMBEDDING, problem)
    if config.tied != wanted.tied:
        raise InputError(found.file, 0, HEAD, "expected a head that is the embedding, found one of its own")


def weights_of(found: Gguf, config: TargetConfig, expected: dict[str, torch.Tensor]) -> Iterator[tuple[str, Floats]]:
    """Every tensor as float32 under HF's name: exactly the names and shapes of ``expected``."""
    missing = dict(expected)
    for name in found.infos:
        told = hf_name(name)
        if told not in missing:
            raise InputError(found.file, 0, name, "the configuration has no place for this tensor")
        shape, wanted = list(found.infos[name].shape), list(missing.pop(told).shape)
        if shape != wanted:
            raise InputError(found.file, 0, name, f"expected the shape {wanted}, found {shape}")
    if missing:
        raise InputError(found.file, 0, min(missing), "expected this tensor, found none")
    for name in found.infos:
        told, tensor = hf_name(name), found.tensor(name)
        if told.endswith("q_proj.weight"):
            tensor = halves(tensor, config.heads)
        elif told.endswith("k_proj.weight"):
            tensor = halves(tensor, config.kv_heads)
        yield told, tensor


def hf_name(name: str) -> str:
    """HF's name of a tensor; empty where it has none."""
    if name in OUTER:
        return OUTER[name]
    part, _, rest = name.removeprefix("blk.").partition(".")
    kind = rest.removesuffix(".weight")
    if not name.startswith("blk.") or not rest.endswith(".weight") or kind not in INNER or not part.isdecimal():
        return ""
    return f"model.layers.{part}.{INNER[kind]}.weight"


def halves(rows: Floats, heads: int) -> Floats:
    """Rows ``[heads * head_dim, inputs]`` of pairs as rows of halves."""
    return np.ascontiguousarray(rows.reshape(heads, -1, 2, rows.shape[1]).swapaxes(1, 2)).reshape(rows.shape)


def pairs(rows: Floats, heads: int) -> Floats:
    """The inverse of :func:`halves`: how llama.cpp stores them."""
    return np.ascontiguousarray(rows.reshape(heads, 2, -1, rows.shape[1]).swapaxes(1, 2)).reshape(rows.shape)
