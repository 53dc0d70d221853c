"""Importers on the real public traces, where they lie beside the checkout or where KVTWIN_TRACES says."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from scenarios.loader import trace_scenario
from scenarios.workload import Workload, prompt_lengths

CHECKOUT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("KVTWIN_TRACES", CHECKOUT.parent / "shared" / "traces"))


def read(name: str, block: int = 512) -> Workload:
    """The workload in a trace file; the test says which file is absent."""
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"the public trace {name} is neither in {FOLDER.name}/ beside the checkout nor in KVTWIN_TRACES")
    return trace_scenario(path, "mooncake", block=block).workload()


def hit_share(workload: Workload) -> float:
    """Share of the blocks that an endless cache would have."""
    seen, blocks = set[int](), 0
    for session in workload.sessions:
        for turn in session.turns:
            blocks += len(turn.append)
            seen.update(part.seed for part in turn.append)
    return 1 - len(seen) / blocks


def prompts(workload: Workload) -> list[int]:
    return [length for session in workload.sessions for length in prompt_lengths(session)]


def test_mooncake_conversation_has_the_published_shape() -> None:
    workload = read("mooncake_fast25_conversation_trace.jsonl.gz")
    assert workload.requests == len(workload.sessions) == 12_031
    assert sum(prompts(workload)) == 144_793_823
    assert max(prompts(workload)) == 126_195
    assert hit_share(workload) == pytest.approx(0.366, abs=0.001)
    assert workload.sessions[-1].arrival_s == pytest.approx(3_537, abs=3)


def test_mooncake_conversation_is_read_in_about_a_second() -> None:
    started = time.process_time()
    read("mooncake_fast25_conversation_trace.jsonl.gz")
    assert time.process_time() - started < 3.0


def test_mooncake_synthetic_has_the_published_shape() -> None:
    workload = read("mooncake_fast25_synthetic_trace.jsonl.gz")
    assert workload.requests == 3_993
    assert max(prompts(workload)) == 191_378
    assert hit_share(workload) == pytest.approx(0.640, abs=0.001)


def test_mlperf_agentic_sessions_are_whole_prompts_with_pauses() -> None:
    workload = read("mlperf_edge_agentic_derived.jsonl.gz", block=64)
    assert (len(workload.sessions), workload.requests) == (20, 1_007)
    assert {len(session.turns) for session in workload.sessions} <= set(range(27, 62))
    assert all(turn.whole for session in workload.sessions for turn in session.turns)
    assert hit_share(workload) == pytest.approx(0.961, abs=0.002)
    assert max(turn.think_s for session in workload.sessions for turn in session.turns) == pytest.approx(120, abs=1)
