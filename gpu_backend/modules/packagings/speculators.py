"""The packaging of vLLM's speculators: the decoder's keys in ``transformer_layer_config``, the drafter's at the top.

``aux_hidden_state_layer_ids`` name what goes into a layer, so that they are one larger than z-lab's ids of the same
states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpu_backend.modules.packagings.heads import HEADS, heads_of
from gpu_backend.modules.packagings.keys import DECODER, TRAINING, require_known, slides
from gpu_backend.modules.packagings.told import NONE, OWN, SLIDING, Told
from gpu_backend.modules.schema import Count, Place, parse
from scenarios.errors import InputError, quote

TELLTALE = "speculators_model_type"
BODY = "transformer_layer_config"
TAPS = "aux_hidden_state_layer_ids"
KEYS = TRAINING | frozenset((
    "architectures", TELLTALE, BODY, TAPS, "speculators_version", "speculators_config", "draft_vocab_size",
    "block_size", "dtype", "torch_dtype", "mask_token_id", "sample_from_anchor", "sliding_window_non_causal",
    "target_hidden_size", "projector_type", "shift_label", "pure_draft_prefix_len", "emb_dim", "gru_hidden_dim",
    "lambda_base_start", "lambda_base_decay_ratio", "auf", "window_rule",
))  # fmt: skip
UNREAD = ("verifier_lm_head.weight", "verifier_norm.weight", "t2d")  # of training
Flag = Annotated[bool, Field(strict=True)]


class Method(BaseModel):
    """One of ``proposal_methods``."""

    model_config = ConfigDict(extra="ignore")
    speculative_tokens: Count | None = None


class Proposals(BaseModel):
    """``speculators_config``."""

    model_config = ConfigDict(extra="ignore")
    proposal_methods: list[Method] | None = None


class Which(BaseModel):
    """What is asked first, as another drafter has other keys."""

    model_config = ConfigDict(extra="ignore")
    speculators_model_type: Literal["dflash", "dspark"]


class Top(Which):
    """The drafter's keys."""

    transformer_layer_config: dict[str, Any]
    aux_hidden_state_layer_ids: Annotated[list[Place], Field(min_length=1)]
    block_size: Count
    mask_token_id: Place
    draft_vocab_size: Count | None = None
    target_hidden_size: Count | None = None
    sample_from_anchor: Flag | None = None
    shift_label: Flag | None = None
    sliding_window_non_causal: Flag = False
    projector_type: Literal["dflash"] | None = None
    window_rule: Literal["query"] | None = None
    speculators_config: Proposals | None = None


def read(values: Mapping[str, Any], file: str) -> Told:
    """A file of this packaging; InputError for what it lacks and for what has no code here."""
    parse(Which, values, file)
    dspark = values[TELLTALE] == "dspark"
    require_known(values, KEYS | set(HEADS if dspark else ()), file, "the packaging of speculators")
    top: Top = parse(Top, values, file)
    body = {"architectures": values.get("architectures") or [TELLTALE], **top.transformer_layer_config}
    for key in ("dtype", "torch_dtype"):
        body.setdefault(key, values.get(key))
    require_known(body, DECODER, file, "the packaging of speculators", f"{BODY}.")
    drawn = _drawn(top, body, file)
    _require_window(top, body, file)
    for place, tap in enumerate(top.aux_hidden_state_layer_ids):
        if tap == 0:
            problem = "expected at least 1, z-lab's layer 0, found 0, the embedding"
            raise InputError(file, 0, f"{TAPS}[{place}]", problem)
    return Told(
        body, top.speculators_model_type, tuple(tap - 1 for tap in top.aux_hidden_state_layer_ids), top.mask_token_id,
        top.block_size, _logits_start(top, file), place=f"{BODY}.", taps_at=TAPS, shift=1, copies=OWN,
        ignored=UNREAD if drawn else (*UNREAD, "d2t"), drawn=drawn,
        causal=NONE if top.sliding_window_non_causal else SLIDING,
        **(heads_of(values, file) if dspark else {}),
    )  # fmt: skip


def _drawn(top: Top, body: Mapping[str, Any], file: str) -> int:
    """The size of a draft vocabulary that is smaller than the target's, else 0."""
    if top.target_hidden_size not in (None, body.get("hidden_size")):
        problem = f"expected {BODY}.hidden_size {quote(body.get('hidden_size'))}, found {top.target_hidden_size}"
        raise InputError(file, 0, "target_hidden_size", problem)
    whole, drawn = body.get("vocab_size"), top.draft_vocab_size
    if drawn is None or drawn == whole:
        return 0
    if isinstance(whole, int) and drawn > whole:
        raise InputError(file, 0, "draft_vocab_size", f"expected at most {BODY}.vocab_size {whole}, found {drawn}")
    return drawn


def _require_window(top: Top, body: Mapping[str, Any], file: str) -> None:
    """Sliding layers were trained by another rule of the window's edge."""
    if slides(body) and top.window_rule is None:
        problem = (
            "expected 'query', found none: all slots of a block were trained to read from anchor - window on, here each"
            " reads its own window (z-lab's rule); add the key to have that"
        )
        raise InputError(file, 0, "window_rule", problem)


def _logits_start(top: Top, file: str) -> int:
    """0 where the anchor's slot predicts, as the file says, or else its number of drafts beside the block's size."""
    methods = (top.speculators_config and top.speculators_config.proposal_methods) or [Method()]
    drafts = methods[0].speculative_tokens
    said = top.sample_from_anchor
    if said is None:
        said = {top.block_size: True, top.block_size - 1: False}.get(drafts) if drafts is not None else None
    if said is None:
        problem = (
            f"expected true or false, or a speculative_tokens of {top.block_size} or {top.block_size - 1}, found none"
        )
        raise InputError(file, 0, "sample_from_anchor", problem)
    most = top.block_size if said else top.block_size - 1
    if drafts is not None and drafts > most:
        problem = f"expected at most {most} with sample_from_anchor {str(said).lower()}, found {drafts}"
        raise InputError(file, 0, "speculators_config.proposal_methods[0].speculative_tokens", problem)
    if top.shift_label not in (None, said):
        raise InputError(file, 0, "shift_label", f"expected sample_from_anchor's {said}, found {top.shift_label}")
    return 0 if said else 1
