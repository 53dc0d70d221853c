"""vLLM's events in their encodings, with groups and media, and what breaks a law of theirs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from property_tests.logs.judging import broken, evaluated, judged
from property_tests.logs.reference import vllm_log
from property_tests.logs.test_correct_logs import BUSY
from sim.logs.vllm import REMOVED, STORED

Batch = dict[str, Any]


def stored(names: list[Any], parent: Any, tokens: list[int], **more: Any) -> Batch:
    event = {"type": "BlockStored", "block_hashes": names, "parent_block_hash": parent, "token_ids": tokens}
    return {**event, "block_size": 4, "lora_id": None, "medium": "GPU", "lora_name": None, **more}


def removed(*names: Any, **more: Any) -> Batch:
    return {"type": "BlockRemoved", "block_hashes": list(names), "medium": "GPU", **more}


def batches(*events: Batch, rank: int = 0) -> list[Batch]:
    """A batch for each event."""
    return [
        {"seq": seq, "ts": 1.5 * seq, "events": [event], "data_parallel_rank": rank} for seq, event in enumerate(events)
    ]


CHAIN = stored([1, 2], None, [10, 11, 12, 13, 14, 15, 16, 17])


def as_arrays(log: list[Batch]) -> list[Any]:
    """The positional encoding of older releases: ``[ts, [[type, field, ..], ..], rank]``."""

    def event(one: Batch) -> list[Any]:
        names = {"BlockStored": STORED, "BlockRemoved": REMOVED}.get(one["type"], ())
        known = [name for name in names if name in one]
        return [one["type"], *(one.get(name) for name in names[: names.index(known[-1]) + 1 if known else 0])]

    return [[batch["ts"], [event(one) for one in batch["events"]], batch["data_parallel_rank"]] for batch in log]


def test_maps_arrays_single_events_and_lists_of_batches_are_the_same_log() -> None:
    log = vllm_log(BUSY, 1, 5, 3)
    plain = judged(log, "vllm-events")
    single = [event for batch in log for event in batch["events"]]
    for other in (as_arrays(log), single, [log], [as_arrays(log)]):
        report = judged(other)
        assert report.format == "vllm-events"
        assert report.events == plain.events
        assert report.broken == 0
        assert evaluated(report) | {"numbers"} == evaluated(plain)


PLANTED: dict[str, tuple[str, list[Batch]]] = {
    "a batch is missing": ("numbers", [batches(CHAIN)[0], {**batches(removed(2))[0], "seq": 2}]),
    "a batch comes late": ("numbers", [*batches(CHAIN, removed(2)), {**batches(removed(1))[0], "seq": 1}]),
    "more tokens than blocks": ("block-size", batches(stored([1], None, [1, 2, 3, 4, 5]))),
    "blocks of two sizes": ("block-size", batches(CHAIN, stored([3], 2, [1, 2], block_size=2))),
    "a parent that never was": ("parent-stored", batches(stored([1], 99, [1, 2, 3, 4]))),
    "a parent that is gone": ("parent-stored", batches(CHAIN, removed(2), removed(1), stored([3], 2, [1, 2, 3, 4]))),
    "other tokens": ("one-content", batches(CHAIN, removed(2), stored([2], 1, [0, 0, 0, 0]))),
    "another parent": ("one-content", batches(CHAIN, stored([2], None, [14, 15, 16, 17]))),
    "another adapter": ("one-content", batches(CHAIN, stored([1], None, [10, 11, 12, 13], lora_name="poet"))),
    "another salt": (
        "one-content",
        batches(
            stored([1], None, [1, 2, 3, 4], extra_keys=[["salt a"]]),
            stored([1], None, [1, 2, 3, 4], extra_keys=[["salt b"]]),
        ),
    ),
    "removed once too often": ("removed-stored", batches(CHAIN, CHAIN, removed(2), removed(2), removed(2))),
    "removed at another medium": ("removed-stored", batches(CHAIN, removed(2, medium="CPU"))),
    "removed in another group": ("removed-stored", batches(CHAIN, stored([5], None, [1] * 4, group_idx=1), removed(5))),
    "removed after a clear": ("removed-stored", batches(CHAIN, {"type": "AllBlocksCleared"}, removed(2))),
    "followed after a clear": (
        "parent-stored",
        batches(CHAIN, {"type": "AllBlocksCleared"}, stored([3], 2, [1, 2, 3, 4])),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_noticed(name: str) -> None:
    law, log = PLANTED[name]
    report = judged(log)
    assert broken(report) == {law}
    assert report.findings[-1].line == len(log)


def test_every_law_has_a_planted_log() -> None:
    assert {law for law, _ in PLANTED.values()} == {law.name for law in judged(batches(CHAIN)).laws}


def test_a_group_with_a_window_stores_without_its_parents_and_with_more_tokens_than_blocks() -> None:
    window = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 8}
    full = {"group_idx": 0, "kv_cache_spec_kind": "full_attention", "kv_cache_spec_sliding_window": None}
    log = batches(
        {**CHAIN, **full},
        stored([7], 55, list(range(24)), **window),
        removed(7, group_idx=1),
        stored([3], 2, [1, 2, 3, 4], **full),
    )
    report = judged(log)
    assert report.broken == 0
    assert {pool["pool"]: pool["full_attention"] for pool in report.pools} == {
        "rank 0 GPU group 0": True,
        "rank 0 GPU group 1": False,
    }
    undecided = {law.name: law.undecided for law in report.laws}
    assert undecided["one-content"] == undecided["block-size"] == 1


def test_a_group_of_unknown_kind_leaves_open_what_hangs_on_it() -> None:
    report = judged(batches(stored([7], 55, [1, 2, 3, 4], group_idx=1)))
    assert report.broken == 0
    assert {law.name: law.undecided for law in report.laws}["parent-stored"] == 1


def test_an_offloaded_block_is_told_without_tokens_and_goes_on_its_own() -> None:
    offload = stored([1], None, [], block_size=0, medium="CPU")
    report = judged(batches(CHAIN, offload, removed(2), removed(1), removed(1, medium="CPU")))
    assert report.broken == 0


def test_hashes_may_be_text_and_ranks_name_blocks_for_themselves() -> None:
    text = copy.deepcopy(CHAIN)
    text["block_hashes"] = ["9f02", "77aa"]
    log = batches(text, removed("77aa")) + batches(stored(["9f02"], None, [5, 5, 5, 5]), rank=1)
    assert judged(log).broken == 0


def test_no_full_attention_anywhere_can_be_said() -> None:
    log = batches(stored([1], 99, [1, 2, 3, 4]))
    assert judged(log).broken == 1
    assert judged(log, windowed=True).broken == 0
