"""What a block drafter's file tells, whoever packed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scenarios.errors import InputError, quote

NONE, SLIDING, ALL = "none", "sliding", "all"  # layers whose slots see none behind them


@dataclass(frozen=True, slots=True)
class Told:
    """A file in the terms of :class:`gpu_backend.modules.config.DrafterConfig`.

    ``body`` has the keys of the decoder, which stand at ``place`` in the file; ``taps_at`` and ``mask_at`` name the
    fields of the taps and the mask token. ``taps`` count layers from 0 and mean what comes out of them; the file's own
    ids are ``shift`` larger. ``target_layers`` is 0 where the file does not tell. Of the tensors, ``copies`` (name: the
    target's name) must equal the target's own, those in ``ignored`` say nothing, and a name that begins with a key of
    ``renamed`` begins with its value instead.
    """

    body: Mapping[str, Any]
    kind: str
    taps: tuple[int, ...]
    mask_token: int
    block: int
    logits_start: int
    target_layers: int = 0
    place: str = ""
    taps_at: str = "target_layer_ids"
    mask_at: str = "mask_token_id"
    shift: int = 0
    markov_rank: int = 0
    markov: str = "vanilla"
    confidence: str = ""
    drawn: int = 0
    causal: str = NONE
    copies: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)


OWN = {"embed_tokens.weight": "model.embed_tokens.weight", "lm_head.weight": "lm_head.weight"}  # see Told.copies


def agreed(places: Mapping[str, Any], file: str) -> Any:
    """The value that fields ``places`` (name: value or None) tell alike, None if none does; InputError if two
    differ."""
    told = {name: value for name, value in places.items() if value is not None}
    first = next(iter(told), "")
    for name, value in told.items():
        if value != told[first]:
            problem = f"expected {quote(told[first])}, as {first} says, found {quote(value)}"
            raise InputError(file, 0, name, problem)
    return told.get(first)
