"""Which keys of a drafter's file say nothing about what it computes; every other one is read or refused by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from scenarios.errors import InputError, quote

# Of any Qwen3: read by DecoderFile, or refused by refuse_shared and refuse_biases.
DECODER = frozenset((
    "architectures", "attention_bias", "dtype", "head_dim", "hidden_act", "hidden_size", "intermediate_size",
    "layer_types", "max_position_embeddings", "max_window_layers", "mlp_bias", "num_attention_heads",
    "num_hidden_layers", "num_key_value_heads", "partial_rotary_factor", "quantization_config", "rms_norm_eps",
    "rope_parameters", "rope_scaling", "rope_theta", "sliding_window", "torch_dtype", "use_sliding_window",
    "vocab_size",
))  # fmt: skip
NEUTRAL = frozenset((
    "attention_dropout", "auto_map", "bos_token_id", "chunk_size_feed_forward", "eos_token_id", "id2label",
    "initializer_range", "is_encoder_decoder", "label2id", "model_type", "name_or_path", "output_attentions",
    "output_hidden_states", "pad_token_id", "pretraining_tp", "problem_type", "return_dict", "tie_word_embeddings",
    "tokenizer_class", "transformers_version", "use_cache",
))  # fmt: skip
TRAINING = frozenset((
    "ce_loss_alpha", "confidence_head_alpha", "dpace_alpha", "kl_loss_alpha", "l1_loss_alpha", "loss_decay_gamma",
    "max_anchors", "num_anchors", "per_position_loss_weight",
))  # fmt: skip
DFLASH2 = ("selector_rank", "selector_top_k", "conv_kernel_size", "conv_group_size")
UNSCALED = {"input_embedding_scale": 1.0, "output_multiplier": 1.0, "final_logit_softcapping": 0.0}


def slides(keys: Mapping[str, Any]) -> bool:
    """Whether a decoder's keys name a sliding layer."""
    found = keys.get("layer_types")
    return isinstance(found, list) and "sliding_attention" in found


def require_known(keys: Mapping[str, Any], known: Collection[str], file: str, packaging: str, place: str = "") -> None:
    """InputError for the first key of ``keys``, which stand at ``place``, that this packaging does not have.

    A null says nothing, nor does a key with an underscore in front.
    """
    for key, value in keys.items():
        if key in DFLASH2:
            raise InputError(file, 0, place + key, "DFlash2 checkpoints are not supported")
        if value is None or key.startswith("_") or key in known or key in NEUTRAL:
            continue
        if key in UNSCALED:
            if value != UNSCALED[key]:
                raise InputError(file, 0, place + key, f"expected {UNSCALED[key]}, found {quote(value)}")
            continue
        near = get_close_matches(key, known, 1)
        hint = f" ({place}{near[0]} is one)" if near else ""
        raise InputError(file, 0, place + key, f"unknown to {packaging}, expected no such key{hint}")
