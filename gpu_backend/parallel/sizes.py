"""Pool sizes that all ranks agree on before any engine is built: the smallest rank's, pool by pool and tier by tier."""

from __future__ import annotations

from dataclasses import replace

from gpu_backend.parallel.meeting import Meeting
from model.budget import BudgetError
from model.builds import Build
from model.config import EngineConfig
from scenarios.errors import InputError


def agreed_config(meeting: Meeting, build: Build, own: EngineConfig) -> EngineConfig:
    """``own`` with what its rank gets by the build's *ranks* rule, which is told the pools of every rank."""
    pools = meeting.told(own.pools, lambda: "the agreement on pool sizes")
    try:
        return build.rules.ranks.agreed([replace(own, pools=other) for other in pools])[meeting.rank]
    except BudgetError as error:
        raise InputError("workers", 0, "pools", str(error)) from error


def differing_sizes(meeting: Meeting, config: EngineConfig) -> tuple[int, str, str] | None:
    """The first rank about to build an engine of other pools than rank 0, and both in words."""
    texts = meeting.told(_words(config), lambda: "the comparison of pool sizes")
    odd = next((rank for rank, text in enumerate(texts) if text != texts[0]), 0)
    return (odd, texts[0], texts[odd]) if odd else None


def _words(config: EngineConfig) -> str:
    return ", ".join(
        f"{name} {size.device_pages} pages and {size.host_pages} in the host tier"
        for name, size in config.pools.items()
    )
