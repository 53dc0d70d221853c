"""``python -m gpu_backend.sweep``: time other tiles and split counts on a shape of the bench, to renew ``tiles.py``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

import torch

from gpu_backend.bench import input_sets
from gpu_backend.bench_shapes import SHAPES
from gpu_backend.contracts import CONTRACTS
from gpu_backend.contracts.attention import AttentionCase
from gpu_backend.kernels.tiles import Tile


def tile(text: str) -> Tile:
    """A tile from ``block_m,block_n,warps,stages[,b][,registers]``; b reads whole blocks in bulk."""
    parts = text.split(",")
    bulk = "b" in parts
    numbers = [int(part) for part in parts if part != "b"]
    return Tile(*numbers[:4], bulk=bulk, registers=numbers[4] if len(numbers) > 4 else None)


def main(arguments: list[str] | None = None) -> int:
    """Time the tiles; 0 fine, 2 usage, 3 no GPU."""
    parser = argparse.ArgumentParser(prog="python -m gpu_backend.sweep", description=__doc__)
    parser.add_argument("shape", choices=[name for name, shape in SHAPES.items() if shape.contract == "attention"])
    parser.add_argument("--tiles", type=tile, nargs="+", required=True, metavar="M,N,WARPS,STAGES[,b][,REGISTERS]")
    parser.add_argument("--splits", type=int, nargs="+", default=[0], help="0: as planned")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("no GPU: nothing was measured", file=sys.stderr)
        return 3
    from gpu_backend.timing import time_graph

    contract = CONTRACTS["attention"]
    case = SHAPES[options.shape].case
    assert isinstance(case, AttentionCase)
    sets = input_sets(contract.work(case).read_bytes)
    calls = [contract.build(case, torch.device("cuda"), seed) for seed in range(sets)]
    for shape in options.tiles:
        for splits in options.splits:
            variant = replace(case, tile=shape, splits=splits or None)
            launches = [launch for call in calls for launch in contract.launches(variant, call)]

            def run(launches: list = launches) -> None:
                for launch in launches:
                    launch()

            try:
                timing = time_graph(run, sets, replays=7)
                print(f"{options.shape:34} {shape} splits {splits or 'planned'}: {timing.median_us:.1f} us", flush=True)
            except Exception as error:  # a tile may not compile or not fit: the others still count
                print(f"{options.shape:34} {shape}: {type(error).__name__} {str(error)[:90]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
