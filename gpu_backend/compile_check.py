"""Compile every kernel variant of the bench for an H200, without one, and hold each to its resources.

``python -m gpu_backend.compile_check`` prints registers, stack and shared memory of every variant and exits with 1 if a
variant spills, asks for more shared memory than a block may have, or keeps fewer than two buffers of K and V. On a
machine with a GPU it also fills Triton's cache, in parallel, before anything is timed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from gpu_backend.bench_shapes import SHAPES, compile_twin
from gpu_backend.contracts import CONTRACTS
from gpu_backend.contracts.attention import AttentionCase
from gpu_backend.kernels.launch import INTERPRETED, Launch

HOPPER = GPUTarget("cuda", 90, 32)
SHARED_LIMIT = 232448  # bytes of shared memory that one block may have on sm_90 (227 KiB)


class NoDevice:
    """Stands in for the driver of a machine with a Hopper GPU, as far as compiling needs one."""

    def get_current_target(self) -> GPUTarget:
        return HOPPER

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Resources:
    """What one compiled variant takes: registers a thread, stack and shared memory in bytes."""

    label: str
    kernel: str
    registers: int
    stack: int
    shared: int
    wanted: int  # least shared memory that two buffers of K and V need, 0 for kernels without them

    def faults(self) -> list[str]:
        """What the gate holds against the variant, in words."""
        found = []
        if self.stack:
            found.append(f"uses {self.stack} bytes of stack")
        if self.shared > SHARED_LIMIT:
            found.append(f"asks for {self.shared} bytes of shared memory, more than {SHARED_LIMIT}")
        if self.shared < self.wanted:
            found.append(f"has {self.shared} bytes of shared memory, too few for two K/V buffers ({self.wanted})")
        return found


def twin_launches(label: str) -> list[Launch]:
    """Launches of a small case with the kernels of the shape ``label``."""
    shape = SHAPES[label]
    case, splits, tile = shape.case, None, None
    if isinstance(case, AttentionCase):
        from gpu_backend.kernels.attention_plan import AttentionPlan

        plan = AttentionPlan(
            case.widths, case.heads, case.kv_heads, case.dim, case.page_size, case.dtype, "meta",
            longest=max(case.lengths()), window_left=case.window_left, exact=case.exact, chunk=case.chunk,
            tile=case.tile,
        )  # fmt: skip
        splits, tile = plan.splits, plan.tile
    contract = CONTRACTS[shape.contract]
    small = compile_twin(case, splits, tile)
    return contract.launches(small, contract.build(small, torch.device("cpu"), 0))


def resources(cubin: bytes) -> tuple[int, int]:
    """Registers and stack bytes of the one kernel in ``cubin``, as ``cuobjdump`` reads them."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        tool = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        text = subprocess.run(tool, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    if found is None:
        raise RuntimeError(f"cuobjdump says nothing of registers: {text.strip()[-200:]}")
    return int(found[1]), int(found[2])


def inspect(label: str) -> list[Resources]:
    """Compile the kernels of one shape and read what they take."""
    active: Any = NoDevice()
    driver.set_active(active)
    found = []
    for launch in twin_launches(label):
        compiled = launch.compile()
        constants = launch.constants
        wanted = 2 * 2 * 2 * constants["BLOCK_N"] * constants["D"] if "BLOCK_N" in constants else 0
        registers, stack = resources(compiled.asm["cubin"])
        found.append(Resources(label, launch.name, registers, stack, compiled.metadata.shared, wanted))
    return found


def main(arguments: list[str] | None = None) -> int:
    """Compile, print, judge; 0 fine, 1 a variant is refused, 2 usage, 3 the interpreter has nothing to compile."""
    parser = argparse.ArgumentParser(prog="python -m gpu_backend.compile_check", description=__doc__)
    parser.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 1), help="processes that compile")
    parser.add_argument("--only", default="", help="shapes whose label contains this text")
    options = parser.parse_args(arguments)
    labels = [label for label in SHAPES if options.only in label]
    if INTERPRETED or not labels:
        why = "TRITON_INTERPRET is set" if INTERPRETED else f"no shape contains {options.only!r}"
        print(f"nothing was compiled: {why}", file=sys.stderr)
        return 3
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        variants = [variant for found in pool.map(inspect, labels) for variant in found]
    refused = 0
    for variant in variants:
        faults = variant.faults()
        refused += bool(faults)
        takes = f"{variant.registers:4} registers {variant.stack:4} stack {variant.shared:7} shared"
        print(f"{variant.label:34} {variant.kernel:18} {takes}  {'; '.join(faults) or 'ok'}")
    print(f"{len(variants)} variants, {refused} refused")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
