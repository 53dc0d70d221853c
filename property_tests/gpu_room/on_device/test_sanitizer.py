"""compute-sanitizer over a tiny scenario: no read of unwritten memory, none outside; planted faults are reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCENARIO = "property_tests.gpu_room.on_device.tiny_scenario"


def sanitize(tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The scenario under ``tool``; every allocation is its own, so that neighbours are not taken for the pool."""
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    tool_line = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--print-limit", "5"]
    line = [*tool_line, sys.executable, "-m", SCENARIO, *arguments]
    return subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("tool", ["memcheck", "initcheck"])
def test_the_kernels_touch_only_what_is_theirs_and_written(tool: str) -> None:
    done = sanitize(tool)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "ERROR SUMMARY: 0 errors" in done.stdout


@pytest.mark.parametrize(("tool", "fault"), [("initcheck", "stray"), ("memcheck", "outside")])
def test_a_planted_fault_is_reported_at_the_attention_kernel(tool: str, fault: str) -> None:
    done = sanitize(tool, fault)
    assert done.returncode != 0
    assert "paged_attention_kernel" in done.stdout, done.stdout[-3000:] + done.stderr[-1000:]
