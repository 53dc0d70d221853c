"""Keys of ``config.json`` that a target or a drafter is made from, and what of other keys is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scenarios.errors import InputError, field_name, quote

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TARGETS = ("Qwen3ForCausalLM", "LlamaForCausalLM")
_WORDS = (
    ("Input should be ", ""),
    ("greater than or equal to", "at least"),
    ("greater than", "more than"),
    ("a valid integer", "an integer"),
    ("a valid", "a"),
    ("a dictionary", "a mapping"),
    ("List should have at least 1 item", "at least one entry"),
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


def parse(model: type[BaseModel], values: Mapping[str, Any], file: str, place: str = "") -> Any:
    """``values`` as ``model``; ``InputError`` names the first field, in the file behind ``place``, that is missing or
    wrong."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        item = error.errors(include_url=False)[0]
        field = place + field_name(item["loc"])
        if item["type"] == "missing":
            raise InputError(file, 0, field, "expected a value, found none") from error
        raise InputError(file, 0, field, f"expected {_expected(item['msg'])}, found {quote(item['input'])}") from error


def _expected(message: str) -> str:
    """pydantic's sentence in the words of this project."""
    for theirs, ours in _WORDS:
        message = message.replace(theirs, ours)
    for behind in (" or instance of ", ", unable to parse ", " after validation, "):
        message = message.partition(behind)[0]
    return message


def refuse_target(values: Mapping[str, Any], file: str) -> None:
    """``InputError`` for the first thing in a target's file that this backend has no code for."""
    refuse_shared(values, file)
    _refuse_architecture(values, TARGETS, file)
    refuse_biases(values, file)


def _refuse_architecture(values: Mapping[str, Any], known: tuple[str, ...], file: str) -> None:
    found = values.get("architectures")
    if isinstance(found, list) and found and found[0] not in known:
        raise InputError(file, 0, "architectures", f"expected {' or '.join(known)}, found {quote(found[0])}")


def refuse_shared(values: Mapping[str, Any], file: str, place: str = "") -> None:
    """``InputError`` for quantised weights, scaled rotations and other activations; the keys stand behind ``place``."""
    if values.get("quantization_config") is not None:
        found = values["quantization_config"]
        method = found.get("quant_method", "?") if isinstance(found, Mapping) else found
        raise InputError(file, 0, f"{place}quantization_config", f"quantised weights ({method}) are not supported")
    for key in ("rope_scaling", "rope_parameters"):
        scaling = values.get(key)
        if isinstance(scaling, Mapping):
            kind = scaling.get("rope_type", scaling.get("type", "default"))
            if kind != "default":
                raise InputError(file, 0, place + key, f"rope scaling {quote(kind)} is not supported")
    partial = values.get("partial_rotary_factor")
    if partial not in (None, 1.0):
        raise InputError(file, 0, f"{place}partial_rotary_factor", f"expected 1.0, found {quote(partial)}")
    activation = values.get("hidden_act", "silu")
    if activation != "silu":
        raise InputError(file, 0, f"{place}hidden_act", f"expected 'silu', found {quote(activation)}")


def refuse_biases(values: Mapping[str, Any], file: str, place: str = "") -> None:
    """``InputError`` for layers with biases."""
    for key in ("attention_bias", "mlp_bias"):
        if values.get(key):
            raise InputError(file, 0, place + key, "biases are not supported")
