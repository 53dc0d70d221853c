"""All pools of one rank, from the page counts that the budget arrived at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
    shared: Mapping[str, str] | None = None,
    debug: bool = False,
) -> Pools:
    """The pools of the lifecycles in ``layouts``, sized by ``sizes`` (:func:`model.budget.pool_sizes`).

    ``shared`` maps a lifecycle to the one whose pool it takes its pages from: both names then stand for one pool, of
    the layout with more layers. ``DeviceMemoryError`` before anything is allocated if the device cannot hold all.
    """
    if layouts.keys() != sizes.keys():
        raise ValueError(f"layouts are for {', '.join(sorted(layouts))}, sizes for {', '.join(sorted(sizes))}")
    place = torch.device(device)
    lender = {name: (shared or {}).get(name, name) for name in layouts}
    own = {name: _joint_layout([layouts[one] for one in layouts if lender[one] == name]) for name in lender.values()}
    needed = {name: layout.bytes(sizes[name].device_pages) for name, layout in own.items()}
    free = free_bytes(place)
    if free is not None and sum(needed.values()) > free:
        parts = ", ".join(f"{name} {gib(size):.2f}" for name, size in needed.items())
        raise DeviceMemoryError(
            f"the pools need {gib(sum(needed.values())):.2f} GiB ({parts}), but {place} has {gib(free):.2f} GiB free"
        )
    pools = {
        name: DevicePool(name, layout, sizes[name].device_pages, place, debug=debug) for name, layout in own.items()
    }
    tiers = {name: HostTier(pool, sizes[name].host_pages) for name, pool in pools.items() if sizes[name].host_pages}
    return Pools(
        {name: pools[lender[name]] for name in layouts},
        {name: tiers[lender[name]] for name in layouts if lender[name] in tiers},
    )


def _joint_layout(layouts: Sequence[PoolLayout]) -> PoolLayout:
    """The layout of a pool whose pages each of ``layouts`` fits in; they may differ in their layers alone.

    A page keeps its place in every layer, so rows of another width would reach into other pages.
    """
    widest = max(layouts, key=lambda layout: layout.layers)
    for layout in layouts:
        if replace(layout, layers=widest.layers) != widest:
            raise ValueError(f"lifecycles of one pool differ in more than layers: {layout} and {widest}")
    return widest
