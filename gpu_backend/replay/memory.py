"""The device's memory of one engine: pools, rows and columns, and the stores that every row goes through."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_backend.backend import Kernels
from gpu_backend.calls import StoreCall
from gpu_backend.cells import SENTINEL, CellState
from gpu_backend.layout import UNBACKED
from gpu_backend.replay.columns import DeviceColumn
from gpu_backend.replay.content import Synthetic
from gpu_backend.replay.findings import ColumnFindings
from gpu_backend.replay.journal import Journal
from gpu_backend.replay.planes import Planes
from gpu_backend.replay.state import RowSlots
from model.config import PoolSize, RequestSpec
from model.engine import Engine
from model.geometry import cdiv
from model.request import Request
from model.rules.device import Addressing
from model.tokens import TokenStream, cell_tags, named_seed


@dataclass(slots=True)
class Known:
    """What the device's host knows of one owner: its request, all tokens, and the tags of its cells by column."""

    request_id: int
    spec: RequestSpec
    stream: TokenStream
    seeds: list[int]
    tags: list[NDArray[np.uint64]]
    begun: int = -1  # where its first chunk began, for a drafter that looks ahead


class DeviceMemory:
    """Everything that the device holds for ``engine``. Without ``checks`` nothing is judged and no event is kept.

    ``spells``: cells are given tags, states and rows that spell them. Where real modules run and nothing is judged,
    nobody would read them.
    """

    def __init__(
        self, engine: Engine, device: torch.device, kernels: Kernels, content: Synthetic, *, checks: bool, debug: bool
    ) -> None:
        twin, limits = engine.twin, engine.config.limits
        self.twin, self.device, self.kernels, self.content, self.checks = twin, device, kernels, content, checks
        self.rules = engine.rules_of_device
        self.page_size, self.vocabulary = limits.page_size, engine.config.vocabulary
        self.journal, self.spells = Journal(), True
        width = self.width = 1 + engine.config.drafter.drafts
        span = max((column.lifecycle.lookahead for column in twin.columns), default=0)
        tokens = limits.max_seq_len + limits.extra_tokens + (limits.run_ahead + 3) * width + 2 * span + 2
        self.tokens = tokens
        self.entries = cdiv(tokens + width, self.page_size) + 1
        self.planes = [
            Planes(
                name, content, self.page_size, PoolSize(pool.device_pages, pool.host_pages), device, debug=debug
            )
            for name, pool in twin.pools.items()
        ]  # fmt: skip
        by_name = {planes.name: planes for planes in self.planes}
        self.dummy_slot, self.batches = limits.max_batch, tuple(limits.graph_batches)
        rows = limits.max_batch + 1
        self.rows = RowSlots(rows, self.page_size, tokens + width, engine.rules.slots, kernels, device)
        self.columns = [
            DeviceColumn(column, by_name[column.pool.name], rows, self.entries, tokens, self.rules.table)
            for column in twin.columns
        ]
        self.column_of = {
            (column.pool.index, column.column): mine for column, mine in zip(twin.columns, self.columns, strict=True)
        }
        self.target_columns = [column for column in self.columns if not column.draft]
        self.draft_columns = [column for column in self.columns if column.draft]
        self.findings = [ColumnFindings(column) for column in self.columns] if checks else []
        self.known: dict[int, Known] = {}
        self.loaded: list[int] = [-1] * rows  # owner whose tags a row's ``expected`` holds
        self.bound: dict[int, int] = {}  # row slot -> owner
        self.epoch = 0  # changes whenever ``known``, places of owners or ``loaded`` do
        self.origin = torch.zeros(rows, dtype=torch.int32, device=device)

    # -- requests ------------------------------------------------------------------------------------------------

    def begin(self, owner: int, request: Request, final: int) -> None:
        """An owner's tokens become known."""
        stream, scope = request.stream, request.spec.scope
        assert stream is not None
        seeds, tags = [], []
        for column in self.columns if self.spells else ():
            span = column.life.lookahead if column.draft else 0
            weights = (scope.target_weights, scope.draft_weights) if column.draft else (scope.target_weights,)
            seeds.append(named_seed("cell", column.life.name, span, scope.adapter, scope.salt, *weights))
            tags.append(cell_tags(stream, 0, stream.length - span, span, seeds[-1]))
        self.epoch += 1
        self.known[owner] = Known(request.request_id, request.spec, stream, seeds, tags)
        self.rows.begin(owner, final)

    def end(self, owner: int) -> None:
        """An owner is forgotten."""
        self.epoch += 1
        self.known.pop(owner, None)
        self.rows.end(owner)

    def load(self, slot: int, owner: int) -> None:
        """The rows of a slot are now ``owner``'s: its tokens' tags go to the device."""
        if self.loaded[slot] != owner:
            for column, tags in zip(self.columns, self.known[owner].tags, strict=True) if self.spells else ():
                column.load(slot, tags)
            self.loaded[slot] = owner
            self.epoch += 1

    # -- stores --------------------------------------------------------------------------------------------------

    def store(
        self,
        column: DeviceColumn,
        slot: torch.Tensor,
        position: torch.Tensor,
        cells: tuple[torch.Tensor, torch.Tensor],
        given: torch.Tensor,
        table: torch.Tensor | None = None,
    ) -> None:
        """Write cells of row slots at absolute positions, int64 ``[n]`` each, with their tags and states.

        What is not ``given`` (bool ``[n]``) is padding. ``table`` replaces the column's own.
        """
        table = column.table if table is None else table
        tag, state = cells
        if self.rules.addressing is Addressing.ADJACENT:
            table = self._adjacent(column, table, slot, position, given)
        if self.findings:
            self.findings[column.index].wrote(self.kernels, slot, position, table, self.rows.owner, given)
        row = torch.where(given, slot, UNBACKED).int()
        pool, content = column.planes.pool, self.content
        for layer in range(content.layers):
            last = layer == content.layers - 1
            k = content.keys(tag, layer)
            self.kernels.store(
                StoreCall(
                    k, content.values(k), pool.k(layer), pool.v(layer), row, position.int(), table, self.origin,
                    pool.cells if last else None, tag if last else None, state if last else None,
                )
            )  # fmt: skip

    def fill(self, state: CellState, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Tags and states of cells without content, shaped as ``like``."""
        return torch.full_like(like, SENTINEL[state]), torch.full_like(like, int(state), dtype=torch.int8)

    def _adjacent(
        self,
        column: DeviceColumn,
        table: torch.Tensor,
        slot: torch.Tensor,
        position: torch.Tensor,
        given: torch.Tensor,
    ) -> torch.Tensor:
        """A table in which pages follow the first one that each row writes (a wrong answer of *addressing*)."""
        far = table.shape[1]
        block = torch.where(given, torch.div(position, self.page_size, rounding_mode="floor"), far).clamp(0, far)
        first = torch.full((table.shape[0],), far, dtype=torch.int64, device=self.device)
        first = first.scatter_reduce(0, slot, block, "amin").clamp(max=far - 1)
        steps = torch.arange(far, device=self.device)[None] - first[:, None]
        begin = table.gather(1, first[:, None])
        last = column.planes.device_pages
        behind = (begin + steps).clamp(max=last).int()
        return torch.where((steps > 0) & (begin >= 0), behind, table)
