"""Tile shapes and split counts of the attention kernel, as measured on an H200 (132 multiprocessors).

Loads of K and V depend on the page id loaded before them, and that indirection eats pipeline stages: with pointer
loads 2 to 4 stages compile to one K/V buffer, 5 and 6 to two. ``compile_check`` holds every shape to two.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from model.geometry import cdiv

MULTIPROCESSORS = 132  # of an H200
MOST_SPLITS = 32  # more make the combination cost more than they save
WIDEST = 128  # rows of the largest tile


@dataclass(frozen=True, slots=True)
class Tile:
    """Shape of one program: query rows (tokens times heads of a group), keys a block, warps, pipeline stages.

    ``bulk`` reads whole blocks of keys with the tensor memory accelerator; it needs ``block_n <= page_size``.
    ``registers`` caps the registers of a thread, so that two programs share a multiprocessor.
    """

    block_m: int
    block_n: int
    warps: int
    stages: int
    bulk: bool = False
    registers: int | None = None


def power_of_two(value: int) -> int:
    """Smallest power of two of at least ``value``, which is positive."""
    return 1 << (value - 1).bit_length()


def tile_for(widest: int, group: int, page_size: int, dtype: torch.dtype) -> Tile:
    """Tile for rows of up to ``widest`` query tokens, ``group`` query heads to a KV head."""
    block_m = max(16, power_of_two(group), min(WIDEST, power_of_two(widest * group)))
    if dtype.itemsize > 2:
        return Tile(min(block_m, 64), 32, 4, 2)
    if block_m < WIDEST:
        return Tile(block_m, 64, 2 if block_m < 64 and page_size < 64 else 4, 5)
    return Tile(block_m, 128, 8, 5, bulk=page_size % 128 == 0)


def splits_for(programs: int, blocks: int, tile: Tile) -> int:
    """Splits of ``blocks`` key blocks for ``programs`` tiles and heads; 1 where these fill the device alone.

    Costs are in key blocks, fitted to measured times: a small tile shares its multiprocessor with another at 1.55 times
    the time a block (larger tiles gain nothing from a second), a program starts in three, a split's partial costs an
    eighth to combine.
    """
    resident = MULTIPROCESSORS * (2 if tile.block_m < 64 else 1)
    if programs >= resident:
        return 1

    def cost(splits: int) -> float:
        slowdown = 1.55 if programs * splits > MULTIPROCESSORS and tile.block_m < 64 else 1.0
        waves = cdiv(programs * splits, resident)
        return waves * (slowdown * cdiv(blocks, splits) + 3) + (splits / 8 if splits > 1 else 0)

    return min(range(1, min(MOST_SPLITS, max(1, blocks)) + 1), key=cost)
