"""Ways to spoil a correct log of TensorRT-LLM's events, each with the law that has to notice."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

Event = dict[str, Any]
Log = list[Event]
UNHEARD = 123_456_789


def renumbered(log: Log) -> Log:
    """The same events, numbered anew for each rank: a fault that numbers do not give away."""
    numbers: dict[Any, int] = {}
    for event in log:
        rank = event.get("attention_dp_rank")
        event["event_id"] = numbers.get(rank, 0)
        numbers[rank] = event["event_id"] + 1
    return log


def _of(log: Log, kind: str) -> Iterator[int]:
    return (place for place, event in enumerate(log) if event["data"]["type"] == kind)


def _pool(event: Event) -> tuple[Any, int]:
    return event.get("attention_dp_rank"), event["window_size"]


def _lost(log: Log, place: int) -> Log | None:
    rank = log[place].get("attention_dp_rank")
    later = any(event.get("attention_dp_rank") == rank for event in log[place + 1 :])
    earlier = any(event.get("attention_dp_rank") == rank for event in log[:place])
    return log[:place] + log[place + 1 :] if earlier and later else None


def _repeated(log: Log, place: int) -> Log:
    return [*log[: place + 1], copy.deepcopy(log[place]), *log[place + 1 :]]


def _told_twice(log: Log, place: int) -> Log:
    return renumbered(_repeated(log, place))


def _never_stored(log: Log, place: int) -> Log | None:
    log[place]["data"]["block_hashes"].append(UNHEARD)
    return log


def _no_parent(log: Log, place: int) -> Log | None:
    if log[place]["window_size"] != max(event["window_size"] for event in log):
        return None  # blocks of a window outlive their parents
    log[place]["data"]["parent_hash"] = UNHEARD
    return log


def _other_tokens(log: Log, place: int) -> Log | None:
    """Of a block that is stored again later."""
    block = log[place]["data"]["blocks"][0]
    again = any(
        one["block_hash"] == block["block_hash"]
        for event in log[place + 1 :]
        if event["data"]["type"] == "stored" and _pool(event) == _pool(log[place])
        for one in event["data"]["blocks"]
    )
    block["tokens"][0]["token_id"] += 1
    return log if again else None


def _other_adapter(log: Log, place: int) -> Log | None:
    found = _other_tokens(log, place)
    if found is not None:
        found[place]["data"]["blocks"][0]["tokens"][0]["token_id"] -= 1
        found[place]["data"]["blocks"][0]["cache_salt"] = "a tenant"
    return found


def _short_parent(log: Log, place: int) -> Log | None:
    blocks = log[place]["data"]["blocks"]
    if len(blocks) < 2 or len(blocks[1]["tokens"]) < 4:
        return None  # the size of blocks shows in other blocks only
    del blocks[0]["tokens"][2:]
    return log


def _gone_below(log: Log, place: int) -> Log | None:
    """The removal of a parent without that of its children, in the pool that never forgets a parent first."""
    if log[place]["window_size"] != max(event["window_size"] for event in log):
        return None
    blocks = log[place]["data"]["blocks"]
    if len(blocks) < 2:
        return None
    gone = {**log[place], "data": {"type": "removed", "block_hashes": [blocks[0]["block_hash"]]}}
    return renumbered([*log[: place + 1], gone])


def _small(log: Log, place: int) -> Log | None:
    """A pool that was created with room for one block less than its first event stores."""
    first = next((e for e in log if e["data"]["type"] == "stored" and _pool(e) == _pool(log[place])), None)
    if first is None:
        return None
    log[place]["data"]["num_blocks_per_cache_level"][0] = len(first["data"]["blocks"]) - 1
    return log


def _other_window(log: Log, place: int) -> Log | None:
    log[place]["window_size"] = 31
    return log


def _created_again(log: Log, place: int) -> Log | None:
    return renumbered([*log, copy.deepcopy(log[place])])


def _not_created(log: Log, place: int) -> Log | None:
    if not any(_pool(event) == _pool(log[place]) for event in log[place + 1 :]):
        return None
    return renumbered(log[:place] + log[place + 1 :])


def _moved_before(log: Log, place: int) -> Log | None:
    diff = log[place]["data"]["cache_level"]
    diff["old_value"], diff["new_value"] = diff["new_value"], diff["old_value"]
    return log


def _moved_unheard(log: Log, place: int) -> Log | None:
    log[place]["data"]["block_hash"] = UNHEARD
    return log


def _moved_away(log: Log, place: int) -> Log | None:
    log[place]["data"]["cache_level"]["new_value"] = 2
    return log


def _stored_away(log: Log, place: int) -> Log | None:
    log[place]["data"]["blocks"][-1]["cache_level"] = -1
    return log


def _urgent(log: Log, place: int) -> Log | None:
    log[place]["data"]["blocks"][0]["priority"] = 101
    return log


def _updated_urgent(log: Log, place: int) -> Log | None:
    log[place]["data"]["priority"] = {"type": "event_diff", "old_value": 35, "new_value": -1}
    return log


Mutation = Callable[[Log, int], Log | None]
# what is spoilt: which events, how, and the law that notices
MUTATIONS: dict[str, tuple[str, Mutation, str]] = {
    "an event is lost": ("stored", _lost, "numbers"),
    "a removal is lost": ("removed", _lost, "numbers"),
    "an event comes twice": ("updated", _repeated, "numbers"),
    "blocks are stored twice": ("stored", _told_twice, "stored-once"),
    "blocks are removed twice": ("removed", _told_twice, "removed-stored"),
    "a block is removed that never was": ("removed", _never_stored, "removed-stored"),
    "a block follows one that never was": ("stored", _no_parent, "parent-stored"),
    "a hash comes back with other tokens": ("stored", _other_tokens, "one-content"),
    "a hash comes back with another salt": ("stored", _other_adapter, "one-content"),
    "a block follows a partial one": ("stored", _short_parent, "full-parents"),
    "a parent goes before its child": ("stored", _gone_below, "no-orphans"),
    "a pool is smaller than what it holds": ("created", _small, "capacity"),
    "a window that nobody created": ("stored", _other_window, "created"),
    "a pool is created twice": ("created", _created_again, "created"),
    "a pool is not created": ("created", _not_created, "created"),
    "a block moves from where it is not": ("updated", _moved_before, "old-level"),
    "a block moves that never was": ("updated", _moved_unheard, "updated-stored"),
    "a block moves to a level that is not": ("updated", _moved_away, "levels"),
    "a block is stored at a level that is not": ("stored", _stored_away, "levels"),
    "a priority above 100": ("stored", _urgent, "priorities"),
    "a priority below 0": ("updated", _updated_urgent, "priorities"),
}


def spoilt(log: Log, name: str, choice: int) -> Log | None:
    """A spoilt copy of ``log``: the ``choice``-th event that can be spoilt in this way; ``None`` if none can."""
    kind, mutation, _ = MUTATIONS[name]
    places = list(_of(log, kind))
    for step in range(len(places)):
        found = mutation(copy.deepcopy(log), places[(choice + step) % len(places)])
        if found is not None:
            return found
    return None
