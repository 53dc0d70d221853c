"""Keys of a chain drafter's ``config.json``: upstream's for EAGLE3, ours for MTP, and what of them is refused by name.

EAGLE3 files tell the tapped layers under ``eagle_config`` or at the top, and ``eagle_aux_hidden_state_layer_ids`` are
read here as SGLang reads them: the layers whose outputs are tapped. A reader that names the layers whose inputs they
are counts one more. K is no key of upstream's files: ours is ``num_speculative_tokens``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from gpu_backend.modules.config import DrafterConfig, TargetConfig
from gpu_backend.modules.packagings.keys import DECODER, require_known
from gpu_backend.modules.schema import Count, DecoderFile, Place, parse, refuse_biases, refuse_shared
from scenarios.errors import InputError, quote

EAGLE3, MTP = "LlamaForCausalLMEagle3", "MtpDraftModel"
CHAINS = (EAGLE3, MTP)
# What turns EAGLE3 into another network: the neutral value of each, and what it would be.
VARIANTS: dict[str, tuple[Any, str]] = {
    "norm_before_residual": (False, "a residual behind its norm"),
    "norm_before_fc": (False, "a norm ahead of fc"),
    "fc_norm": (False, "norms of the tapped states (EAGLE 3.1)"),
    "norm_output": (False, "normed states fed back (EAGLE 3.1)"),
    "parallel_drafting": (False, "parallel drafting (P-EAGLE)"),
    "use_aux_hidden_state": (True, "a drafter without tapped layers"),
    "use_input_layernorm_in_first_layer": (True, "embeddings that are not normed"),
    "use_mtp_layernorm": (False, "norms of Megatron's MTP"),
    "has_lm_head": (False, "a head of the drafter's own"),
    "use_last_layernorm": (True, "states that reach the head as they are"),
    "next_layer_regular": (True, "layers behind the first that see embeddings"),
    "parallel_draft_step": (1, "parallel drafting"),
}
TAPS = "eagle_aux_hidden_state_layer_ids"
OWN = {
    EAGLE3: frozenset((*VARIANTS, TAPS, "eagle_config", "decoder_start_token_id")),
    MTP: frozenset(("num_nextn_predict_layers",)),
}
SHARED = DECODER | {"draft_vocab_size", "num_speculative_tokens", "num_target_layers", "target_hidden_size"}


class EagleConfig(BaseModel):
    """``eagle_config``."""

    model_config = ConfigDict(extra="ignore")
    eagle_aux_hidden_state_layer_ids: Annotated[list[Place], Field(min_length=1)] | None = None


class ChainFile(DecoderFile):
    """What both have."""

    model_type: str = "llama"
    num_target_layers: Count | None = None
    num_speculative_tokens: Count
    target_hidden_size: Count | None = None


class Eagle3File(ChainFile):
    """An EAGLE3 drafter's ``config.json``."""

    eagle_config: EagleConfig | None = None
    eagle_aux_hidden_state_layer_ids: Annotated[list[Place], Field(min_length=1)] | None = None


class MtpFile(ChainFile):
    """The ``config.json`` of a chain of MTP modules."""

    num_nextn_predict_layers: Count


def is_chain(values: Mapping[str, Any]) -> bool:
    """Whether a drafter's file names one of these architectures."""
    found = values.get("architectures")
    return isinstance(found, list) and bool(found) and found[0] in CHAINS


def chain_config(
    values: Mapping[str, Any], file: str, target: TargetConfig, shape: Callable[[DecoderFile], dict[str, Any]]
) -> tuple[DrafterConfig, DecoderFile]:
    """The configuration that a chain drafter's file tells for ``target``; ``InputError`` names what is not served."""
    refuse_chain(values, file)
    eagle = values["architectures"][0] == EAGLE3
    found: Eagle3File | MtpFile = parse(Eagle3File if eagle else MtpFile, values, file)
    if isinstance(found, Eagle3File):
        taps, field = _taps_of(found, target)
        _require_taps(taps, field, target, file)
        kind, depth = "eagle3", 1
    else:
        taps, depth = (target.layers - 1,), found.num_nextn_predict_layers
        kind = "mtp-eagle" if depth == 1 and found.num_speculative_tokens > 1 else "mtp"
        if depth > 1 and depth != found.num_speculative_tokens:
            problem = f"expected {depth}, a draft of each module, found {found.num_speculative_tokens}"
            raise InputError(file, 0, "num_speculative_tokens", problem)
    if found.num_hidden_layers != depth:
        raise InputError(file, 0, "num_hidden_layers", f"expected {depth}, found {found.num_hidden_layers}")
    if found.target_hidden_size not in (None, found.hidden_size):
        problem = f"expected the drafter's own {found.hidden_size}, found {found.target_hidden_size}"
        raise InputError(file, 0, "target_hidden_size", problem)
    config = DrafterConfig(
        **shape(found), qk_norm=found.model_type != "llama", windows=found.windows, dtype=target.dtype, taps=taps,
        target_layers=found.num_target_layers or target.layers, block=found.num_speculative_tokens, logits_start=0,
        kind=kind, depth=depth,
    )  # fmt: skip
    return config, found


def refuse_chain(values: Mapping[str, Any], file: str) -> None:
    """``InputError`` for the first thing in a chain drafter's file that this backend has no code for."""
    if "speculators_model_type" in values:
        raise InputError(file, 0, "speculators_model_type", "the speculators packaging is not supported")
    if values.get("draft_vocab_size") not in (None, values.get("vocab_size")):
        raise InputError(file, 0, "draft_vocab_size", "reduced draft vocabularies are not supported")
    nested = values.get("eagle_config")
    inner: Mapping[str, Any] = nested if isinstance(nested, Mapping) else {}
    for key, (neutral, what) in VARIANTS.items():
        for place, keys in (("", values), ("eagle_config.", inner)):
            if keys.get(key, neutral) not in (None, neutral):
                problem = f"{what}: not supported, expected {str(neutral).lower()}, found {quote(keys[key])}"
                raise InputError(file, 0, place + key, problem)
    refuse_biases(values, file)
    refuse_shared(values, file)
    architecture = values["architectures"][0]
    name = "EAGLE3's packaging" if architecture == EAGLE3 else "the packaging of MTP"
    require_known(values, SHARED | OWN[architecture], file, name)
    require_known(inner, {*VARIANTS, TAPS}, file, name, "eagle_config.")


def _taps_of(found: Eagle3File, target: TargetConfig) -> tuple[tuple[int, ...], str]:
    """Tapped layers and the field that tells them; without one those that upstream's engines take."""
    nested = found.eagle_config
    if nested is not None and nested.eagle_aux_hidden_state_layer_ids is not None:
        field = "eagle_config.eagle_aux_hidden_state_layer_ids"
        return tuple(nested.eagle_aux_hidden_state_layer_ids), field
    field = "eagle_aux_hidden_state_layer_ids"
    if found.eagle_aux_hidden_state_layer_ids is not None:
        return tuple(found.eagle_aux_hidden_state_layer_ids), field
    return (1, target.layers // 2 - 1, target.layers - 4), field


def _require_taps(taps: tuple[int, ...], field: str, target: TargetConfig, file: str) -> None:
    last = target.layers - 1
    for place, tap in enumerate(taps):
        if not 0 <= tap < last:
            raise InputError(file, 0, f"{field}[{place}]", f"expected a layer below the last ({last}), found {tap}")
    if list(taps) != sorted(set(taps)):
        raise InputError(file, 0, field, f"expected layers in their order, each once, found {list(taps)}")
