"""One tiny drafter in every packaging: config.json and weights as each of them writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from gpu_backend.modules.config import DrafterConfig
from gpu_backend.modules.tier0 import TINY, drafter_for, random_drafter, random_target

TARGET = replace(TINY, layers=6)
DFLASH = drafter_for(TARGET, block=4)
ANCHORED = drafter_for(TARGET, block=3, logits_start=0)
DSPARK = replace(drafter_for(TARGET, block=3, logits_start=0, markov_rank=8), markov="gated", confidence="markov")
FEWER = replace(DSPARK, drawn=100)
Pack = Callable[[Path, DrafterConfig], Path]


def tensors_of(config: DrafterConfig) -> dict[str, torch.Tensor]:
    """The drafter's own weights."""
    return {name: tensor.contiguous() for name, tensor in random_drafter(config, 3).state_dict().items()}


def copies() -> dict[str, torch.Tensor]:
    """The target's embedding and head, as some packagings carry them along."""
    target = random_target(TARGET, 3)
    return {"embed_tokens.weight": target.model.embed_tokens.weight.detach(), "lm_head.weight": target.head_weight}


def write(folder: Path, values: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Path:
    """A folder with both."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(values))
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


def decoder(config: DrafterConfig) -> dict[str, Any]:
    """Keys of the decoder, among them those that say nothing here."""
    return {
        "model_type": "qwen3", "vocab_size": config.vocabulary, "hidden_size": config.hidden,
        "num_hidden_layers": config.layers, "num_attention_heads": config.heads, "head_dim": config.head_dim,
        "num_key_value_heads": config.kv_heads, "intermediate_size": config.intermediate, "hidden_act": "silu",
        "max_position_embeddings": config.positions, "rms_norm_eps": config.eps, "attention_bias": False,
        "attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": True, "rope_scaling": None,
        "sliding_window": None, "use_sliding_window": False, "max_window_layers": 28, "tie_word_embeddings": False,
        "layer_types": ["full_attention"] * config.layers, "bos_token_id": 0, "eos_token_id": 1,
    }  # fmt: skip


def heads(config: DrafterConfig) -> dict[str, Any]:
    """Keys of DSpark's heads."""
    return {
        "markov_rank": config.markov_rank, "markov_head_type": config.markov,
        "enable_confidence_head": bool(config.confidence),
        "confidence_head_with_markov": config.confidence == "markov",
    }  # fmt: skip


def zlab(folder: Path, config: DrafterConfig) -> Path:
    """The block's size nested, as in newer files."""
    inner: dict[str, Any] = {
        "mask_token_id": config.mask_token, "target_layer_ids": list(config.taps), "block_size": config.block,
    }  # fmt: skip
    if config.logits_start == 0:
        inner["sample_from_anchor"] = True
    values = {
        "architectures": ["DFlashDraftModel"], "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
        **decoder(config), "rope_theta": config.theta, "num_target_layers": config.target_layers,
        "torch_dtype": "float32", "dflash_config": inner,
    }  # fmt: skip
    return write(folder, values, tensors_of(config))


def specforge(folder: Path, config: DrafterConfig) -> Path:
    """The block's size at the top; DSpark's heads in ``dflash_config``, their tensors in a container."""
    inner: dict[str, Any] = {"mask_token_id": config.mask_token, "target_layer_ids": list(config.taps)}
    name, tensors = "DFlashDraftModel", tensors_of(config)
    if config.kind == "dspark":
        name, inner = "DSparkDraftModel", {**inner, "projector_type": "dspark", **heads(config), "shift_label": True}
        tensors = {f"logit_head.{key}" if "_head." in key else key: one for key, one in tensors.items()}
    elif config.logits_start == 0:
        inner["shift_label"] = True
    values = {
        "architectures": [name], **decoder(config), "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        "num_target_layers": config.target_layers, "block_size": config.block, "dtype": "float32",
        "is_causal": False, "dflash_config": inner,
    }  # fmt: skip
    return write(folder, values, tensors)


def deepspec(folder: Path, config: DrafterConfig) -> Path:
    """Everything at the top, and copies of the target's embedding and head."""
    values = {
        "architectures": ["Qwen3DSparkModel"], **decoder(config), "rope_theta": config.theta,
        "num_target_layers": config.target_layers, "block_size": config.block, "mask_token_id": config.mask_token,
        "target_layer_ids": list(config.taps), "num_anchors": 512, **heads(config),
    }  # fmt: skip
    return write(folder, values, tensors_of(config) | copies())


def speculators(folder: Path, config: DrafterConfig) -> Path:
    """The decoder's keys nested, ids of what goes into a layer, masks of a vocabulary that is not reduced."""
    values = {
        "architectures": ["DFlashSpeculator"], "speculators_model_type": config.kind, "speculators_version": "0.5.0",
        "transformer_layer_config": {**decoder(config), "rope_theta": config.theta}, "torch_dtype": "float32",
        "aux_hidden_state_layer_ids": [tap + 1 for tap in config.taps], "mask_token_id": config.mask_token,
        "block_size": config.block, "draft_vocab_size": config.drawn or config.vocabulary,
        "sliding_window_non_causal": False,
        "sample_from_anchor": config.logits_start == 0, "target_hidden_size": None, "tie_word_embeddings": False,
        "speculators_config": {
            "algorithm": config.kind, "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": config.drafts}],
        },
        **(heads(config) if config.kind == "dspark" else {}),
    }  # fmt: skip
    own, masked = tensors_of(config), torch.zeros(config.vocabulary, dtype=torch.bool)
    ids = torch.arange(config.drawn) + own["d2t"] if config.drawn else torch.arange(config.vocabulary)
    masked[ids] = True
    extra = {"embed_tokens.weight": copies()["embed_tokens.weight"], "t2d": masked}
    return write(folder, values, own | extra)
