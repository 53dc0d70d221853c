"""Pages that arrive from another worker: a copy from one device's pools to another's, page list by page list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from gpu_backend.replay.journal import logged
from gpu_backend.replay.memory import DeviceMemory
from gpu_backend.replay.planes import FIRST_PAGE, upload
from model.table import NO_PAGE
from model.wire import Leg


def carry(legs: Sequence[Leg], source: DeviceMemory, target: DeviceMemory) -> Iterator[tuple[int, torch.Tensor]]:
    """Copy the pages of every leg. Yields pool and int64 fields: first offset, the last page's first tag, slots."""
    for leg in legs:
        index = leg.need.column.index
        here, there = source.columns[index].planes, target.columns[index].planes
        from_, to = source.twin.columns[index].pool, target.twin.columns[index].pool
        moved = [pair for pair in zip(leg.sources, leg.targets, strict=False) if NO_PAGE not in pair]
        if not moved:
            continue
        slots = upload([to.slot[page] for _, page in moved], target.device)
        pages = upload([from_.slot[page] for page, _ in moved], source.device) + FIRST_PAGE, slots + FIRST_PAGE
        begin = max(0, leg.need.begin - leg.need.blocks[0] * target.page_size)
        first, rest = tuple(side[:1] for side in pages), tuple(side[1:] for side in pages)
        there.pool.kv[:, :, first[1], begin:] = here.pool.kv[:, :, first[0], begin:].to(target.device)
        there.pool.kv[:, :, rest[1]] = here.pool.kv[:, :, rest[0]].to(target.device)
        for mine, other in (
            (there.pool.cells.tags, here.pool.cells.tags),
            (there.pool.cells.states, here.pool.cells.states),
        ):
            mine[first[1], begin:] = other[first[0], begin:].to(target.device)
            mine[rest[1]] = other[rest[0]].to(target.device)
        tag = logged(here.pool.cells.tags[pages[0][-1:], 0]).to(target.device)
        yield to.index, torch.cat([upload((begin,), target.device), tag, slots])
