"""Speed of the laws over logs; run by ``make bench``, not by the ordinary suite.

Targets are for a million events; a tenth of them is measured, each law evaluated as often as it would be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from property_tests.benchmarking import CLOCK, US, best_of
from sim.logs.check import check_log

pytestmark = pytest.mark.benchmark(timer=CLOCK)

EVENTS = 100_000
CHAIN = 8  # blocks of a conversation
POOL = 4_096  # blocks


def _chains(size: int) -> Iterator[tuple[int, int | None, list[int], int]]:
    """``(name, parent, tokens, name to remove or -1)`` for every new block: chains of blocks, the oldest leaf goes."""
    for number in range(EVENTS // 2):
        place = number % CHAIN
        parent = None if place == 0 else number
        gone = number - POOL
        leaf = -1 if gone < 0 else gone // CHAIN * CHAIN + CHAIN - gone % CHAIN
        yield number + 1, parent, [(number * 7 + token) % 150_000 for token in range(size)], leaf


def _vllm() -> Iterator[str]:
    """A store of one block of 16 tokens and, once the pool is full, a removal in each batch."""
    for number, (name, parent, tokens, gone) in enumerate(_chains(16)):
        event = {"type": "BlockStored", "block_hashes": [name], "parent_block_hash": parent, "token_ids": tokens}
        events = [{**event, "block_size": 16, "lora_id": None, "medium": "GPU", "lora_name": None}]
        if gone > 0:
            events.append({"type": "BlockRemoved", "block_hashes": [gone], "medium": "GPU"})
        yield json.dumps({"seq": number, "ts": number / 64, "events": events, "data_parallel_rank": 0})


def _trtllm() -> Iterator[str]:
    """A store of one block of 32 tokens and, once the pool is full, a removal."""
    number = 1
    created = {"type": "created", "num_blocks_per_cache_level": [POOL + CHAIN, 0]}
    yield json.dumps({"event_id": 0, "data": created, "window_size": 1 << 20})
    for name, parent, tokens, gone in _chains(32):
        held = [{"type": "unique_token", "token_id": token, "token_extra_id": 0} for token in tokens]
        block = {"type": "stored_block", "block_hash": name, "tokens": held, "cache_level": 0, "priority": 35}
        data = [{"type": "stored", "parent_hash": parent, "blocks": [block]}]
        if gone > 0:
            data.append({"type": "removed", "block_hashes": [gone]})
        for one in data:
            yield json.dumps({"event_id": number, "data": one, "window_size": 1 << 20})
            number += 1


def _kvtwin() -> Iterator[str]:
    """Requests one after another, each with a chunk and steps that commit two tokens, as a run with checks tells."""
    steps, iteration = 400, 0
    for request in range(EVENTS // (4 * steps)):
        owner, limit = request + 1, 2 * steps + 1
        head = [
            {"event": "submit", "request": request, "order": request, "prompt": 640, "max_new_tokens": limit},
            {"event": "claim", "request": request, "owner": owner, "tokens": 0, "fresh": 0, "branch": -1},
            {"event": "bind", "slot": 0, "owner": owner, "length": 0, "base": 0, "draft_length": 0},
            {"event": "iteration", "chunks": 1, "steps": 0},
            {"event": "chunk", "request": request, "slot": 0, "start": 0, "end": 640, "last": 1},
            {"event": "mem_bind", "slot": 0, "owner": owner, "length": 0, "base": 0, "draft_length": 0},
            {"event": "mem_chunk", "owner": owner, "start": 0, "end": 640, "base": 0, "tags": ["5a"]},
        ]
        yield from (json.dumps({"iteration": iteration, **event}) for event in head)
        settled = {"event": "settle", "request": request, "committed": 1, "known": 641}
        for step in range(steps):
            iteration += 1
            yield json.dumps({"iteration": iteration, **settled})
            yield json.dumps({"iteration": iteration, "event": "iteration", "chunks": 0, "steps": 1})
            row = {"event": "step", "request": request, "slot": 0, "width": 4, "real_drafts": 1}
            yield json.dumps({"iteration": iteration, **row})
            done = {"event": "mem_step", "iteration": iteration, "owner": owner, "position": 642 + 2 * step}
            done |= {"committed": 2, "base": 0, "draft_length": 642 + 2 * step, "slot": 0, "tag": "5a", "draft_slot": 0}
            yield json.dumps({**done, "draft_tag": 7})
            settled = {"event": "settle", "request": request, "committed": 2, "known": 643 + 2 * step}
        iteration += 1
        tail = [settled, {"event": "finish", "request": request, "output": limit}, {"event": "release", "owner": owner}]
        yield from (json.dumps({"iteration": iteration, **event}) for event in (*tail, {"event": "unbind", "slot": 0}))


@pytest.mark.parametrize(
    ("format", "make"),
    [("kvtwin", _kvtwin), ("vllm-events", _vllm), ("trtllm-events", _trtllm)],
    ids=["kvtwin", "vllm", "trtllm"],
)
def test_a_million_events_are_checked_in_15_seconds(
    benchmark: BenchmarkFixture, tmp_path: Path, format: str, make: Callable[[], Iterator[str]]
) -> None:
    """Target: 15 s; of vLLM's with 16 tokens a block, of TensorRT-LLM's with 32 tokens a block, an object each."""
    path = tmp_path / "log.jsonl"
    with path.open("w") as file:
        file.writelines(f"{line}\n" for line in make())
    report = best_of(benchmark, lambda: check_log(path, format), rounds=2, target_s=15 * US, parts=EVENTS)
    assert report.broken == 0
    assert sum(report.events.values()) > 0.9 * EVENTS
