"""Keys of ``config.json`` that a target or a drafter is made from, and what of other keys is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scenarios.errors import InputError, field_name, quote

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TARGETS = ("Qwen3ForCausalLM", "LlamaForCausalLM")
DRAFTERS = ("DFlashDraftModel", "DSparkDraftModel")
DFLASH2 = ("selector_rank", "selector_top_k", "conv_kernel_size", "conv_group_size")

NEUTRAL = {
    "input_embedding_scale": 1.0,
    "output_multiplier": 1.0,
    "final_logit_softcapping": 0.0,
}  # in a drafter's file
_WORDS = (
    ("Input should be ", ""),
    ("greater than or equal to", "at least"),
    ("greater than", "more than"),
    ("a valid integer", "an integer"),
    ("a valid", "a"),
    ("a dictionary", "a mapping"),
)

Count = Annotated[int, Field(strict=True, ge=1)]
Place = Annotated[int, Field(strict=True, ge=0)]
LayerType = Literal["full_attention", "sliding_attention"]


class Rope(BaseModel):
    """``rope_parameters``, where newer files keep what older ones have at the top."""

    model_config = ConfigDict(extra="ignore")
    rope_theta: Annotated[float, Field(gt=1)] | None = None


class DecoderFile(BaseModel):
    """Keys that target and drafter share; a file has many more, which say nothing about the shape."""

    model_config = ConfigDict(extra="ignore")
    architectures: Annotated[list[str], Field(min_length=1)]
    vocab_size: Count
    hidden_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count
    intermediate_size: Count
    max_position_embeddings: Count
    head_dim: Count | None = None
    rms_norm_eps: Annotated[float, Field(gt=0)] = 1e-6
    rope_theta: Annotated[float, Field(gt=1)] | None = None
    rope_parameters: Rope | None = None
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    torch_dtype: Literal["float32", "bfloat16", "float16"] | None = None
    layer_types: list[LayerType] | None = None
    use_sliding_window: bool = False
    sliding_window: Count | None = None
    max_window_layers: Place | None = None

    @property
    def theta(self) -> float:
        """Base of the rotary embedding."""
        nested = self.rope_parameters.rope_theta if self.rope_parameters is not None else None
        return self.rope_theta or nested or 10_000.0

    @property
    def computes_in(self) -> torch.dtype:
        """Dtype of weights and K/V."""
        return DTYPES[self.dtype or self.torch_dtype or "bfloat16"]

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Window of each layer: what ``layer_types`` says, else layers from ``max_window_layers`` on slide."""
        window = self.sliding_window if self.use_sliding_window else None
        if self.layer_types is not None:
            return tuple(window if kind == "sliding_attention" else None for kind in self.layer_types)
        first = self.num_hidden_layers if self.max_window_layers is None else self.max_window_layers
        return tuple(window if layer >= first else None for layer in range(self.num_hidden_layers))


class TargetFile(DecoderFile):
    """A target's ``config.json``."""

    tie_word_embeddings: bool = False


class Dflash(BaseModel):
    """``dflash_config``."""

    model_config = ConfigDict(extra="ignore")
    mask_token_id: Place
    target_layer_ids: Annotated[list[Place], Field(min_length=1)]
    block_size: Annotated[int, Field(strict=True, ge=2)] | None = None
    sample_from_anchor: bool = False
    markov_rank: Place = 0
    markov_head_type: Literal["vanilla", "gated", "rnn"] = "vanilla"
    enable_confidence_head: bool = False
    confidence_head_with_markov: bool = False


class DrafterFile(DecoderFile):
    """A DFlash drafter's ``config.json``."""

    dflash_config: Dflash
    num_target_layers: Count
    block_size: Annotated[int, Field(strict=True, ge=2)] | None = None


def parse(model: type[DecoderFile], values: Mapping[str, Any], file: str) -> Any:
    """``values`` as ``model``; ``InputError`` names the first field that is missing or wrong."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        item = error.errors(include_url=False)[0]
        field = field_name(item["loc"])
        if item["type"] == "missing":
            raise InputError(file, 0, field, "expected a value, found none") from error
        raise InputError(file, 0, field, f"expected {_expected(item['msg'])}, found {quote(item['input'])}") from error


def _expected(message: str) -> str:
    """pydantic's sentence in the words of this project."""
    for theirs, ours in _WORDS:
        message = message.replace(theirs, ours)
    return message.partition(" or instance of ")[0]


def refuse_target(values: Mapping[str, Any], file: str) -> None:
    """``InputError`` for the first thing in a target's file that this backend has no code for."""
    refuse_shared(values, file)
    _refuse_architecture(values, TARGETS, file)
    for key in ("attention_bias", "mlp_bias"):
        if values.get(key):
            raise InputError(file, 0, key, "biases are not supported")


def refuse_drafter(values: Mapping[str, Any], file: str) -> None:
    """``InputError`` for the first thing in a drafter's file that this backend has no code for."""
    nested = values.get("dflash_config")
    inner: Mapping[str, Any] = nested if isinstance(nested, Mapping) else {}
    if "speculators_model_type" in values:
        raise InputError(file, 0, "speculators_model_type", "the speculators packaging is not supported")
    for key in DFLASH2:
        for place, keys in (("", values), ("dflash_config.", inner)):
            if key in keys:
                raise InputError(file, 0, place + key, "DFlash2 checkpoints are not supported")
    if inner.get("projector_type", "dflash") not in ("dflash", "dspark"):
        problem = f"{quote(inner['projector_type'])} heads are not supported"
        raise InputError(file, 0, "dflash_config.projector_type", problem)
    for key in ("markov_rank", "markov_head_type", "enable_confidence_head", "confidence_head_with_markov"):
        if values.get(key):
            raise InputError(file, 0, key, f"expected dflash_config.{key}, found it at the top")
    if values.get("draft_vocab_size") not in (None, values.get("vocab_size")):
        raise InputError(file, 0, "draft_vocab_size", "reduced draft vocabularies are not supported")
    refuse_shared(values, file)
    _refuse_architecture(values, DRAFTERS, file)
    if nested is None:
        raise InputError(file, 0, "dflash_config", "expected the packaging of z-lab's DFlash, found no such key")
    for key, neutral in NEUTRAL.items():
        for place, keys in (("", values), ("dflash_config.", inner)):
            if keys.get(key, neutral) not in (None, neutral):
                raise InputError(file, 0, place + key, f"expected {neutral}, found {quote(keys[key])}")
    causal = values.get("is_causal")
    if causal is None:  # in that packaging a sliding layer is causal unless the file says otherwise
        causal = "sliding_attention" in (values.get("layer_types") or ())
    if causal:
        raise InputError(file, 0, "is_causal", "causal blocks are not supported, expected false")


def _refuse_architecture(values: Mapping[str, Any], known: tuple[str, ...], file: str) -> None:
    found = values.get("architectures")
    if isinstance(found, list) and found and found[0] not in known:
        raise InputError(file, 0, "architectures", f"expected {' or '.join(known)}, found {quote(found[0])}")


def refuse_shared(values: Mapping[str, Any], file: str) -> None:
    """``InputError`` for quantised weights, scaled rotations and other activations, wherever they are told."""
    if values.get("quantization_config") is not None:
        found = values["quantization_config"]
        method = found.get("quant_method", "?") if isinstance(found, Mapping) else found
        raise InputError(file, 0, "quantization_config", f"quantised weights ({method}) are not supported")
    for key in ("rope_scaling", "rope_parameters"):
        scaling = values.get(key)
        if isinstance(scaling, Mapping):
            kind = scaling.get("rope_type", scaling.get("type", "default"))
            if kind != "default":
                raise InputError(file, 0, key, f"rope scaling {quote(kind)} is not supported")
    partial = values.get("partial_rotary_factor", 1.0)
    if partial != 1.0:
        raise InputError(file, 0, "partial_rotary_factor", f"expected 1.0, found {quote(partial)}")
    activation = values.get("hidden_act", "silu")
    if activation != "silu":
        raise InputError(file, 0, "hidden_act", f"expected 'silu', found {quote(activation)}")
