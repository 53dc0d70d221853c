"""TensorRT-LLM's events of a cache manager with layer groups: pools of their own that share what was created."""

from __future__ import annotations

from typing import Any

from property_tests.logs.judging import broken, judged

Event = dict[str, Any]


def events(*told: tuple[dict[str, Any], int | None]) -> list[Event]:
    """Numbered events of (data, layer group): group 0 has a window of 8 tokens, group 1 attends to everything."""
    windows: dict[int | None, int] = {0: 8, 1: 4096, None: 4096}
    log: list[Event] = []
    for number, (data, group) in enumerate(told):
        event = {"event_id": number, "data": data, "window_size": windows[group], "hash_algo": "v2_sha256"}
        log.append(event if group is None else {**event, "layer_group_id": group})
    return log


def stored(*names: str, parent: str | None = None) -> dict[str, Any]:
    tokens = [{"type": "unique_token", "token_id": token, "token_extra_id": 0} for token in range(4)]
    blocks = [{"block_hash": name, "tokens": tokens, "cache_level": 0, "priority": 35, "mm_keys": []} for name in names]
    return {"type": "stored", "parent_hash": parent, "blocks": blocks}


def removed(*names: str) -> dict[str, Any]:
    return {"type": "removed", "block_hashes": list(names)}


def moved(name: str, old: int, new: int) -> dict[str, Any]:
    return {
        "type": "updated",
        "block_hash": name,
        "cache_level": {"old_value": old, "new_value": new},
        "priority": None,
    }


CREATED = {"type": "created", "num_blocks_per_cache_level": [2, 2]}
BEGIN = ((CREATED, 0), (CREATED, 1), (stored("a", "b"), 0), (stored("a", "b"), 1))


def test_a_group_with_a_window_forgets_a_parent_first_and_one_without_does_not() -> None:
    assert judged(events(*BEGIN, (removed("a"), 0), (stored("c", parent="b"), 0))).broken == 0
    assert broken(judged(events(*BEGIN, (removed("a"), 1), (stored("c", parent="b"), 1)))) == {"no-orphans"}


def test_what_was_created_is_shared_by_the_groups_so_no_group_is_too_small_for_it() -> None:
    report = judged(events(*BEGIN, (stored("c", parent="b"), 1)))
    assert report.broken == 0
    assert {law.name: law.undecided for law in report.laws}["capacity"] == 3


def test_an_event_that_names_no_group_is_about_all_that_have_the_block() -> None:
    report = judged(events(*BEGIN, (removed("b"), 0), (moved("b", 0, 1), None), (moved("a", 0, 1), None)))
    assert report.broken == 0
    counts = {law.name: law.evaluations for law in report.laws}
    assert counts["old-level"] == 3
    assert judged(events(*BEGIN, (removed("a", "b"), None), (stored("a"), 0), (stored("a"), 1))).broken == 0


def test_an_event_that_names_no_group_and_a_block_that_none_has_is_noticed() -> None:
    report = judged(events(*BEGIN, (removed("x"), None)))
    assert broken(report) == {"removed-stored", "created"}
