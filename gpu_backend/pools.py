"""All pools of one rank, from the page counts that the budget arrived at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from gpu_backend.device import DeviceMemoryError, free_bytes
from gpu_backend.host_tier import HostTier
from gpu_backend.layout import PoolLayout
from gpu_backend.pool import DevicePool
from model.budget import gib
from model.config import PoolSize


@dataclass(frozen=True, slots=True)
class Pools:
    """Device pools and host tiers by lifecycle name; a lifecycle without host pages has no tier."""

    device: dict[str, DevicePool]
    host: dict[str, HostTier]


def build_pools(
    layouts: Mapping[str, PoolLayout],
    sizes: Mapping[str, PoolSize],
    device: torch.device | str,
    *,
    debug: bool = False,
) -> Pools:
    """One pool per lifecycle of ``layouts``, sized by ``sizes`` (:func:`model.budget.pool_sizes`).

    ``DeviceMemoryError`` before anything is allocated if the device cannot hold all of them.
    """
    if layouts.keys() != sizes.keys():
        raise ValueError(f"layouts are for {', '.join(sorted(layouts))}, sizes for {', '.join(sorted(sizes))}")
    place = torch.device(device)
    needed = {name: layout.bytes(sizes[name].device_pages) for name, layout in layouts.items()}
    free = free_bytes(place)
    if free is not None and sum(needed.values()) > free:
        parts = ", ".join(f"{name} {gib(size):.2f}" for name, size in needed.items())
        raise DeviceMemoryError(
            f"the pools need {gib(sum(needed.values())):.2f} GiB ({parts}), but {place} has {gib(free):.2f} GiB free"
        )
    pools = {
        name: DevicePool(name, layout, sizes[name].device_pages, place, debug=debug) for name, layout in layouts.items()
    }
    tiers = {name: HostTier(pool, sizes[name].host_pages) for name, pool in pools.items() if sizes[name].host_pages}
    return Pools(pools, tiers)
