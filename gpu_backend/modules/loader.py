"""Targets and drafters from folders in the layout of HF: ``config.json`` beside safetensors.

Whatever cannot be run is refused in one line that names file and field (:class:`scenarios.errors.InputError`).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gpu_backend.modules.chain_schema import chain_config, is_chain
from gpu_backend.modules.config import DecoderConfig, DrafterConfig, TargetConfig
from gpu_backend.modules.drafters import AnyDrafter, drafter_module
from gpu_backend.modules.schema import DecoderFile, DrafterFile, TargetFile, parse, refuse_drafter, refuse_target
from gpu_backend.modules.target import Target
from gpu_backend.modules.weights import read_weights
from scenarios.errors import InputError, reason_of

CONFIG = "config.json"
NARROWEST = 16  # of a head: what a matrix instruction takes


def load_pair(
    target_folder: Path,
    drafter_folder: Path,
    device: torch.device | str,
    *,
    exact: bool = False,
    dtype: torch.dtype | None = None,
) -> tuple[Target, AnyDrafter]:
    """A target and its drafter, of the kind that its file names, ready on ``device``.

    Both compute in ``dtype``, by default the target file's.
    """
    drafter_config = drafter_config_of(drafter_folder, target_config_of(target_folder))
    target = load_target(target_folder, drafter_config.taps, dtype)
    drafter = drafter_module(replace(drafter_config, dtype=target.config.dtype))
    drafter.load_state_dict(read_weights(drafter_folder, drafter.state_dict(), target.config.dtype))
    return target.ready(device, exact=exact), drafter.ready(device, exact=exact)


def load_target(folder: Path, taps: tuple[int, ...] = (), dtype: torch.dtype | None = None) -> Target:
    """A target on the CPU, in its file's dtype or the one given; make it ready before use."""
    config = target_config_of(folder)
    config = config if dtype is None else replace(config, dtype=dtype)
    target = Target(config, taps)
    found = read_weights(folder, target.state_dict(), config.dtype, ignored=("lm_head.weight",) if config.tied else ())
    target.load_state_dict(found)
    return target


def target_config_of(folder: Path) -> TargetConfig:
    """The configuration in ``folder``; ``InputError`` if it is none or needs what this backend has no code for."""
    file, values = _json_of(folder)
    refuse_target(values, file)
    found: TargetFile = parse(TargetFile, values, file)
    qwen = found.architectures[0] == "Qwen3ForCausalLM"
    config = TargetConfig(
        **_shape(found), dtype=found.computes_in, qk_norm=qwen, windows=found.windows, tied=found.tie_word_embeddings
    )
    _require_kernels(config, found, file)
    return config


def drafter_config_of(folder: Path, target: TargetConfig) -> DrafterConfig:
    """The configuration of a drafter for ``target``."""
    file, values = _json_of(folder)
    if is_chain(values):
        config, shape = chain_config(values, file, target, _shape)
        _require_kernels(config, shape, file)
        _require_target(config, target, file)
        return config
    refuse_drafter(values, file)
    found: DrafterFile = parse(DrafterFile, values, file)
    block = found.dflash_config.block_size or found.block_size
    if block is None:
        raise InputError(file, 0, "block_size", "expected a value, found none")
    config = DrafterConfig(
        **_shape(found), dtype=target.dtype, windows=found.windows, taps=tuple(found.dflash_config.target_layer_ids),
        target_layers=found.num_target_layers, block=block, mask_token=found.dflash_config.mask_token_id,
        logits_start=0 if found.dflash_config.sample_from_anchor else 1, **_heads(found, file),
    )  # fmt: skip
    _require_kernels(config, found, file)
    _require_fit(config, target, file)
    return config


def _heads(found: DrafterFile, file: str) -> dict[str, Any]:
    """Kind and heads of a drafter."""
    told = found.dflash_config
    if found.architectures[0] != "DSparkDraftModel":
        if told.markov_rank or told.enable_confidence_head:
            raise InputError(file, 0, "architectures", "expected DSparkDraftModel, as the drafter has its heads")
        return {}
    confidence = ("markov" if told.confidence_head_with_markov else "hidden") if told.enable_confidence_head else ""
    if confidence == "markov" and not told.markov_rank:
        raise InputError(file, 0, "dflash_config.markov_rank", "expected a rank, as the confidence head reads it")
    return {
        "kind": "dspark", "markov_rank": told.markov_rank, "markov": told.markov_head_type, "confidence": confidence,
    }  # fmt: skip


def _json_of(folder: Path) -> tuple[str, dict[str, Any]]:
    path = folder / CONFIG
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), 0, "", f"cannot be read: {reason_of(error)}") from error
    except json.JSONDecodeError as error:
        raise InputError(str(path), error.lineno, "", f"is not JSON: {error.msg}") from error
    if not isinstance(values, dict):
        raise InputError(str(path), 0, "", "expected a mapping")
    return str(path), values


def _shape(found: DecoderFile) -> dict[str, Any]:
    return {
        "vocabulary": found.vocab_size,
        "hidden": found.hidden_size,
        "layers": found.num_hidden_layers,
        "heads": found.num_attention_heads,
        "kv_heads": found.num_key_value_heads,
        "head_dim": found.head_dim or found.hidden_size // found.num_attention_heads,
        "intermediate": found.intermediate_size,
        "positions": found.max_position_embeddings,
        "theta": found.theta,
        "eps": found.rms_norm_eps,
    }


def _require_kernels(config: DecoderConfig, found: DecoderFile, file: str) -> None:
    """``InputError`` if the attention kernel cannot take the heads, or the layers' windows are not told."""
    if config.heads % config.kv_heads:
        problem = f"expected a multiple of num_key_value_heads {config.kv_heads}, found {config.heads}"
        raise InputError(file, 0, "num_attention_heads", problem)
    if config.head_dim < NARROWEST or config.head_dim & (config.head_dim - 1):
        problem = f"expected a power of two of at least {NARROWEST}, found {config.head_dim}"
        raise InputError(file, 0, "head_dim", problem)
    if len(config.windows) != config.layers:
        raise InputError(
            file, 0, "layer_types", f"expected {config.layers} entries, one a layer, found {len(config.windows)}"
        )
    if found.layer_types and "sliding_attention" in found.layer_types and not any(config.windows):
        field = "sliding_window" if found.use_sliding_window else "use_sliding_window"
        raise InputError(file, 0, field, "expected the window of the sliding layers, found none")


def _require_target(config: DrafterConfig, target: TargetConfig, file: str) -> None:
    """``InputError`` if the drafter was made for another target."""
    pairs = (
        ("vocab_size", config.vocabulary, target.vocabulary),
        ("hidden_size", config.hidden, target.hidden),
        ("num_target_layers", config.target_layers, target.layers),
    )
    for field, found, wanted in pairs:
        if found != wanted:
            raise InputError(file, 0, field, f"expected the target's {wanted}, found {found}")


def _require_fit(config: DrafterConfig, target: TargetConfig, file: str) -> None:
    """``InputError`` if the drafter was made for another target, or its block does not fit its window."""
    _require_target(config, target, file)
    last = target.layers - 1
    for place, tap in enumerate(config.taps):
        field = f"dflash_config.target_layer_ids[{place}]"
        if tap == last:
            raise InputError(file, 0, field, f"the target's last layer ({last}) cannot be tapped")
        if tap > last:
            raise InputError(file, 0, field, f"expected a layer below {last}, found {tap}")
    if config.mask_token >= target.vocabulary:
        problem = f"expected a token below {target.vocabulary}, found {config.mask_token}"
        raise InputError(file, 0, "dflash_config.mask_token_id", problem)
    narrowest = min((window for window in config.windows if window is not None), default=config.block)
    if narrowest < config.block:
        raise InputError(file, 0, "sliding_window", f"expected at least the block's {config.block}, found {narrowest}")
