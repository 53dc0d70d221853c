"""Rows of a replay that real modules compute: target and drafter of tier T0 over the replay's own pools and tables.

A pool has the layers of both modules behind the one that spells tags, so that tags, bytes and K/V of the modules share
pages, copies, moves and poison. Lengths, bases and tables are the device's own, as the checks read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from gpu_backend.acceptance.draws import signed
from gpu_backend.acceptance.rules import Sampling
from gpu_backend.calls import AttentionCall, StoreCall
from gpu_backend.layout import GUARD_PAGE, PoolLayout
from gpu_backend.modules.chain import Chain
from gpu_backend.modules.config import CHAINED, DrafterConfig, TargetConfig
from gpu_backend.modules.drafter import Drafter
from gpu_backend.modules.drafters import AnyDrafter
from gpu_backend.modules.row_models import RowModels
from gpu_backend.modules.stack import Runner
from gpu_backend.modules.target import Target
from gpu_backend.modules.tier0 import TINY, chain_for, drafter_for, random_pair
from gpu_backend.modules.views import Lane, StepShape
from gpu_backend.replay.agreed import Agreed, Evidence, Ran
from gpu_backend.replay.columns import DeviceColumn
from gpu_backend.replay.content import Synthetic
from gpu_backend.replay.memory import DeviceMemory
from gpu_backend.replay.planes import upload
from gpu_backend.replay.rows import VerifyRows
from gpu_backend.replay.step_rows import StepRows
from model.config import EngineConfig
from model.plan import ContextRow, GenerationRow
from model.rules.device import Addressing, Provisional, Rebase
from scenarios.errors import InputError

VOCABULARY = 1 << 18  # token ids of the largest table of embeddings that is drawn
KINDS = ("dflash", "dspark")
Paged = TypeVar("Paged", Target, Drafter, Chain)
MARKOV_RANK = 16  # of tier T0's DSpark


@dataclass(frozen=True, slots=True)
class Modelled(Synthetic):
    """The layer that spells tags, and ``more`` layers of modules behind it."""

    more: int = 0

    def layout(self, page_size: int) -> PoolLayout:
        return PoolLayout(self.layers + self.more, self.heads, self.dim, page_size, self.dtype)


@dataclass(slots=True)
class Models:
    """Target and drafter of one replay, the content of the pools that hold their rows, and how drafts are judged."""

    target: Target
    drafter: AnyDrafter
    content: Modelled
    exact: bool
    sampling: Sampling = field(default_factory=Sampling)

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
    require_served(config)
    limits, windows = config.limits, [life.window for life in config.target]
    layers = max(TINY.layers, len(windows))
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    target = replace(
        TINY, vocabulary=config.vocabulary, layers=layers, positions=limits.max_seq_len + limits.page_size, dtype=dtype,
        windows=tuple(windows[layer % len(windows)] for layer in range(layers)),
    )  # fmt: skip
    drafter = _drafter_of(config, target)
    pair = random_pair(target, drafter, seed, device, exact=exact)
    return Models(*pair, content_of(target, drafter), exact)


def _drafter_of(config: EngineConfig, target: TargetConfig) -> DrafterConfig:
    """A drafter of tier T0 in the shape of ``config``."""
    told = config.drafter
    if told.kind in CHAINED:
        depth = told.chain if told.kind == "mtp" else 1
        return chain_for(target, told.kind, drafts=told.drafts, depth=depth, window=told.window)
    rank = MARKOV_RANK if told.kind == "dspark" else 0
    return drafter_for(target, block=told.drafts, window=told.window, logits_start=0, markov_rank=rank)


def content_of(target: TargetConfig, drafter: DrafterConfig) -> Modelled:
    """Content of pools that hold the layers of both modules, whose K/V heads have one shape."""
    return Modelled(1, target.kv_heads, target.head_dim, target.dtype, target.layers + drafter.layers)


def require_served(config: EngineConfig, vocabulary: int | None = None) -> None:
    """Raise for a drafter or lifecycles that no module serves; ``vocabulary`` is that of given weights."""
    kind = config.drafter.kind
    if kind not in (*KINDS, *CHAINED) or not config.draft or not config.drafter.drafts:
        known = f"{', '.join((*KINDS, *CHAINED[:-1]))} or {CHAINED[-1]}"
        problem = f"expected a drafter of kind {known}, found {kind}: natural acceptance has no module for it"
        raise InputError("acceptance", 0, "", problem)
    if kind == "mtp" and 1 < config.drafter.chain != config.drafter.drafts:
        problem = f"expected {config.drafter.chain} drafts, one of each module of the chain"
        raise InputError("drafter", 0, "drafts", f"{problem}, found {config.drafter.drafts}")
    found = config.vocabulary if vocabulary is None else vocabulary
    if found > VOCABULARY:
        problem = f"expected a vocabulary of at most {VOCABULARY:,} ids for natural acceptance, found"
        raise InputError("acceptance", 0, "", f"{problem} {found:,}")
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


class ModelRows:
    """Target and drafter behind the row slots of one memory. ``evidence``: keep what a rule that asks for the drafts'
    distribution judged by."""

    def __init__(self, memory: DeviceMemory, models: Models, verify: VerifyRows, *, evidence: bool = False) -> None:
        self.memory, self.models, self.rule = memory, models, verify
        self.evidence = evidence and models.sampling.proposes
        width = 1 + models.drafter.config.drafts
        block = self._behind_pages(models.drafter) if isinstance(models.drafter, Drafter) else None
        self.slots = RowModels(
            self._behind_pages(models.target), block, len(memory.rows.length), memory.rows.longest + width, width - 1,
            models.sampling,
        )  # fmt: skip
        self.bound: list[int] = [-1] * len(memory.rows.length)
        # owner without a slot -> what its drafter proposed last, and the distribution behind it
        self.drafts: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        self.real = torch.zeros(len(self.bound), dtype=torch.bool, device=memory.device)  # whether a slot's drafts are
        self._real = [False] * len(self.bound)
        self.zero = torch.zeros_like(memory.rows.length)
        self._shapes: dict[tuple[int, int], StepShape] = {}  # by rows and width

    def _behind_pages(self, module: Paged) -> Paged:
        """``module`` over this memory's pools; cold runs keep kernels of their own."""
        found = copy(module)
        found.run = Runner(PoolKernels(self.memory), module.run.blocks)  # pyright: ignore[reportArgumentType]
        return found

    def bind(self, slot: int, owner: int) -> None:
        """A row slot is ``owner``'s: its tokens, as far as the host knows them, and its drafts."""
        before = self.bound[slot]
        if before == owner:
            return
        memory, slots = self.memory, self.slots
        if before in memory.known:
            self.drafts = {one: drafts for one, drafts in self.drafts.items() if one in memory.known}
            self.drafts[before] = self._drafted(slot)
        if owner in self.bound:
            other = self.bound.index(owner)
            self.drafts[owner], self.bound[other] = self._drafted(other), -1
        known = memory.known[owner]
        tokens = torch.from_numpy(known.stream.tokens(0, known.stream.length).astype("int64"))
        tokens = tokens[: slots.stream.shape[1]].to(memory.device)
        slots.bind(slot, tokens, signed(known.spec.output_seed))
        self.bound[slot] = owner
        if owner in self.drafts:
            slots.drafts[slot], proposal = self.drafts.pop(owner)
            if slots.proposal is not None and proposal is not None:
                slots.proposal[slot] = proposal

    def _drafted(self, slot: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        proposal = self.slots.proposal
        return self.slots.drafts[slot].clone(), None if proposal is None else proposal[slot].clone()

    # -- chunks --------------------------------------------------------------------------------------------------

    def chunk(self, row: ContextRow) -> int | None:
        """Run one chunk; the target's choice behind it where it is the last one."""
        return self._chunks([row], row.drafts).get(row.owner)

    def run_chunks(self, context: Sequence[ContextRow]) -> dict[int, int]:
        """Run the chunks of a step, in one pass those that draft alike; by owner the target's choice behind the last
        one of a prompt."""
        if len(context) == 1:
            choice = self.chunk(context[0])
            return {} if choice is None else {context[0].owner: choice}
        chosen: dict[int, int] = {}
        for drafting in sorted({row.drafts for row in context}):
            chosen |= self._chunks([row for row in context if row.drafts == drafting], drafting)
        return chosen

    def _chunks(self, context: Sequence[ContextRow], drafting: bool) -> dict[int, int]:
        memory = self.memory
        for row in context:
            self.bind(row.slot, row.owner)
        shape = StepShape([row.end - row.start for row in context], memory.device, chunks=len(context))
        slot = upload([row.slot for row in context], memory.device)
        start = upload([row.start for row in context], memory.device)
        position = shape.positions(start)
        lanes = [self._target_lane(column, slot, position, shape) for column in memory.target_columns]
        begin, folds = memory.rows.drafter.length[slot].long(), self._folds(slot) if drafting else []
        output = self.slots.context(shape, slot, start, lanes, folds, begin)
        ends = upload([row.end for row in context], memory.device)
        choice = self.models.sampling.token(output.logits, self.slots.key[slot], ends)
        if drafting and memory.draft_columns:
            self._chunked(context, slot, output.features, choice)
        return {row.owner: token for row, token in zip(context, choice.tolist(), strict=True) if row.last}

    def _folds(self, slot: torch.Tensor) -> list[Lane]:
        """Lanes of chunks whose tokens are folded as the target runs them."""
        return [self._fold_lane(column, slot) for column in self.memory.draft_columns]

    def _chunked(
        self, context: Sequence[ContextRow], slot: torch.Tensor, features: torch.Tensor, choice: torch.Tensor
    ) -> None:
        """The target ran chunks and chose a token behind each, int64 ``[rows]``; folding them was all there was."""

    # -- verify rows ---------------------------------------------------------------------------------------------

    def verify(self, rows: Sequence[GenerationRow], counts: Sequence[int] | None) -> list[Ran]:
        """Verify, fold and draft; ``counts`` are committed where they are given, whatever the target accepts."""
        ran: list[Ran] = []
        self.ready(rows)
        for width, drafting in sorted({(row.width, row.drafts) for row in rows}):
            own = [place for place, row in enumerate(rows) if (row.width, row.drafts) == (width, drafting)]
            slot = upload([rows[place].slot for place in own], self.memory.device)
            told = None if counts is None else upload([counts[place] for place in own], self.memory.device)
            _, agreed = self.agree(slot, told, width, drafting)
            ran += agreed.of([rows[place] for place in own])
        return ran

    def ready(self, rows: Sequence[GenerationRow]) -> None:
        """Verify rows are about to run: their slots are theirs, and hold real drafts or placeholders."""
        for row in rows:
            self.bind(row.slot, row.owner)
            if self._real[row.slot] != row.real_drafts:
                self._real[row.slot] = row.real_drafts
                self.real[row.slot].fill_(row.real_drafts)

    def agree(
        self,
        slot: torch.Tensor,
        told: torch.Tensor | None,
        width: int,
        drafting: bool,
        active: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, Agreed]:
        """Verify ``width`` tokens of row slots int64 ``[rows]``, fold and draft; nothing is read back.

        Tokens ``told`` int64 ``[rows]`` are committed, ``None`` for what target and drafter agree on. Rows that are not
        ``active`` (bool ``[rows]``) are padding: they read, store and commit nothing. Returns the tokens committed,
        int64 ``[rows]``, and what the pass gave.
        """
        memory = self.memory
        shape = self._shape(len(slot), width)
        start, real = memory.rows.length[slot].long(), self.real[slot]
        if active is not None:  # a padding row's length means nothing
            start, real = torch.where(active, start, 0), real & active
        position = shape.positions(start)
        lanes = [self._target_lane(column, slot, position, shape) for column in memory.target_columns]
        lanes = [replace(lane, active=active) for lane in lanes]
        drafts, proposal = self.slots.drafts[slot][:, : width - 1], self.slots.proposal
        verdict, output = self.slots.verify(shape, slot, start, lanes, real=real, learns=told is None)
        evidence = None
        if self.evidence and proposal is not None:
            logits = output.logits.unflatten(0, (len(slot), -1))
            evidence = Evidence(drafts, logits, proposal[slot][:, : width - 1])
        taken = verdict.accepted if told is None else told
        if active is not None:
            taken = torch.where(active, taken, 0)
        if drafting and memory.draft_columns:
            self._pass(slot, start, taken, (shape, output.features), active)
        return taken, Agreed(torch.cat([verdict.accepted[:, None], start[:, None], verdict.choice], 1), evidence)

    def _pass(
        self,
        slot: torch.Tensor,
        start: torch.Tensor,
        taken: torch.Tensor,
        ran: tuple[StepShape, torch.Tensor],
        active: torch.Tensor | None = None,
    ) -> None:
        """Fold the committed tokens into the drafter's context, then draft behind them."""
        memory, (shape, features) = self.memory, ran
        begin = memory.rows.drafter.length[slot].long()
        folded = torch.ones_like(taken) if memory.rules.provisional is Provisional.KEPT else taken
        folds = [replace(self._fold_lane(column, slot), active=active) for column in memory.draft_columns]
        self.slots.fold(shape, start, folded, features, folds, begin)
        anchor = self.slots.stream[slot, start + taken]
        lanes = [replace(self._block_lane(column, slot), active=active) for column in memory.draft_columns]
        blocks = self._shape(len(slot), self.models.drafter.config.block)
        self.slots.draft(blocks, slot, anchor, start + taken, lanes, begin + taken)

    def _shape(self, rows: int, width: int) -> StepShape:
        """The shape of so many rows of one width, made once: to make one copies from the host."""
        found = self._shapes.get((rows, width))
        if found is None:
            found = self._shapes[rows, width] = StepShape([width] * rows, self.memory.device)
        return found

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


class OnePass:
    """Verify rows of one width that all draft or do not: a captured step runs them as a single pass, padding and all.

    ``told``: the counts of a step are known; otherwise they are what target and drafter agree on.
    """

    def __init__(self, models: ModelRows, *, told: bool) -> None:
        self.models, self.told = models, told
        self.shape = (0, False)  # width and drafting of the rows that are ready

    def ready(self, rows: Sequence[GenerationRow]) -> bool:
        """Whether ``rows`` are of one kind; then they are ready to run."""
        kinds = {(row.width, row.drafts) for row in rows}
        if len(kinds) > 1:
            return False
        (self.shape,) = kinds
        self.models.ready(rows)
        return True

    def run(self, rows: StepRows) -> tuple[StepRows, Agreed]:
        """Rows with the tokens that they commit, and what :meth:`ModelRows.agree` gives; nothing is read back."""
        told = rows.taken if self.told else None
        taken, agreed = self.models.agree(rows.slot, told, *self.shape, rows.width > 0)
        return replace(rows, taken=taken), agreed
