"""``python -m gpu_backend.bench``: time every kernel against its floor on the GPU at hand.

Prints a table and writes JSON with device, versions and method. Exit codes: 0 fine, 1 a target is missed or an output
wrong, 2 usage, 3 no GPU, so nothing was measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from gpu_backend.bench_shapes import SHAPES, Shape
from gpu_backend.contracts import CONTRACTS
from gpu_backend.contracts.attention import AttentionCase
from gpu_backend.device import release

L2_BYTES = 60 << 20
MOST_SETS = 64


@dataclass(slots=True)
class Row:
    """One line of the result; times in microseconds, ``ratio`` over the floor, ``share`` over another row's time."""

    label: str
    time_us: float
    spread_us: float
    floor_us: float
    ratio: float
    read_rate: float  # bytes a second, read beside this row
    share: float | None
    fa2_us: float | None
    fa2_recorded: float | None
    targets: str
    missed: str


def input_sets(nbytes: int) -> int:
    """Input sets of ``nbytes`` bytes each that together are four times the L2 cache, within reason."""
    return max(1, min(MOST_SETS, -(-4 * L2_BYTES // max(1, nbytes))))


def judge(shape: Shape, time_us: float, ratio: float, share: float | None) -> tuple[str, str]:
    """The targets of a shape and the ones that it misses, in words."""
    bounds = [
        (shape.ratio, ratio, f"<= {shape.ratio} x"),
        (shape.limit_us, time_us, f"<= {shape.limit_us} us"),
        (shape.share, share, f"<= {shape.share} of {shape.of!r}"),
        (shape.fa2, ratio, f"<= {shape.fa2} x (fa2, recorded)"),
    ]
    stated = [text for bound, _, text in bounds if bound is not None]
    missed = [text for bound, value, text in bounds if bound is not None and (value is None or value > bound)]
    return "; ".join(stated), "; ".join(missed)


def time_shape(shape: Shape, ceilings: Any, reader: Any, others: dict[str, float]) -> Row:
    """Build the inputs, time them, compare with floor and targets. Inputs are dropped before the next shape."""
    from gpu_backend.cross_check import fa2_time
    from gpu_backend.timing import time_graph

    contract = CONTRACTS[shape.contract]
    work = contract.work(shape.case)
    sets = input_sets(work.read_bytes + work.copy_bytes) if shape.floor != "flops" else 1
    device = torch.device("cuda")
    calls = [contract.build(shape.case, device, seed) for seed in range(sets)]
    launches = [launch for call in calls for launch in contract.launches(shape.case, call)]

    def run() -> None:
        for launch in launches:
            launch()

    before = reader.rate()
    timing = time_graph(run, sets)
    rate = (before + reader.rate()) / 2
    floor_s = work.read_bytes / rate + work.copy_bytes / ceilings.copy
    if shape.floor == "flops":
        floor_s = max(work.flops / ceilings.flops, floor_s)
    ratio = timing.median_us / (floor_s * 1e6)
    share = timing.median_us / others[shape.of] if shape.of in others else None
    targets, missed = judge(shape, timing.median_us, ratio, share)
    fa2 = fa2_time(shape.case, calls) if isinstance(shape.case, AttentionCase) else None
    if fa2 is not None and fa2 < timing.median_us and shape.fa2 is not None:
        missed = "; ".join(filter(None, (missed, "slower than fa2")))
    return Row(
        shape.label,
        timing.median_us,
        timing.spread_us,
        floor_s * 1e6,
        ratio,
        rate,
        share,
        fa2,
        shape.fa2,
        targets,
        missed,
    )


def line(row: Row) -> str:
    """One line of the table."""
    share = "" if row.share is None else f"{row.share:8.4f}"
    fa2 = (
        f"{row.fa2_us:9.1f}" if row.fa2_us is not None else f"{row.fa2_recorded or '':>8}x" if row.fa2_recorded else ""
    )
    verdict = f"MISSED {row.missed}" if row.missed else row.targets and "ok"
    return (
        f"{row.label:34} {row.time_us:10.1f} {row.spread_us:7.1f} {row.floor_us:10.1f} {row.ratio:7.3f} "
        f"{row.read_rate / 1e12:5.2f} {share:>8} {fa2:>9}  {verdict}"
    )


def description() -> dict[str, Any]:
    """Device, versions and method, for the JSON."""
    import triton

    from gpu_backend.timing import METHOD

    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
        "python": sys.version.split()[0],
        "method": METHOD,
    }


def write_whole(path: Path, text: str) -> None:
    """Write ``path`` whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sibling = path.with_name(f".{path.name}.part")
    sibling.write_text(text)
    os.replace(sibling, path)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m gpu_backend.bench", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/bench-gpu.json"), help="where the JSON goes")
    parser.add_argument("--only", default="", help="shapes whose label contains this text")
    options = parser.parse_args(arguments)
    shapes = [shape for shape in SHAPES.values() if options.only in shape.label]
    if not shapes:
        parser.error(f"no shape contains {options.only!r}; there are {', '.join(SHAPES)}")
    if not torch.cuda.is_available():
        print("no GPU: nothing was measured", file=sys.stderr)
        return 3
    from gpu_backend.timing import Reader, measure_ceilings

    ceilings = measure_ceilings()
    reader = Reader()
    print(
        f"read {ceilings.read / 1e12:.2f} TB/s, copy {ceilings.copy / 1e12:.2f} TB/s, "
        f"bf16 {ceilings.flops / 1e12:.0f} TFLOP/s, node {ceilings.node_us:.2f} us"
    )
    print(
        f"{'shape':34} {'time us':>10} {'spread':>7} {'floor us':>10} {'ratio':>7} {'TB/s':>5} {'share':>8} {'fa2':>9}"
    )
    rows: list[Row] = []
    for shape in shapes:
        row = time_shape(shape, ceilings, reader, {row.label: row.time_us for row in rows})
        rows.append(row)
        print(line(row), flush=True)
        release(torch.device("cuda"))
    result = {**description(), "ceilings": asdict(ceilings), "rows": [asdict(row) for row in rows]}
    write_whole(options.out, json.dumps(result, indent=2) + "\n")
    missed = [row.label for row in rows if row.missed]
    print(f"{len(rows)} shapes, {len(missed)} with a missed target; {options.out}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
