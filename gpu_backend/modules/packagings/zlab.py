"""z-lab's packaging of DFlash, which SpecForge writes as well, and with DSpark's heads in it SpecForge's of DSpark.

The decoder's keys stand at the top, the drafter's in ``dflash_config``; embedding and head are the target's alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from gpu_backend.modules.packagings.heads import HEADS, heads_of
from gpu_backend.modules.packagings.keys import DECODER, TRAINING, require_known
from gpu_backend.modules.packagings.told import ALL, NONE, SLIDING, Told, agreed
from gpu_backend.modules.schema import Count, Place, parse
from scenarios.errors import InputError, quote

DFLASH, DSPARK = "DFlashDraftModel", "DSparkDraftModel"
INNER = "dflash_config."
TOP_KEYS = DECODER | {"num_target_layers", "block_size", "dflash_config", "is_causal", "draft_vocab_size"}
INNER_KEYS = frozenset((
    "attention_mode", "block_size", "causal", "mask_token", "mask_token_id", "projector_type", "sample_from_anchor",
    "shift_label", "target_layer_ids",
))  # fmt: skip
Block = Annotated[int, Field(strict=True, ge=1)]
Flag = Annotated[bool, Field(strict=True)]


class Inner(BaseModel):
    """``dflash_config``."""

    model_config = ConfigDict(extra="ignore")
    mask_token_id: Place
    target_layer_ids: Annotated[list[Place], Field(min_length=1)] | None = None
    block_size: Block | None = None
    sample_from_anchor: Flag | None = None
    shift_label: Flag | None = None
    causal: Flag | None = None


class Top(BaseModel):
    """What stands beside it."""

    model_config = ConfigDict(extra="ignore")
    num_target_layers: Count
    num_hidden_layers: Count
    block_size: Block | None = None
    is_causal: Flag | None = None
    dflash_config: dict[str, Any]


def is_dspark(values: Mapping[str, Any]) -> bool:
    """Whether a file of this packaging names DSpark, as its architecture or as its projector."""
    inner = values.get("dflash_config")
    projector = inner.get("projector_type") if isinstance(inner, Mapping) else None
    return projector == "dspark" or (values.get("architectures") or [None])[0] == DSPARK


def read(values: Mapping[str, Any], file: str) -> Told:
    """A file of this packaging; InputError for what it lacks and for what has no code here."""
    dspark = is_dspark(values)
    name = "SpecForge's packaging of DSpark" if dspark else "z-lab's packaging of DFlash"
    top: Top = parse(Top, values, file)
    keys = top.dflash_config
    heads = frozenset((*HEADS, "use_confidence_head"))
    require_known(values, TOP_KEYS | (TRAINING | heads if dspark else frozenset()), file, name)
    if keys.get("projector_type") not in (None, "dflash", "dspark"):
        found = quote(keys["projector_type"])
        raise InputError(file, 0, f"{INNER}projector_type", f"expected 'dflash' or 'dspark', found {found}")
    if keys.get("attention_mode") not in (None, "gqa", "mha"):
        problem = f"expected 'gqa' or 'mha', found {quote(keys['attention_mode'])}"
        raise InputError(file, 0, f"{INNER}attention_mode", problem)
    if not dspark and (stray := next((key for key in HEADS if keys.get(key)), None)):
        problem = "expected the architecture DSparkDraftModel or the projector_type 'dspark' beside DSpark's heads"
        raise InputError(file, 0, INNER + stray, problem)
    require_known(keys, INNER_KEYS | (TRAINING | heads if dspark else frozenset()), file, name, INNER)
    inner: Inner = parse(Inner, keys, file, INNER)
    if values.get("draft_vocab_size") not in (None, values.get("vocab_size")):
        raise InputError(file, 0, "draft_vocab_size", "reduced draft vocabularies are not supported")
    block = agreed({f"{INNER}block_size": inner.block_size, "block_size": top.block_size}, file)
    if block is None:
        raise InputError(file, 0, "block_size", "expected a value, found none")
    taps = inner.target_layer_ids or default_taps(top.num_target_layers, top.num_hidden_layers)
    return Told(
        values, "dspark" if dspark else "dflash", tuple(taps), inner.mask_token_id, block,
        _logits_start(inner, file, dspark), top.num_target_layers, taps_at=f"{INNER}target_layer_ids",
        mask_at=f"{INNER}mask_token_id", causal=_causal(top, inner, file), renamed={"logit_head.": ""},
        **(_heads(values, keys, file) if dspark else {}),
    )  # fmt: skip


def default_taps(target_layers: int, layers: int) -> list[int]:
    """The taps of a file that names none: ``layers`` layers from 1 to three before the last, or the middle one."""
    if layers == 1:
        return [target_layers // 2]
    span = target_layers - 4
    return [round(1 + place * span / (layers - 1)) for place in range(layers)]


def _logits_start(inner: Inner, file: str, dspark: bool) -> int:
    """0 where the anchor's slot predicts: as the file says by either key, else as DSpark does and DFlash does not."""
    said = agreed(
        {f"{INNER}sample_from_anchor": inner.sample_from_anchor, f"{INNER}shift_label": inner.shift_label}, file
    )  # fmt: skip
    return 0 if (dspark if said is None else said) else 1


def _causal(top: Top, inner: Inner, file: str) -> str:
    """Sliding layers of this packaging are causal unless the file says otherwise, those with full attention are not."""
    said = agreed({"is_causal": top.is_causal, f"{INNER}causal": inner.causal}, file)
    return SLIDING if said is None else ALL if said else NONE


def _heads(values: Mapping[str, Any], keys: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The heads, whose keys stand in ``dflash_config`` or, in older files, at the top."""
    merged = {key: agreed({INNER + key: keys.get(key), key: values.get(key)}, file) for key in HEADS}
    merged["use_confidence_head"] = keys.get("use_confidence_head")
    place = "" if all(keys.get(key) is None for key in HEADS) else INNER
    return heads_of(merged, file, place)
