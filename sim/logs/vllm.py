"""vLLM's KV events as JSON: batches of ``BlockStored``, ``BlockRemoved`` and ``AllBlocksCleared``.

Read from public sources of vllm-project/vllm: ``vllm/distributed/kv_events.py`` (the structs, their msgpack encodings
as arrays and as maps, the sequence number of a batch, which is a frame beside its payload),
``vllm/v1/core/block_pool.py`` (when events are made; blocks are not de-duplicated, so one hash may be stored several
times and is then removed as often), issue 44451 (groups that skip blocks tell more tokens than blocks) and the
offloading connector (``vllm/v1/kv_offload``: other media, events without tokens); and of NVIDIA/TensorRT-LLM's
``docs/source/features/kvcache.md``, whose streaming path has the same messages. SGLang sends them as well.

A value is a batch ``{"ts", "events", "data_parallel_rank"}``, with ``seq`` if whoever wrote the log kept that frame, or
the array ``[ts, events, rank]``; or an event by itself. An event is a map with ``type`` or an array that begins with
its type. Hashes are integers or text (bytes as hex or base64).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sim.logs.block_laws import BlockLaw, OneContent, ParentStored, RemovedStored
from sim.logs.book import Name, Pool, Rank, StoredBlock
from sim.logs.fields import Fields
from sim.logs.findings import LogLaw, LogReport, Place
from sim.logs.stream_laws import BlockSize, Numbers

FORMAT = "vllm-events"
STORED = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
)
REMOVED = ("block_hashes", "medium", "group_idx")
_BATCH = frozenset({"ts", "events", "data_parallel_rank", "seq", "topic"})
_STORED, _REMOVED = frozenset({"type", *STORED}), frozenset({"type", *REMOVED})
_GPU = "GPU"
_FULL = ("full_attention", "mla_attention", "mla")


class _Pool(Pool):
    """The blocks of one rank, medium and group."""

    def __init__(self, rank: Rank, medium: str, group: int | None) -> None:
        parts = [rank.name, medium, "" if group is None else f"group {group}"]
        super().__init__(rank, " ".join(filter(None, parts)), None)
        self.medium, self.group = medium, group


class VllmLog:
    """Judge of one log, fed value by value. ``partial``: the log begins in mid-run."""

    def __init__(self, path: Path, partial: bool, windowed: bool) -> None:
        self.partial, self.windowed = partial, windowed
        self.place = Place()
        self.report = LogReport(str(path), FORMAT)
        self.fields = Fields(path, self.place, self.report.unknown)
        place = self.place
        self.numbers, self.sizes = Numbers(place), BlockSize(place)
        self.on_stored: list[BlockLaw] = [OneContent(place), ParentStored(place)]
        self.on_removed: list[BlockLaw] = [RemovedStored(place)]
        self.ranks: dict[int | None, Rank] = {}
        self.pools: list[_Pool] = []

    def feed(self, line: int, value: Any) -> None:
        """Judge the next value: a batch, an event, or a list of either."""
        self.place.line, self.place.event = line, None
        if type(value) is list:
            if len(value) >= 2 and type(value[0]) in (int, float) and type(value[1]) is list:
                rank = value[2] if len(value) > 2 else None
                self._batch(rank, None, value[1])
                if len(value) > 3:
                    self.report.unknown["field after a batch's rank"] += 1
            elif value and type(value[0]) is str:
                self._event(self._rank(None, None), value)
            else:
                for one in value:
                    self.feed(line, one)
            return
        batch = self.fields.object("", value)
        if "events" not in batch:
            self._event(self._rank(None, None), batch)
            return
        self._batch(batch.get("data_parallel_rank"), batch.get("seq"), batch["events"])
        if not batch.keys() <= _BATCH:
            self.fields.unknown(batch, _BATCH, "")

    def end(self) -> LogReport:
        """The verdict on everything that was fed."""
        laws: list[LogLaw] = [self.numbers, self.sizes, *self.on_stored, *self.on_removed]
        self.report.laws = laws
        self.report.pools = [_told(pool) for pool in self.pools]
        return self.report

    def _batch(self, rank_of: Any, number: Any, events: Any) -> None:
        rank = self._rank(rank_of, number)
        if number is not None:
            self.place.event = number
            self.numbers.numbered(rank, number)
        for event in self.fields.list("events", events):
            self._event(rank, event)

    def _rank(self, key: Any, number: Any) -> Rank:
        if key is not None:
            self.fields.integer("data_parallel_rank", key)
        if number is not None:
            self.fields.integer("seq", number)
        rank = self.ranks.get(key)
        if rank is None:
            whole = not self.partial and (number is None or number == 0)
            rank = self.ranks[key] = Rank("" if key is None else f"rank {key}", whole)
        return rank

    def _event(self, rank: Rank, event: Any) -> None:
        fields = self.fields
        if type(event) is list:
            event = self._named(event)
        event = fields.object("event", event)
        kind = event.get("type")
        if kind == "BlockStored":
            self._stored(rank, event)
        elif kind == "BlockRemoved":
            self._removed(rank, event)
        elif kind == "AllBlocksCleared":
            for pool in self.pools:
                if pool.rank is rank and pool.medium == _GPU:
                    pool.clear()
        elif type(kind) is str:
            self.report.unknown[f"event type {kind}"] += 1
            return
        else:
            fields.fail("type", "BlockStored, BlockRemoved or AllBlocksCleared", kind)
        self.report.events[kind] += 1

    def _named(self, event: list[Any]) -> dict[str, Any]:
        """An event that was encoded as an array, as a map."""
        if not event or type(event[0]) is not str:
            self.fields.fail("event", "an array that begins with the event's type", event)
        kind, *rest = event
        names = STORED if kind == "BlockStored" else REMOVED if kind == "BlockRemoved" else ()
        if len(rest) > len(names) and names:
            self.report.unknown[f"field after {kind}.{names[-1]}"] += 1
        return {"type": kind, **dict(zip(names, rest, strict=False))}

    def _pool(self, rank: Rank, event: dict[str, Any]) -> _Pool:
        medium, group = event.get("medium"), event.get("group_idx")
        medium = _GPU if medium is None else medium
        if type(medium) is not str:
            self.fields.fail("medium", "a name", medium)
        if group is not None:
            self.fields.integer("group_idx", group)
        for pool in self.pools:  # there are few
            if pool.group == group and pool.medium == medium and pool.rank is rank:
                return pool
        pool = _Pool(rank, medium, group)
        self.pools.append(pool)
        return pool

    def _stored(self, rank: Rank, event: dict[str, Any]) -> None:
        fields = self.fields
        names = fields.names("block_hashes", event.get("block_hashes"))
        parent = event.get("parent_block_hash")
        if parent is not None:
            fields.name("parent_block_hash", parent)
        tokens = fields.list("token_ids", event.get("token_ids"))
        size = fields.integer("block_size", event.get("block_size"))
        pool = self._pool(rank, event)
        pool.full = self._full(pool, event)
        told = bool(tokens) and size > 0
        if told and pool.full:
            self.sizes.sized(pool, len(names), len(tokens), size)
        elif told or not names:
            self.sizes.undecided += 1
        blocks = self._blocks(event, names, parent, tokens, size, told and len(tokens) == len(names) * size)
        for law in self.on_stored:
            law.stored(pool, parent, blocks)
        pool.store(blocks, self.place.line)
        if not event.keys() <= _STORED:
            fields.unknown(event, _STORED, "BlockStored.")

    def _blocks(
        self, event: dict[str, Any], names: list[Name], parent: Name | None, tokens: list[int], size: int, plain: bool
    ) -> list[StoredBlock]:
        """The blocks of an event; ``plain``: every block has its own ``size`` tokens in it."""
        extra = event.get("extra_keys")
        if extra is not None:
            self.fields.list("extra_keys", extra)
        adapter = event.get("lora_name", event.get("lora_id"))
        blocks: list[StoredBlock] = []
        for place, name in enumerate(names):
            content = None
            if plain:
                begin = place * size
                try:
                    content = hash((parent, adapter, *tokens[begin : begin + size]))
                except TypeError:
                    self.fields.fail("token_ids", "a list of integers", tokens)
                if extra is not None:
                    content = hash((content, str(extra[place] if place < len(extra) else None)))
            blocks.append(StoredBlock(name, parent if plain or not place else None, content, size if plain else -1))
            parent = name
        return blocks

    def _full(self, pool: _Pool, event: dict[str, Any]) -> bool | None:
        """Whether the pool's layers attend to everything: blocks of other groups and other media go in any order.

        Before events named the kind of a group, vLLM sent them only for models with one group.
        """
        if self.windowed or pool.medium != _GPU:
            return False
        kind = event.get("kv_cache_spec_kind")
        if kind is None:
            return True if event.get("group_idx") is None else None
        return kind in _FULL

    def _removed(self, rank: Rank, event: dict[str, Any]) -> None:
        names = self.fields.names("block_hashes", event.get("block_hashes"))
        pool = self._pool(rank, event)
        for law in self.on_removed:
            law.removed(pool, names)
        for name in names:
            pool.remove(name)
        if not event.keys() <= _REMOVED:
            self.fields.unknown(event, _REMOVED, "BlockRemoved.")


def _told(pool: Pool) -> dict[str, Any]:
    return {
        "pool": pool.name,
        "full_attention": pool.full,
        "block_size": pool.block_size,
        "stored": pool.stored,
        "most_stored": pool.most,
        "names": len(pool.known),
        "removed": pool.removed,
    }
