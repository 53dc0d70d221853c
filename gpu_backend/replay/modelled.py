"""Rows of a replay that real modules compute: target and drafter of tier T0 over the replay's own pools and tables.

A pool has the layers of both modules behind the one that spells tags, so that tags, bytes and K/V of the modules share
pages, copies, moves and poison. Lengths, bases and tables are the device's own, as the checks read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import torch

from gpu_backend.calls import AttentionCall, StoreCall
from gpu_backend.layout import GUARD_PAGE, PoolLayout
from gpu_backend.modules.config import DrafterConfig, TargetConfig
from gpu_backend.modules.drafter import Drafter
from gpu_backend.modules.row_models import RowModels
from gpu_backend.modules.stack import Runner
from gpu_backend.modules.target import Target
from gpu_backend.modules.tier0 import TINY, drafter_for, random_pair
from gpu_backend.modules.views import Lane, StepShape
from gpu_backend.replay.columns import DeviceColumn
from gpu_backend.replay.content import Synthetic
from gpu_backend.replay.memory import DeviceMemory
from gpu_backend.replay.planes import upload
from gpu_backend.replay.rows import VerifyRows
from model.config import EngineConfig
from model.plan import ContextRow, GenerationRow
from model.rules.device import Addressing, Provisional, Rebase
from scenarios.errors import InputError

VOCABULARY = 1 << 18  # token ids of the largest table of embeddings that is drawn
KINDS = ("dflash", "dspark")


@dataclass(frozen=True, slots=True)
class Modelled(Synthetic):
    """The layer that spells tags, and ``more`` layers of modules behind it."""

    more: int = 0

    def layout(self, page_size: int) -> PoolLayout:
        return PoolLayout(self.layers + self.more, self.heads, self.dim, page_size, self.dtype)


@dataclass(slots=True)
class Models:
    """Target and drafter of one replay, and the content of the pools that hold their rows."""

    target: Target
    drafter: Drafter
    content: Modelled
    exact: bool

    def first(self, column: DeviceColumn) -> tuple[int, int]:
        """Layers ``[first, end)`` of every pool that are a column's."""
        begin = self.content.layers
        if column.draft:
            return begin + self.target.config.layers, begin + self.content.more
        sizes = [len(group.layers) for group in self.target.config.groups]
        begin += sum(sizes[: column.index])
        return begin, begin + sizes[column.index]


def models_for(config: EngineConfig, seed: int, device: torch.device, *, exact: bool) -> Models:
    """Modules of tier T0 in the shape of ``config``; InputError, in one line, for what they do not serve."""
    _require_served(config)
    limits, windows = config.limits, [life.window for life in config.target]
    layers = max(TINY.layers, len(windows))
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    target = replace(
        TINY, vocabulary=config.vocabulary, layers=layers, positions=limits.max_seq_len + limits.page_size, dtype=dtype,
        windows=tuple(windows[layer % len(windows)] for layer in range(layers)),
    )  # fmt: skip
    drafter = drafter_for(target, block=config.drafter.drafts, window=config.drafter.window, logits_start=0)
    return _made(target, drafter, seed, device, exact)


def _made(target: TargetConfig, drafter: DrafterConfig, seed: int, device: torch.device, exact: bool) -> Models:
    pair = random_pair(target, drafter, seed, device, exact=exact)
    content = Modelled(1, target.kv_heads, target.head_dim, target.dtype, target.layers + drafter.layers)
    return Models(*pair, content, exact)


def _require_served(config: EngineConfig) -> None:
    """Raise for a drafter or lifecycles that T0 has no module for."""
    kind = config.drafter.kind
    if kind not in KINDS or not config.draft or not config.drafter.drafts:
        problem = f"expected a drafter of kind dflash or dspark, found {kind}: natural acceptance has no module for it"
        raise InputError("acceptance", 0, "", problem)
    if config.vocabulary > VOCABULARY:
        problem = f"expected a vocabulary of at most {VOCABULARY:,} ids for natural acceptance, found"
        raise InputError("acceptance", 0, "", f"{problem} {config.vocabulary:,}")
    windows = [life.window for life in config.target]
    sinks = any(life.sinks for life in (*config.target, *config.draft))
    if sinks or len(config.draft) > 1 or len(set(windows)) < len(windows):
        problem = "expected lifecycles without sinks, one window each and one of the drafter, for natural acceptance"
        raise InputError("acceptance", 0, "", problem)


class PoolKernels:
    """The replay's kernels, whatever has been put in their place; what no page backs leads to the poisoned guard."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.memory = memory

    def store(self, call: StoreCall, writable: torch.Tensor | None = None) -> None:
        self.memory.kernels.store(call, writable)

    def attend(
        self, call: AttentionCall, readable: torch.Tensor | None = None, widths: tuple[int, ...] | None = None
    ) -> None:
        self.memory.kernels.attend(replace(call, table=call.table.clamp(min=GUARD_PAGE)), readable, widths)

    def __getattr__(self, name: str) -> object:
        return getattr(self.memory.kernels, name)


@dataclass(slots=True)
class Ran:
    """What one generation row's pass gave: tokens that target and drafter agreed on, and the target's choices."""

    row: GenerationRow
    count: int
    choice: list[int]
    start: int  # position of the token that the row began with


class ModelRows:
    """Target and drafter behind the row slots of one memory."""

    def __init__(self, memory: DeviceMemory, models: Models, verify: VerifyRows) -> None:
        self.memory, self.models, self.rule = memory, models, verify
        target, drafter = copy(models.target), copy(models.drafter)  # cold runs keep their own kernels
        target.run = Runner(PoolKernels(memory), target.run.blocks)  # pyright: ignore[reportArgumentType]
        drafter.run = Runner(PoolKernels(memory), drafter.run.blocks)  # pyright: ignore[reportArgumentType]
        width = 1 + drafter.config.drafts
        self.slots = RowModels(target, drafter, len(memory.rows.length), memory.rows.longest + width, width - 1)
        self.bound: list[int] = [-1] * len(memory.rows.length)
        self.drafts: dict[int, torch.Tensor] = {}  # owner -> what its drafter proposed last
        self.zero = torch.zeros_like(memory.rows.length)

    def bind(self, slot: int, owner: int, *, anew: bool = False) -> None:
        """A row slot is ``owner``'s: its tokens and drafts, as far as the host knows them."""
        if self.bound[slot] != owner or anew:
            stream = self.memory.known[owner].stream
            tokens = torch.from_numpy(stream.tokens(0, stream.length).astype("int64"))
            self.slots.bind(slot, tokens[: self.slots.stream.shape[1]].to(self.memory.device))
            self.bound[slot] = owner
            if owner in self.drafts:
                self.slots.drafts[slot] = self.drafts[owner]

    # -- chunks --------------------------------------------------------------------------------------------------

    def chunk(self, row: ContextRow) -> int | None:
        """Run one chunk; the target's choice behind it where it is the last one."""
        memory, rows = self.memory, self.memory.rows
        self.bind(row.slot, row.owner)
        shape = StepShape([row.end - row.start], memory.device, chunks=1)
        slot = upload((row.slot,), memory.device)
        start = upload((row.start,), memory.device)
        position = shape.positions(start)
        lanes = [self._target_lane(column, slot, position) for column in memory.target_columns]
        folds, begin = [], rows.drafter.length[slot].long()
        if row.drafts:
            folds = [self._fold_lane(column, slot) for column in memory.draft_columns]
        output = self.slots.context(shape, slot, start, lanes, folds, begin)
        return int(output.logits[0].argmax()) if row.last else None

    # -- verify rows ---------------------------------------------------------------------------------------------

    def verify(self, rows: Sequence[GenerationRow], counts: Sequence[int] | None) -> list[Ran]:
        """Verify, fold and draft; ``counts`` are committed where they are given, whatever the target accepts."""
        ran: list[Ran] = []
        for width in sorted({row.width for row in rows}):
            own = [place for place, row in enumerate(rows) if row.width == width]
            told = None if counts is None else [counts[place] for place in own]
            ran += self._verify([rows[place] for place in own], width, told)
        return ran

    def _verify(self, rows: Sequence[GenerationRow], width: int, counts: Sequence[int] | None) -> list[Ran]:
        memory, device = self.memory, self.memory.device
        for row in rows:
            self.bind(row.slot, row.owner)
        shape = StepShape([width] * len(rows), device)
        slot = upload([row.slot for row in rows], device)
        start = memory.rows.length[slot].long()
        position = shape.positions(start)
        lanes = [self._target_lane(column, slot, position, shape) for column in memory.target_columns]
        real = torch.tensor([row.real_drafts for row in rows], device=device)
        verdict, output = self.slots.verify(shape, slot, start, lanes, real=real)
        found = torch.cat([verdict.accepted[:, None], start[:, None], verdict.choice], 1).tolist()
        ran = [Ran(row, count, choice, at) for row, (count, at, *choice) in zip(rows, found, strict=True)]
        if counts is not None:
            self._as_recorded(ran, counts)
        taken = verdict.accepted if counts is None else upload(counts, device)
        if rows[0].drafts and memory.draft_columns:
            self._pass(rows, slot, start, taken, (shape, output.features))
        return ran

    def _as_recorded(self, ran: Sequence[Ran], counts: Sequence[int]) -> None:
        """The device's streams hold what is known of them, whatever this step chose."""
        for one, count in zip(ran, counts, strict=True):
            stream = self.memory.known[one.row.owner].stream
            known = stream.tokens(one.start + 1, one.start + 1 + count).tolist()
            if one.count != count or one.choice[:count] != known:
                self.bind(one.row.slot, one.row.owner, anew=True)

    def _pass(
        self,
        rows: Sequence[GenerationRow],
        slot: torch.Tensor,
        start: torch.Tensor,
        taken: torch.Tensor,
        ran: tuple[StepShape, torch.Tensor],
    ) -> None:
        """Fold the committed tokens into the drafter's context, then draft behind them."""
        memory, (shape, features) = self.memory, ran
        begin = memory.rows.drafter.length[slot].long()
        folded = torch.ones_like(taken) if memory.rules.provisional is Provisional.KEPT else taken
        self.slots.fold(
            shape, start, folded, features, [self._fold_lane(column, slot) for column in memory.draft_columns], begin
        )
        anchor = self.slots.stream[slot, start + taken]
        blocks = StepShape([self.models.drafter.config.block] * len(rows), memory.device)
        lanes = [self._block_lane(column, slot) for column in memory.draft_columns]
        self.slots.draft(blocks, slot, anchor, start + taken, lanes, begin + taken)
        for row in rows:
            self.drafts[row.owner] = self.slots.drafts[row.slot].clone()

    # -- lanes ---------------------------------------------------------------------------------------------------

    def _kv(self, column: DeviceColumn) -> torch.Tensor:
        begin, end = self.models.first(column)
        return column.planes.pool.kv[begin:end]

    def _target_lane(
        self, column: DeviceColumn, slot: torch.Tensor, position: torch.Tensor, shape: StepShape | None = None
    ) -> Lane:
        table, rows = column.table, slot.expand(len(position)) if shape is None else slot[shape.row]
        if self.memory.rules.addressing is Addressing.ADJACENT:
            every = torch.ones_like(position, dtype=torch.bool)
            table = self.memory._adjacent(column, table, rows, position, every)
        return Lane(self._kv(column), table[slot], self.zero[slot])

    def _fold_lane(self, column: DeviceColumn, slot: torch.Tensor) -> Lane:
        """Stores of the drafter's context: at the slot's own positions, through the table that stores take."""
        return Lane(self._kv(column), self.rule._write_table(column)[slot], self.zero[slot])

    def _block_lane(self, column: DeviceColumn, slot: torch.Tensor) -> Lane:
        """A block's scratch and reads: through the base, within what the row may address."""
        base = self.memory.rows.drafter.base
        table = column.shifted(base) if self.memory.rules.rebase is Rebase.WRITES else column.table
        bound = self.rule._bounds(column, column.buffer.table)[slot]
        return Lane(self._kv(column), table[slot], base[slot], limit=bound)
