"""DeepSpec's packaging: every key at the top, an embedding and a head of its own that are copies of the target's.

A Markov rank of 0 makes it DFlash. The anchor's slot predicts in both, so that a block of 7 drafts 7 tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from gpu_backend.modules.packagings.heads import HEADS, heads_of
from gpu_backend.modules.packagings.keys import DECODER, TRAINING, require_known, slides
from gpu_backend.modules.packagings.told import OWN, Told
from gpu_backend.modules.schema import Count, Place, parse
from scenarios.errors import InputError

ARCHITECTURE = "Qwen3DSparkModel"
KEYS = DECODER | TRAINING | {*HEADS, "num_target_layers", "block_size", "target_layer_ids", "mask_token_id"}


class Top(BaseModel):
    """What the drafter has besides a decoder's keys."""

    model_config = ConfigDict(extra="ignore")
    num_target_layers: Count
    block_size: Count
    target_layer_ids: Annotated[list[Place], Field(min_length=1)]
    mask_token_id: Place
    markov_rank: Place


def read(values: Mapping[str, Any], file: str) -> Told:
    """A file of this packaging; InputError for what it lacks and for what has no code here."""
    require_known(values, KEYS, file, "the packaging of DeepSpec")
    top: Top = parse(Top, values, file)
    if slides(values):
        problem = "expected full_attention throughout: DeepSpec's blocks attend without a window"
        raise InputError(file, 0, "layer_types", problem)
    heads = heads_of(values, file)
    kind = "dspark" if heads["markov_rank"] or heads["confidence"] else "dflash"
    return Told(
        values, kind, tuple(top.target_layer_ids), top.mask_token_id, top.block_size, 0, top.num_target_layers,
        copies=OWN, **heads,
    )  # fmt: skip
