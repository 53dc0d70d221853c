"""What travels between two workers: page lists pool by pool, and the bytes that move along them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from model.geninit import Need
from model.joint import Twin
from model.rules.transfer import Transfer as TransferRule
from model.shadow import Shadow
from model.table import NO_PAGE


@dataclass(frozen=True, slots=True)
class Leg:
    """One column's part of a transfer: block ``need.blocks[i]`` goes from page ``sources[i]`` to ``targets[i]``."""

    need: Need
    sources: array[int]
    targets: array[int]

    @property
    def pool(self) -> str:
        """Name of the pool on both sides."""
        return self.need.column.pool.name


def legs(rule: TransferRule, needs: Sequence[Need], source: Twin, sender: int, receiver: int) -> list[Leg]:
    """Page lists of a transfer from owner ``sender`` of ``source`` to owner ``receiver``; one list for each need."""
    lists: list[Leg] = []
    for need in needs:
        column = need.column
        own = source.columns[column.index]
        table = own.manager.sequences[sender].tables[own.column]
        sources = array("i", [table.page(block) for block in need.blocks])
        if lists and not rule.own_lists:  # one list for all groups, whatever pool their pages are in
            sources = array("i", [page for page in lists[0].sources if page < own.pool.total][: len(sources)])
        mine = column.manager.sequences[receiver].tables[column.column]
        targets = array("i", [mine.page(block) for block in need.blocks])
        lists.append(Leg(need, sources, targets))
    return lists


def carry(lists: Sequence[Leg], source: Shadow, target: Shadow, owner: int) -> None:
    """Copy the cells of every leg from one memory to the other."""
    for leg in lists:
        index = leg.need.column.index
        here, there = source.pools[source.pool_of[index]], target.pools[target.pool_of[index]]
        moved = [pair for pair in zip(leg.sources, leg.targets, strict=False) if NO_PAGE not in pair]
        if not moved:
            continue
        cells = source.cells[source.pool_of[index]][[here.slot[page] for page, _ in moved]]
        slots = np.array([there.slot[page] for _, page in moved], dtype=np.int32)
        begin = max(0, leg.need.begin - leg.need.blocks[0] * target.page)
        target.receive(target.pool_of[index], owner, slots, begin, cells)
