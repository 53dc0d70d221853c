"""The bench of the GPU kernels under ``make bench``: one round where there is a GPU, nothing to collect elsewhere."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from pytest_benchmark.fixture import BenchmarkFixture

if importlib.util.find_spec("torch") is not None and importlib.util.find_spec("triton") is not None:
    import torch

    from gpu_backend.bench import main

    if torch.cuda.is_available():

        def test_every_kernel_reaches_its_target(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
            out = tmp_path / "bench-gpu.json"
            code = benchmark.pedantic(main, args=(["--out", str(out)],), rounds=1)
            missed = {row["label"]: row["missed"] for row in json.loads(out.read_text())["rows"] if row["missed"]}
            assert (code, missed) == (0, {})
