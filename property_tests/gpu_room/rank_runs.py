"""Cases of tensor parallelism run by torch's launcher, and what their ranks report."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from gpu_backend.parallel.report import RankReport

ROOT = Path(__file__).resolve().parents[2]
LOCAL = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "NCCL_NVLS_ENABLE": "0", "OMP_NUM_THREADS": "1"}


def reports(folder: Path, kind: str, cases: Mapping[str, str], ranks: int = 2) -> dict[str, list[RankReport]]:
    """What every rank reports of ``cases`` (``SCENARIO,BUILD,PLANT,PATIENCE`` by name)."""
    launcher = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--local-addr",
        "127.0.0.1",
        "--nproc-per-node",
        str(ranks),
    ]
    command = [sys.executable, *launcher, "-m", "property_tests.gpu_room.rank_cases", str(folder), kind]
    done = subprocess.run(
        [*command, *cases.values()],
        cwd=ROOT,
        env={**os.environ, **LOCAL},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = [(folder / f"rank{rank}.jsonl").read_text().splitlines() for rank in range(ranks)]
    return {name: [RankReport.decoded(lines[number]) for lines in found] for number, name in enumerate(cases)}
