"""Targets and drafters from folders in the layout of HF: ``config.json`` beside safetensors.

Whatever cannot be run is refused in one line that names file and field (:class:`scenarios.errors.InputError`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gpu_backend.modules.chain_schema import chain_config, is_chain
from gpu_backend.modules.config import DecoderConfig, DrafterConfig, TargetConfig
from gpu_backend.modules.drafters import AnyDrafter, drafter_module
from gpu_backend.modules.packagings.block import causal_layers, require_fit, require_ids
from gpu_backend.modules.packagings.choice import read_drafter
from gpu_backend.modules.packagings.told import Told
from gpu_backend.modules.schema import DecoderFile, TargetFile, parse, refuse_target
from gpu_backend.modules.target import Target
from gpu_backend.modules.weights import read_weights
from scenarios.errors import InputError
from scenarios.jsonfile import load_mapping

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
    drafter_config, told = _drafter_of(drafter_folder, target_config_of(target_folder))
    target = load_target(target_folder, drafter_config.taps, dtype)
    drafter = drafter_module(replace(drafter_config, dtype=target.config.dtype))
    own = {"model.embed_tokens.weight": target.model.embed_tokens.weight, "lm_head.weight": target.head_weight}
    found = read_weights(
        drafter_folder, drafter.state_dict(), target.config.dtype, ignored=told.ignored if told else (),
        copies={name: own[source] for name, source in told.copies.items()} if told else {},
        renamed=told.renamed if told else {},
    )  # fmt: skip
    if drafter_config.drawn:
        require_ids(found["d2t"], target.config.vocabulary, str(drafter_folder))
    drafter.load_state_dict(found)
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
    file, values = str(folder / CONFIG), load_mapping(folder / CONFIG)
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
    return _drafter_of(folder, target)[0]


def _drafter_of(folder: Path, target: TargetConfig) -> tuple[DrafterConfig, Told | None]:
    """A drafter's configuration, and what else the file of a block drafter tells of its weights."""
    file, values = str(folder / CONFIG), load_mapping(folder / CONFIG)
    if is_chain(values):
        config, shape = chain_config(values, file, target, _shape)
        _require_kernels(config, shape, file)
        _require_target(config, target, file)
        return config, None
    told = read_drafter(values, file)
    found: DecoderFile = parse(DecoderFile, told.body, file, told.place)
    config = DrafterConfig(
        **_shape(found), dtype=target.dtype, windows=found.windows, kind=told.kind, taps=told.taps,
        target_layers=told.target_layers or target.layers, block=told.block, mask_token=told.mask_token,
        logits_start=told.logits_start, markov_rank=told.markov_rank, markov=told.markov, confidence=told.confidence,
        drawn=told.drawn, causal=causal_layers(told, found.windows),
    )  # fmt: skip
    _require_kernels(config, found, file, told.place)
    _require_target(config, target, file, told.place)
    require_fit(config, told, target, file)
    return config, told


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


def _require_kernels(config: DecoderConfig, found: DecoderFile, file: str, place: str = "") -> None:
    """``InputError`` if the attention kernel cannot take the heads, or the layers' windows are not told."""
    if config.heads % config.kv_heads:
        problem = f"expected a multiple of num_key_value_heads {config.kv_heads}, found {config.heads}"
        raise InputError(file, 0, f"{place}num_attention_heads", problem)
    if config.head_dim < NARROWEST or config.head_dim & (config.head_dim - 1):
        problem = f"expected a power of two of at least {NARROWEST}, found {config.head_dim}"
        raise InputError(file, 0, f"{place}head_dim", problem)
    if len(config.windows) != config.layers:
        problem = f"expected {config.layers} entries, one a layer, found {len(config.windows)}"
        raise InputError(file, 0, f"{place}layer_types", problem)
    if found.layer_types and "sliding_attention" in found.layer_types and not any(config.windows):
        field = "sliding_window" if found.use_sliding_window else "use_sliding_window"
        raise InputError(file, 0, place + field, "expected the window of the sliding layers, found none")


def _require_target(config: DrafterConfig, target: TargetConfig, file: str, place: str = "") -> None:
    """``InputError`` if the drafter was made for another target."""
    pairs = (
        (f"{place}vocab_size", config.vocabulary, target.vocabulary),
        (f"{place}hidden_size", config.hidden, target.hidden),
        ("num_target_layers", config.target_layers, target.layers),
    )
    for field, found, wanted in pairs:
        if found != wanted:
            raise InputError(file, 0, field, f"expected the target's {wanted}, found {found}")
