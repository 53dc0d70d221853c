"""Targets and drafters to folders that the loader, and HF's own, read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gpu_backend.modules.chain_schema import EAGLE3, MTP
from gpu_backend.modules.config import DecoderConfig, DrafterConfig, TargetConfig
from gpu_backend.modules.loader import CONFIG
from gpu_backend.modules.schema import DTYPES
from gpu_backend.modules.weights import INDEX, SINGLE

NAMES = {dtype: name for name, dtype in DTYPES.items()}


def save(folder: Path, module: nn.Module, config: TargetConfig | DrafterConfig, *, most_bytes: int = 1 << 40) -> None:
    """Write ``config.json`` and weights of ``module`` in its configuration's dtype, at most ``most_bytes`` a file.

    A file holds one tensor at least. More than one file comes with an index. ``ValueError`` if layers have different
    windows, which the layout cannot tell.
    """
    from safetensors.torch import save as packed  # the only part of this room that needs it

    keys = _target_keys(config) if isinstance(config, TargetConfig) else _drafter_keys(config)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.to("cpu", config.dtype).contiguous() for name, tensor in module.state_dict().items()}
    parts: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if parts[-1] and size + tensor.nbytes > most_bytes:
            parts.append({})
            size = 0
        parts[-1][name] = tensor
        size += tensor.nbytes
    names = [f"model-{number:05}-of-{len(parts):05}.safetensors" for number in range(1, len(parts) + 1)]
    names = names if len(parts) > 1 else [SINGLE]
    for name, part in zip(names, parts, strict=True):
        (folder / name).write_bytes(packed(part, metadata={"format": "pt"}))  # their own writer leaves out the umask
    if len(parts) > 1:
        placed = {tensor: name for name, part in zip(names, parts, strict=True) for tensor in part}
        total = sum(tensor.nbytes for tensor in tensors.values())
        _write(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": placed})
    _write(folder / CONFIG, keys)


def _write(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def _shared_keys(config: DecoderConfig) -> dict[str, Any]:
    windows = sorted({window for window in config.windows if window is not None})
    if len(windows) > 1:
        raise ValueError(f"a file names one window for all sliding layers, found {' and '.join(map(str, windows))}")
    window = windows[0] if windows else None
    return {
        "model_type": "qwen3" if config.qk_norm else "llama",
        "vocab_size": config.vocabulary,
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate,
        "max_position_embeddings": config.positions,
        "rms_norm_eps": config.eps,
        "rope_theta": config.theta,
        "hidden_act": "silu",
        "attention_bias": False,
        "torch_dtype": NAMES[config.dtype],
        "use_sliding_window": window is not None,
        "sliding_window": window,
        "layer_types": [
            "full_attention" if config.window(layer) is None else "sliding_attention" for layer in range(config.layers)
        ],
    }


def _target_keys(config: TargetConfig) -> dict[str, Any]:
    architecture = "Qwen3ForCausalLM" if config.qk_norm else "LlamaForCausalLM"
    return {"architectures": [architecture], **_shared_keys(config), "tie_word_embeddings": config.tied}


def _drafter_keys(config: DrafterConfig) -> dict[str, Any]:
    if config.chained:
        return _chain_keys(config)
    if config.drawn:
        raise ValueError("this packaging has no place for a reduced draft vocabulary")
    nested: dict[str, Any] = {
        "mask_token_id": config.mask_token,
        "target_layer_ids": list(config.taps),
        "block_size": config.block,
        "sample_from_anchor": config.logits_start == 0,
    }
    if config.kind == "dspark":
        nested |= {
            "projector_type": "dspark",
            "markov_rank": config.markov_rank,
            "markov_head_type": config.markov,
            "enable_confidence_head": bool(config.confidence),
            "confidence_head_with_markov": config.confidence == "markov",
        }
    return {
        "architectures": ["DSparkDraftModel" if config.kind == "dspark" else "DFlashDraftModel"],
        **_shared_keys(config),
        "tie_word_embeddings": False,
        "is_causal": _causal(config),
        "num_target_layers": config.target_layers,
        "block_size": config.block,
        "dflash_config": nested,
    }


def _causal(config: DrafterConfig) -> bool | None:
    """One word on all layers; none where those that slide are causal and the others are not."""
    causal = [config.is_causal(layer) for layer in range(config.layers)]
    if len(set(causal)) == 1:
        return causal[0]
    if causal != [config.window(layer) is not None for layer in range(config.layers)]:
        raise ValueError("a file tells causal layers apart by whether they slide, found others")
    return None


def _chain_keys(config: DrafterConfig) -> dict[str, Any]:
    found = {
        **_shared_keys(config),
        "tie_word_embeddings": False,
        "draft_vocab_size": config.vocabulary,
        "num_target_layers": config.target_layers,
        "num_speculative_tokens": config.drafts,
    }
    if config.kind == "eagle3":
        tapped = {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": list(config.taps)}
        return {"architectures": [EAGLE3], **found, "eagle_config": tapped}
    return {"architectures": [MTP], **found, "num_nextn_predict_layers": config.depth}
