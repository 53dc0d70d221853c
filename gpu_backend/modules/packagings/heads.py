"""DSpark's heads as every packaging spells them, and what of them is missing or does not go together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpu_backend.modules.packagings.told import agreed
from gpu_backend.modules.schema import parse
from scenarios.errors import InputError

HEADS = (
    "markov_rank", "markov_head_type", "enable_confidence_head", "confidence_head_with_markov", "confidence_head_alpha",
)  # fmt: skip


class HeadsFile(BaseModel):
    """Keys of the heads. Without ``enable_confidence_head`` there is one if its loss had a weight."""

    model_config = ConfigDict(extra="ignore")
    markov_rank: Annotated[int, Field(strict=True, ge=0)] = 0
    markov_head_type: Literal["vanilla", "gated", "rnn"] = "vanilla"
    enable_confidence_head: Annotated[bool, Field(strict=True)] | None = None
    use_confidence_head: Annotated[bool, Field(strict=True)] | None = None
    confidence_head_with_markov: Annotated[bool, Field(strict=True)] | None = None
    confidence_head_alpha: float | None = None


def heads_of(keys: Mapping[str, Any], file: str, place: str = "") -> dict[str, Any]:
    """``markov_rank``, ``markov`` and ``confidence`` of a :class:`Told`, from the heads' keys at ``place``."""
    found: HeadsFile = parse(HeadsFile, {key: value for key, value in keys.items() if value is not None}, file, place)
    named = {f"{place}{key}": getattr(found, key) for key in ("enable_confidence_head", "use_confidence_head")}
    enabled = agreed(named, file)
    if enabled is None:
        enabled = (found.confidence_head_alpha or 0) > 0
    confidence = ""
    if enabled:
        with_markov = found.confidence_head_with_markov
        reads = with_markov if with_markov is not None else found.markov_rank > 0
        if reads and not found.markov_rank:
            problem = "expected a rank of at least 1, as the confidence head reads the Markov embedding, found 0"
            raise InputError(file, 0, f"{place}markov_rank", problem)
        confidence = "markov" if reads else "hidden"
    return {"markov_rank": found.markov_rank, "markov": found.markov_head_type, "confidence": confidence}
