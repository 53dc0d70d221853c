"""The whole Mooncake conversation trace, in a process of its own for its memory; run by ``make bench``."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from model.builds import BUILDS
from property_tests.benchmarking import best_of
from scenarios.loader import trace_scenario
from sim.run import run_scenario

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDER = Path(os.environ.get("KVTWIN_TRACES", CHECKOUT.parent / "shared" / "traces"))
TRACE = "mooncake_fast25_conversation_trace.jsonl.gz"
SECONDS, GIB = 60.0, 1 << 30


def clock() -> float:
    """Processor time of the processes that were started from here and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


pytestmark = pytest.mark.benchmark(timer=clock)


def replay(path: str) -> dict[str, Any]:
    """Replay a trace on the default build with incremental checks; what came of it, and the peak of memory in bytes."""
    result = run_scenario(trace_scenario(path, "mooncake"), BUILDS["unified"])
    return {
        "requests": len(result.records),
        "finished": result.totals.finished,
        "prompt_tokens": sum(record.prompt_tokens for record in result.records),
        "cached_tokens": result.totals.cached_tokens,
        "iterations": result.totals.iterations,
        "violations": [violation.as_dict() for violation in result.violations],
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def test_the_mooncake_conversation_trace(benchmark: BenchmarkFixture) -> None:
    """Targets: 60 s of processor time and 2 GiB for 12,031 requests and 144.8M prompt tokens, start-up included."""
    path = FOLDER / TRACE
    if not path.is_file():
        pytest.skip(f"the public trace {TRACE} is neither in {FOLDER.name}/ beside the checkout nor in KVTWIN_TRACES")

    def run() -> dict[str, Any]:
        command = [sys.executable, "-m", "property_tests.bench_mooncake", str(path)]
        done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    result = best_of(benchmark, run, rounds=1, target_s=SECONDS)
    benchmark.extra_info["peak_mib"] = result["peak_bytes"] >> 20
    assert (result["requests"], result["finished"], result["prompt_tokens"]) == (12_031, 12_031, 144_793_823)
    assert result["violations"] == []
    assert result["peak_bytes"] < 2 * GIB


if __name__ == "__main__":
    json.dump(replay(sys.argv[1]), sys.stdout)
