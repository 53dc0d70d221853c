"""Logs of caches that are right break no law, and every law is evaluated on some of them."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from property_tests.logs.judging import broken, evaluated, judged
from property_tests.logs.reference import Key, trtllm_log, vllm_log

# sequences that share prefixes: few tokens, short words of them
words = st.sampled_from([(1, 2, 3, 4), (1, 2, 3, 5), (7, 7, 7, 7), (9,), (2, 8)])
sequences = st.lists(words, min_size=1, max_size=5).map(lambda found: sum(found, ()))
requests = st.lists(st.tuples(st.integers(0, 3), sequences), min_size=1, max_size=14)
pools = st.sampled_from([[(64, (6, 0))], [(64, (5, 3))], [(8, (4, 2)), (64, (7, 4))], [(64, (40, 9))]])
CHAIN: Key = (1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 9)
OTHER: Key = (7, 7, 7, 7, 1, 2, 3, 5, 2, 8)
BUSY = [(0, CHAIN), (1, OTHER), (0, OTHER), (1, CHAIN), (0, CHAIN), (1, (9, 9, 9, 9) * 5), (0, (5,) * 21), (0, CHAIN)]


@settings(max_examples=60)
@given(requests, st.integers(1, 3), pools)
@example(BUSY, 1, [(64, (5, 3))])
def test_a_prefix_tree_with_windows_ranks_and_a_host_breaks_no_law_of_trtllm_events(
    requests: list[tuple[int, Key]], ranks: int, pools: list[tuple[int, tuple[int, int]]]
) -> None:
    report = judged(trtllm_log(requests, ranks, pools))
    assert report.format == "trtllm-events"
    assert report.findings == [] and report.broken == 0
    assert {"created", "parent-stored", "stored-once", "one-content", "capacity"} <= evaluated(report)


@settings(max_examples=60)
@given(requests, st.integers(1, 3), st.sampled_from([5, 9, 40]), st.integers(-1, 13))
@example(BUSY, 1, 5, 3)
def test_a_pool_with_equal_blocks_and_clears_breaks_no_law_of_vllm_events(
    requests: list[tuple[int, Key]], ranks: int, total: int, clear_after: int
) -> None:
    log = vllm_log(requests, ranks, total, clear_after)
    if log:
        report = judged(log, "vllm-events")
        assert report.findings == [] and report.broken == 0


def test_every_law_of_trtllm_events_is_evaluated_on_a_correct_log() -> None:
    report = judged(trtllm_log(BUSY * 2, 2, [(8, (4, 2)), (64, (5, 3))]))
    assert broken(report) == set()
    assert {law.name for law in report.laws} == evaluated(report)
    assert {"created", "stored", "removed", "updated"} == set(report.events)


def test_every_law_of_vllm_events_is_evaluated_on_a_correct_log() -> None:
    report = judged(vllm_log(BUSY * 2, 2, 5, 7), "vllm-events")
    assert broken(report) == set()
    assert {law.name for law in report.laws} == evaluated(report)
    assert {"BlockStored", "BlockRemoved", "AllBlocksCleared"} == set(report.events)


def test_equal_requests_at_once_store_one_hash_twice_and_remove_it_twice() -> None:
    log = vllm_log([(1, CHAIN), (0, (5,) * 20), (0, (6,) * 20)], 1, 6)
    stored = [name for batch in log for event in batch["events"] for name in event["block_hashes"]]
    assert len(stored) > len(set(stored))
    assert judged(log, "vllm-events").broken == 0


@settings(max_examples=30)
@given(requests, st.integers(1, 60), pools)
@example(BUSY, 5, [(64, (5, 3))])
def test_a_log_that_begins_in_mid_run_leaves_open_what_it_cannot_know(
    requests: list[tuple[int, Key]], begin: int, pools: list[tuple[int, tuple[int, int]]]
) -> None:
    log = trtllm_log(requests, 1, pools)
    if log[begin:]:
        assert judged(log[begin:]).findings == []
    batches = vllm_log(requests, 1, 5)
    if batches[1:]:
        assert judged(batches[1:], "vllm-events").findings == []


def test_without_numbers_a_log_that_begins_in_mid_run_has_to_be_said_to() -> None:
    log = [{key: value for key, value in batch.items() if key != "seq"} for batch in vllm_log(BUSY, 1, 5)]
    assert broken(judged(log[3:], "vllm-events")) != set()
    report = judged(log[3:], "vllm-events", partial=True)
    assert broken(report) == set()
    assert sum(law.undecided for law in report.laws) > 0
    assert "METRIC" in report.open


def test_after_events_that_are_missing_only_the_gap_is_told() -> None:
    log = trtllm_log(BUSY * 2, 1, [(64, (5, 3))])
    for place in range(1, len(log) - 1):
        report = judged(log[:place] + log[place + 1 :])
        assert [finding.law for finding in report.findings] == ["numbers"], place
