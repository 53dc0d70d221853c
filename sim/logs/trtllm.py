"""TensorRT-LLM's KV-cache events in JSON, as ``LLM.get_kv_cache_events()`` and ``/kv_cache_events`` give them.

Read from public sources of NVIDIA/TensorRT-LLM: ``KVCacheEventSerializer`` in ``tensorrt_llm/_utils.py``, the managers
that number and batch events (``cpp/tensorrt_llm/batch_manager/kvCacheEventManager.cpp``,
``tensorrt_llm/runtime/kv_cache_manager_v2/_event_manager.py``), their tests ``tests/unittest/llmapi/
test_llm_kv_cache_events.py`` and ``tests/unittest/kv_cache_manager_v2_tests/test_kv_cache_event_manager.py``, and
``docs/source/features/kvcache.md`` (priorities 0 to 100; only leaves are evicted; events).

An event is ``{"event_id": n, "data": {"type": ..}, "window_size": w}`` with an optional ``attention_dp_rank``,
``hash_algo`` and ``layer_group_id``; ids count the events of one rank from 0. ``created`` has
``num_blocks_per_cache_level``; ``stored`` has ``parent_hash`` and ``blocks``, a chain of ``{"block_hash", "tokens":
[{"token_id", "token_extra_id"}], "cache_level", "priority", "mm_keys", "cache_salt"}``; ``removed`` has
``block_hashes``; ``updated`` has ``block_hash`` and the diffs ``cache_level`` and ``priority``, either of which may be
null. Removals of one window are batched and told before the next store of that window, but perhaps after updates that
happened later: so the capacity of levels is looked at when something is stored. With layer groups, an event that names
none is about every group that has its blocks.

Releases without NVIDIA/TensorRT-LLM pull request 16335 take blocks out of their tree without an event: a leaf that a
request reuses a part of and then writes to, and what hangs below an evicted block. Their logs do break ``stored-once``
and ``capacity``, since whoever mirrors the cache from them keeps such blocks for ever; :data:`SILENT` says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sim.logs.block_laws import (
    BlockLaw,
    Capacity,
    FullParents,
    Levels,
    NoOrphans,
    OldLevel,
    OneContent,
    ParentStored,
    Priorities,
    RemovedStored,
    StoredOnce,
    UpdatedStored,
)
from sim.logs.book import Name, Pool, Rank, StoredBlock
from sim.logs.fields import Fields
from sim.logs.findings import LogLaw, LogReport, Place
from sim.logs.stream_laws import Created, Numbers

FORMAT = "trtllm-events"
_EVENT = frozenset({"event_id", "data", "window_size", "attention_dp_rank", "hash_algo", "layer_group_id"})
_STORED = frozenset({"type", "parent_hash", "blocks"})
_BLOCK = frozenset(
    {"type", "block_hash", "tokens", "cache_level", "priority", "mm_keys", "cache_salt", "lora_id", "extra_keys"}
)
_REMOVED = frozenset({"type", "block_hashes"})
_UPDATED = frozenset({"type", "block_hash", "cache_level", "priority"})
_CREATED = frozenset({"type", "num_blocks_per_cache_level"})
_LEAKED = ("stored-once", "capacity", "no-orphans")  # laws that blocks break which go without an event
SILENT = (
    "TensorRT-LLM without its pull request 16335 removes some blocks without an event (leaves that are reused in part, "
    "what hangs below evicted blocks): whoever mirrors the cache by these events keeps blocks that are gone"
)


class TrtllmLog:
    """Judge of one log, fed value by value. ``windowed``: even the largest window forgets, so parents may go first."""

    def __init__(self, path: Path, partial: bool, windowed: bool) -> None:
        self.partial, self.windowed = partial, windowed
        self.place = Place()
        self.report = LogReport(str(path), FORMAT)
        self.fields = Fields(path, self.place, self.report.unknown)
        place = self.place
        self.numbers, self.created = Numbers(place), Created(place)
        laws: list[BlockLaw] = [
            OneContent(place),
            ParentStored(place),
            StoredOnce(place),
            RemovedStored(place),
            NoOrphans(place),
            Capacity(place),
            FullParents(place),
            Levels(place),
            Priorities(place),
            UpdatedStored(place),
            OldLevel(place),
        ]
        self.laws = laws
        self.on_stored = [law for law in laws if type(law).stored is not BlockLaw.stored]
        self.on_entered = [law for law in laws if type(law).entered is not BlockLaw.entered]
        self.on_removed = [law for law in laws if type(law).removed is not BlockLaw.removed]
        self.on_updated = [law for law in laws if type(law).updated is not BlockLaw.updated]
        self.ranks: dict[int | None, Rank] = {}
        self.pools: dict[tuple[int | None, int, int | None], Pool] = {}

    def feed(self, line: int, value: Any) -> None:
        """Judge the next value: an event, or a list of them (one poll)."""
        if isinstance(value, list):
            for one in value:
                self.feed(line, one)
            return
        if not value:
            return  # a poll that found nothing
        self.place.line, self.place.event = line, None
        fields = self.fields
        event = fields.object("", value)
        data = fields.object("data", event.get("data"))
        number = fields.integer("event_id", event.get("event_id"))
        self.place.event = number
        kind = data.get("type")
        self._rank(event, number)
        if kind == "stored":
            self._stored(self._pool(event), data)
        elif kind == "removed":
            self._removed(event, data)
        elif kind == "updated":
            self._updated(event, data)
        elif kind == "created":
            self._created(self._pool(event, creating=True), data)
        elif isinstance(kind, str):
            self.report.unknown[f"event type {kind}"] += 1
            return
        else:
            fields.fail("data.type", "created, stored, removed or updated", kind)
        self.report.events[kind] += 1
        if not event.keys() <= _EVENT:
            fields.unknown(event, _EVENT, "")

    def end(self) -> LogReport:
        """The verdict on everything that was fed."""
        pools = list(self.pools.values())
        for law in self.laws:
            law.ended(pools)
        laws: list[LogLaw] = [self.numbers, self.created, *self.laws]
        self.report.laws = laws
        if any(law.broken for law in laws if law.name in _LEAKED):
            self.report.notes.append(SILENT)
        self.report.pools = [_told(pool) for pool in pools]
        return self.report

    def _rank(self, event: dict[str, Any], number: int) -> None:
        key = event.get("attention_dp_rank")
        rank = self.ranks.get(key) if key is None or type(key) is int else None
        if rank is None:
            if key is not None:
                self.fields.integer("attention_dp_rank", key)
            rank = Rank("" if key is None else f"rank {key}", whole=number == 0 and not self.partial)
            self.ranks[key] = rank
        self.numbers.numbered(rank, number)

    def _pool(self, event: dict[str, Any], creating: bool = False) -> Pool:
        rank, window, group = event.get("attention_dp_rank"), event.get("window_size"), event.get("layer_group_id")
        try:
            pool = self.pools.get((rank, window, group))  # pyright: ignore[reportArgumentType]
        except TypeError:
            pool = None
        if pool is not None:
            return pool
        size = -1 if window is None else self.fields.integer("window_size", window)
        if group is not None:
            self.fields.integer("layer_group_id", group)
        owner = self.ranks[rank]
        parts = [owner.name, "" if window is None else f"window {size}", "" if group is None else f"group {group}"]
        pool = Pool(owner, " ".join(filter(None, parts)) or "pool", None, size)
        pool.roomy = group is None
        self.pools[rank, window, group] = pool  # pyright: ignore[reportArgumentType]
        if not creating:
            self.created.used(pool)
        return pool

    def _created(self, pool: Pool, data: dict[str, Any]) -> None:
        name = "data.num_blocks_per_cache_level"
        levels = self.fields.integers(name, data.get("num_blocks_per_cache_level"))
        self.created.created(pool, levels)
        pool.levels = levels
        windows = pool.rank.windows
        windows.add(-1 if pool.window is None else pool.window)
        for one in pool.rank.pools:
            one.full = one.window == max(windows) and not self.windowed
        if not data.keys() <= _CREATED:
            self.fields.unknown(data, _CREATED, "data.")

    def _stored(self, pool: Pool, data: dict[str, Any]) -> None:
        fields = self.fields
        parent: Name | None = data.get("parent_hash")
        if parent is not None:
            fields.name("data.parent_hash", parent)
        blocks: list[StoredBlock] = []
        before = parent
        for one in fields.list("data.blocks", data.get("blocks")):
            block = self._block(before, one)
            blocks.append(block)
            before = block.name
        for law in self.on_stored:
            law.stored(pool, parent, blocks)
        pool.store(blocks, self.place.line)
        for law in self.on_entered:
            law.entered(pool)
        if not data.keys() <= _STORED:
            fields.unknown(data, _STORED, "data.")

    def _block(self, parent: Name | None, one: Any) -> StoredBlock:
        fields = self.fields
        one = fields.object("data.blocks[]", one)
        name = fields.name("data.blocks[].block_hash", one.get("block_hash"))
        tokens = one.get("tokens")
        try:
            held = tuple([(token["token_id"], token["token_extra_id"]) for token in tokens])
            content = hash((parent, held))
        except (TypeError, KeyError):
            held = self._tokens(tokens)
            content = hash((parent, held))
        if one.get("lora_id") is not None or one.get("cache_salt") is not None or one.get("mm_keys"):
            content = hash((content, str(one.get("lora_id")), str(one.get("cache_salt")), str(one.get("mm_keys"))))
        level = one.get("cache_level", 0)
        if type(level) is not int:
            fields.whole("data.blocks[].cache_level", level)
        priority = one.get("priority")
        if priority is not None and type(priority) is not int:
            fields.whole("data.blocks[].priority", priority)
        if not one.keys() <= _BLOCK:
            fields.unknown(one, _BLOCK, "data.blocks[].")
        return StoredBlock(name, parent, content, len(held), level, priority)

    def _tokens(self, tokens: Any) -> tuple[Any, ...]:
        """Tokens without extra ids, or bare ids; anything else is refused."""
        ids = []
        for token in self.fields.list("data.blocks[].tokens", tokens):
            plain = token.get("token_id") if isinstance(token, dict) else token
            extra = token.get("token_extra_id", 0) if isinstance(token, dict) else 0
            name = "data.blocks[].tokens[].token"
            ids.append((self.fields.name(f"{name}_id", plain), self.fields.integer(f"{name}_extra_id", extra)))
        return tuple(ids)

    def _pools_of(self, event: dict[str, Any], names: list[Name]) -> dict[Pool, list[Name]]:
        """The pools that an event about ``names`` concerns, and which of them: where it names no layer group but others
        of its rank do, the groups in which the blocks are stored."""
        rank, window, group = event.get("attention_dp_rank"), event.get("window_size"), event.get("layer_group_id")
        if group is None and (rank, window, None) not in self.pools:
            found: dict[Pool, list[Name]] = {}
            for pool in self.ranks[rank].pools:
                held = [name for name in names if pool.here(name)]
                if held:
                    found[pool] = held
            if found and {name for held in found.values() for name in held} == set(names):
                return found
        return {self._pool(event): names}

    def _removed(self, event: dict[str, Any], data: dict[str, Any]) -> None:
        names = self.fields.names("data.block_hashes", data.get("block_hashes"))
        for pool, held in self._pools_of(event, names).items():
            self._removed_from(pool, held)
        if not data.keys() <= _REMOVED:
            self.fields.unknown(data, _REMOVED, "data.")

    def _removed_from(self, pool: Pool, names: list[Name]) -> None:
        for law in self.on_removed:
            law.removed(pool, names)
        for name in names:
            pool.remove(name)

    def _updated(self, event: dict[str, Any], data: dict[str, Any]) -> None:
        name = self.fields.name("data.block_hash", data.get("block_hash"))
        levels = self._diff("data.cache_level", data.get("cache_level"))
        priority = self._diff("data.priority", data.get("priority"))
        for pool in self._pools_of(event, [name]):
            for law in self.on_updated:
                law.updated(pool, name, levels, None if priority is None else priority[1])
            if levels is not None:
                pool.move(name, levels[1])
        if not data.keys() <= _UPDATED:
            self.fields.unknown(data, _UPDATED, "data.")

    def _diff(self, name: str, value: Any) -> tuple[int, int] | None:
        """``(old, new)`` of an ``event_diff``; ``None`` where nothing changed."""
        if value is None:
            return None
        diff = self.fields.object(name, value)
        old = self.fields.whole(f"{name}.old_value", diff.get("old_value"))
        return old, self.fields.whole(f"{name}.new_value", diff.get("new_value"))


def _told(pool: Pool) -> dict[str, Any]:
    return {
        "pool": pool.name,
        "full_attention": pool.full,
        "levels": pool.levels,
        "stored": pool.stored,
        "most_stored": pool.most,
        "names": len(pool.known),
        "removed": pool.removed,
    }
