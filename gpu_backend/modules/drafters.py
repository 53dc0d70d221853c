"""The module of each kind of drafter."""

from __future__ import annotations

from gpu_backend.modules.chain import Chain, Eagle3, Mtp
from gpu_backend.modules.config import DrafterConfig
from gpu_backend.modules.drafter import Drafter

AnyDrafter = Drafter | Chain
MODULES: dict[str, type[Drafter] | type[Eagle3] | type[Mtp]] = {
    "dflash": Drafter, "dspark": Drafter, "eagle3": Eagle3, "mtp-eagle": Mtp, "mtp": Mtp,
}  # fmt: skip


def drafter_module(config: DrafterConfig) -> AnyDrafter:
    """A drafter of ``config``, its weights not yet filled."""
    return MODULES[config.kind](config)


def in_blocks(drafter: AnyDrafter) -> Drafter:
    """``drafter``, where it has to be one that drafts in blocks; ``TypeError`` for a chain."""
    if not isinstance(drafter, Drafter):
        raise TypeError(f"expected a drafter that drafts in blocks, found {drafter.config.kind}")
    return drafter
