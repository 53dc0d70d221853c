"""Rule *ranks*: what the workers of one server agree on before each of them decides by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from model.budget import agree_sizes
from model.config import EngineConfig, PoolSize


@dataclass(frozen=True, slots=True)
class Ranks:
    """Answers by consensus. ``device`` and ``host``: pools of either tier are as large as the smallest rank's.
    ``existence``: a page that one rank lost is lost to all, so that every rank matches the minimum. ``gate``: the
    benchmark gate counts the requests of all ranks, and opens for all or for none."""

    name: str = "agreed"
    device: bool = True
    host: bool = True
    existence: bool = True
    gate: bool = True

    def agreed(self, configs: Sequence[EngineConfig]) -> list[EngineConfig]:
        """The configurations with the pool sizes that the ranks agree on."""
        least = agree_sizes([config.pools for config in configs])
        return [
            replace(
                config,
                pools={
                    name: PoolSize(
                        least[name].device_pages if self.device else own.device_pages,
                        least[name].host_pages if self.host else own.host_pages,
                    )
                    for name, own in config.pools.items()
                },
            )
            for config in configs
        ]
