"""Small caches that are right, written without the checker's code, and the logs that engines like them would write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]
Key = tuple[int, ...]  # all tokens up to the end of a block

SIZE = 4  # tokens per block
DEFAULT_PRIORITY = 35


def named(key: Key) -> int:
    """The hash of a block: of everything up to its end."""
    return hash(key) & (1 << 63) - 1


def blocks_of(tokens: Key) -> list[Key]:
    """The blocks of a sequence as keys, the last one perhaps partial."""
    return [tokens[: min(end, len(tokens))] for end in range(SIZE, len(tokens) + SIZE, SIZE)]


@dataclass
class _Entry:
    level: int
    used: int


@dataclass
class TrtllmPool:
    """A prefix tree over two cache levels: leaves go first, the oldest of them, to the host while it has room."""

    window: int
    levels: tuple[int, int]
    entries: dict[Key, _Entry] = field(default_factory=dict)
    clock: int = 0

    def store(self, tokens: Key) -> list[Event]:
        """Serve a sequence and store what is new of it; returns the events' data."""
        self.clock += 1
        told: list[Event] = []
        keys = blocks_of(tokens)
        for key in keys:
            if key in self.entries:
                self.entries[key].used = self.clock
        new: list[Key] = []
        parent: Key | None = None
        for key in keys:
            entry = self.entries.get(key)
            if entry is None:
                if not self._room(told, set(keys)):
                    break
                self.entries[key] = _Entry(0, self.clock)
                new.append(key)
            elif entry.level:
                if not self._room(told, set(keys)):
                    break
                entry.level = 0
                told.append(_moved(key, 1, 0))
            if not new:
                parent = key
        if new:
            blocks = [_block(key) for key in new]
            told.append({"type": "stored", "parent_hash": None if parent is None else named(parent), "blocks": blocks})
        return told

    def _room(self, told: list[Event], kept: set[Key]) -> bool:
        """Make room for one block on the GPU."""
        while sum(entry.level == 0 for entry in self.entries.values()) >= self.levels[0]:
            victim = self._victim(0, kept)
            if victim is None:
                return False
            held = sum(entry.level == 1 for entry in self.entries.values())
            below = any(key != victim and key[: len(victim)] == victim for key in self.entries)
            if held >= self.levels[1] and self.levels[1]:
                away = self._victim(1, kept)
                if away is not None:
                    self._remove([away], told)
                    held -= 1
            if held < self.levels[1]:
                self.entries[victim].level = 1
                told.append(_moved(victim, 0, 1))
            elif below:
                return False
            else:
                self._remove([victim], told)
        return True

    def _victim(self, level: int, kept: set[Key]) -> Key | None:
        """The oldest block of a level below which no block of it hangs; on the host, a leaf of the tree."""
        found = [
            key
            for key, entry in self.entries.items()
            if entry.level == level
            and key not in kept
            and not any(
                other != key and other[: len(key)] == key and (level == 1 or self.entries[other].level == 0)
                for other in self.entries
            )
        ]
        return min(found, key=lambda key: (self.entries[key].used, -len(key)), default=None)

    def _remove(self, keys: list[Key], told: list[Event]) -> None:
        for key in keys:
            del self.entries[key]
        if told and told[-1]["type"] == "removed":
            told[-1]["block_hashes"] += [named(key) for key in keys]
        else:
            told.append({"type": "removed", "block_hashes": [named(key) for key in keys]})


def _block(key: Key) -> Event:
    held = key[(len(key) - 1) // SIZE * SIZE :]
    return {
        "type": "stored_block",
        "block_hash": named(key),
        "tokens": [{"type": "unique_token", "token_id": token, "token_extra_id": 0} for token in held],
        "cache_level": 0,
        "priority": DEFAULT_PRIORITY,
    }


def _moved(key: Key, old: int, new: int) -> Event:
    diff = {"type": "event_diff", "new_value": new, "old_value": old}
    return {"type": "updated", "block_hash": named(key), "cache_level": diff, "priority": None}


def trtllm_log(requests: list[tuple[int, Key]], ranks: int, pools: list[tuple[int, tuple[int, int]]]) -> list[Event]:
    """Events of ``ranks`` engines that serve ``(rank, tokens)``, each with ``(window, levels)`` pools."""
    log: list[Event] = []
    numbers = [0] * ranks
    made = [[TrtllmPool(window, levels) for window, levels in pools] for _ in range(ranks)]

    def tell(rank: int, window: int, data: Event) -> None:
        event = {"event_id": numbers[rank], "data": data, "window_size": window}
        if ranks > 1:
            event["attention_dp_rank"] = rank
        numbers[rank] += 1
        log.append(event)

    for rank in range(ranks):
        for window, levels in pools:
            tell(rank, window, {"type": "created", "num_blocks_per_cache_level": list(levels)})
    for rank, tokens in requests:
        for pool in made[rank % ranks]:
            for data in pool.store(tokens):
                tell(rank % ranks, pool.window, data)
    return log


@dataclass
class VllmPool:
    """Physical blocks of full attention, not de-duplicated, freed last block first and evicted in that order."""

    total: int
    cached: dict[int, Key] = field(default_factory=dict)  # block id -> what it holds
    free: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = list(range(self.total))

    def serve(self, tokens: Key, twins: int) -> list[Event]:
        """Serve ``twins`` equal requests at once, which compute the same blocks twice; returns the events."""
        told: list[Event] = []
        keys = [key for key in blocks_of(tokens) if len(key) % SIZE == 0]
        held: list[list[int]] = []
        hits = [self._hit(keys) for _ in range(twins)]  # all look before any of them stores
        for found in hits:
            for block in found:
                if block in self.free:
                    self.free.remove(block)
        for found in hits:
            blocks = list(found)
            new = keys[len(found) :][: len(self.free)]
            for key in new:
                block = self.free.pop(0)
                if block in self.cached:
                    gone = named(self.cached.pop(block))
                    told.append({"type": "BlockRemoved", "block_hashes": [gone], "medium": "GPU"})
                self.cached[block] = key
                blocks.append(block)
            if new:
                told.append(_stored(keys, len(found), len(new)))
            held.append(blocks)
        for place, blocks in enumerate(held):
            for block in reversed(blocks):
                if not any(block in later for later in held[place + 1 :]):
                    self.free.append(block)
        return told

    def clear(self) -> list[Event]:
        """Forget everything."""
        self.cached = {}
        return [{"type": "AllBlocksCleared"}]

    def _hit(self, keys: list[Key]) -> list[int]:
        found = []
        for key in keys:
            block = next((block for block, held in self.cached.items() if held == key), None)
            if block is None:
                break
            found.append(block)
        return found


def _stored(keys: list[Key], begin: int, count: int) -> Event:
    return {
        "type": "BlockStored",
        "block_hashes": [named(key) for key in keys[begin : begin + count]],
        "parent_block_hash": named(keys[begin - 1]) if begin else None,
        "token_ids": list(keys[begin + count - 1][begin * SIZE :]),
        "block_size": SIZE,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
    }


def vllm_log(requests: list[tuple[int, Key]], ranks: int, total: int, clear_after: int = -1) -> list[Event]:
    """Batches of ``ranks`` engines of ``total`` blocks that serve ``(number, tokens)``; an odd number comes twice."""
    made = [VllmPool(total) for _ in range(ranks)]
    numbers = [0] * ranks
    log: list[Event] = []
    for place, (number, tokens) in enumerate(requests):
        rank = number % ranks
        events = made[rank].serve(tokens, 1 + number % 2)
        if place == clear_after:
            events += made[rank].clear()
        if events:
            log.append({"seq": numbers[rank], "ts": place / 8, "events": events, "data_parallel_rank": rank})
            numbers[rank] += 1
    return log
