"""Compiled variants without a GPU, the planner, and the commands' exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

from gpu_backend.bench import main as bench
from gpu_backend.bench_shapes import SHAPES
from gpu_backend.contracts.attention import AttentionCase
from gpu_backend.cross_check import Refused, require_supported
from gpu_backend.kernels.attention_plan import AttentionPlan
from gpu_backend.kernels.tiles import MOST_SPLITS, Tile, splits_for, tile_for

ROOT = Path(__file__).resolve().parents[2]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, where the interpreter of Triton is off."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    )


@cache
def two_checks() -> subprocess.CompletedProcess[str]:
    """What the compile check says of a tile that is too small, and its exit code where no shape has the name."""
    return python(
        "-c",
        "from gpu_backend import compile_check as c, bench_shapes as b\n"
        "from dataclasses import replace\n"
        "from gpu_backend.kernels.tiles import Tile\n"
        "label = 'verify B 8 at 32k, page 128'\n"
        "shape = b.SHAPES[label]\n"
        "b.SHAPES[label] = replace(shape, case=replace(shape.case, tile=Tile(32, 64, 4, 2)))\n"
        "print([fault for variant in c.inspect(label) for fault in variant.faults()])\n"
        "import runpy, sys\n"
        "sys.argv[1:] = ['--only', 'no such shape']\n"
        "runpy.run_module('gpu_backend.compile_check', run_name='__main__')\n",
    )


def test_every_variant_compiles_for_hopper_without_stack_and_with_two_buffers() -> None:
    done = python("-m", "gpu_backend.compile_check", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) variants, 0 refused", done.stdout)
    assert found is not None and int(found[1]) >= len(SHAPES)


def test_the_gate_refuses_a_tile_that_keeps_one_buffer() -> None:
    assert "too few for two K/V buffers" in two_checks().stdout, two_checks()


@pytest.mark.parametrize(
    ("programs", "tokens", "rows", "splits"),
    [(8, 4096, 32, 13), (8, 32768, 32, 31), (64, 32768, 32, 4), (512, 131072, 32, 1), (32, 4096, 64, 4)],
)
def test_splits_fill_the_device_just_about(programs: int, tokens: int, rows: int, splits: int) -> None:
    chosen = splits_for(programs, tokens // 64 + 1, Tile(rows, 64, 4, 5))
    assert chosen == splits <= MOST_SPLITS
    assert chosen == 1 or programs * chosen <= (264 if rows < 64 else 132)


@pytest.mark.parametrize("widest", [1, 4, 8, 31, 2048])
@pytest.mark.parametrize("group", [1, 4, 8, 16])
def test_a_tile_holds_a_group_and_no_more_rows_than_it_needs(widest: int, group: int) -> None:
    tile = tile_for(widest, group, 128, torch.bfloat16)
    assert tile.block_m >= group and tile.block_m & (tile.block_m - 1) == 0
    assert tile.block_m >= min(128, widest * group)
    assert tile.block_m < 2 * max(16, group, widest * group)


def test_a_plan_refuses_what_it_cannot_cut() -> None:
    with pytest.raises(ValueError, match="4 query heads cannot share 3"):
        AttentionPlan([1], 4, 3, 32, 16, torch.float32, "cpu", longest=16)
    with pytest.raises(ValueError, match="chunk of 48 keys"):
        AttentionPlan([1], 4, 2, 32, 16, torch.float32, "cpu", longest=16, exact=True, chunk=48)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"widths": (300,), "past": (3796,), "causal": False, "window_left": 333}, "issue 4972"),
        ({"starts": (3,)}, "first readable position"),
        ({"released": True}, "some were released"),
        ({"parked": (0,)}, "at least as many keys"),
        ({"dtype": torch.float32}, "float32"),
        ({"dim": 32}, "heads of 32"),
    ],
)
def test_the_second_opinion_refuses_what_it_gets_wrong(change: dict, why: str) -> None:
    good = {"widths": (8,), "past": (100,), "dim": 128, "heads": 8, "dtype": torch.bfloat16}
    require_supported(AttentionCase(**good))
    with pytest.raises(Refused, match=why):
        require_supported(AttentionCase(**{**good, **change}))


def test_a_bench_that_measures_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        bench(["--only", "no such shape"])
    assert refused.value.code == 2
    assert "no shape contains 'no such shape'" in capsys.readouterr().err
    assert two_checks().returncode == 3 and "no shape contains 'no such shape'" in two_checks().stderr
    if not torch.cuda.is_available():
        assert bench([]) == 3
        assert "nothing was measured" in capsys.readouterr().err
