"""FLIGHT, and MAP, FRONT, REUSE and AL of transfers: what bytes move from or to stays as it is until the write ends.

Judged from the sequences' tables, the rows of the steps in flight and the tenants that the memory knows.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from model.geometry import cdiv
from model.invariants.base import Violation
from model.sequence import ACTIVE
from model.table import NO_PAGE

if TYPE_CHECKING:
    from model.joint import Column
    from model.ops import World
    from model.pair import Transfer
    from model.request import Request
    from model.wire import Leg


class FlightLaws:
    """Judge of the transfers from one worker to another."""

    def __init__(self, source: World, target: World) -> None:
        self.source, self.target = source, target
        self._promised: dict[int, tuple[Request, str]] = {}  # owner -> request whose drafter is to see its window, pool

    # -- FLIGHT --------------------------------------------------------------------------------------------------

    def open(self, transfers: Iterable[Transfer]) -> None:
        """While transfers are open each of their pages is locked by the sequence that it was listed from."""
        for transfer in transfers:
            for world in (self.source, self.target):
                world.docket.count("FLIGHT")
            for leg in transfer.legs:
                self._held(self.source, transfer.source, leg, leg.sources, "read")
                self._held(self.target, transfer.target, leg, leg.targets, "written")

    def _held(self, world: World, request: Request, leg: Leg, pages: array[int], how: str) -> None:
        column, blocks = world.engine.twin.columns[leg.need.column.index], leg.need.blocks
        sequence = column.manager.sequences.get(request.owner)
        found = "its owner holds nothing"
        if sequence is not None and sequence.status is ACTIVE:
            table = sequence.tables[column.column]
            first, last = blocks[0] - table.base, blocks[-1] - table.base + 1
            if first >= 0 and last - first == len(blocks) and table.pages[first:last] == pages:
                return
            now = [table.page(block) for block in blocks]
            if NO_PAGE not in now and (how == "read" or now == pages.tolist()):
                return
            found = "its owner gave it up"
        self._report(
            world,
            "FLIGHT",
            f"a page is released while a transfer still has it {how}",
            (request.request_id, column.pool.name, pages[0], world.engine.iteration),
            f"locked by owner {request.owner} until the transfer ends",
            found,
        )

    def written(self, transfer: Transfer) -> None:
        """No step in flight still writes what the transfer read, or touches a page that it wrote."""
        source, target = self.source, self.target
        source.docket.count("FLIGHT")
        target.docket.count("FLIGHT")
        late = [plan for plan in source.engine.plans if any(row.owner == transfer.source.owner for row in plan.context)]
        pool = source.engine.twin.columns[0].pool.name
        if late:
            place = (transfer.source.request_id, pool, -1, late[0].iteration)
            message = "sent before the step that computes it has run"
            self._report(source, "FLIGHT", message, place, "no step of the request in flight", "its last chunk is")
        for leg in transfer.legs:
            self._untouched(transfer, leg)
            self._tenants(transfer, leg)

    def _untouched(self, transfer: Transfer, leg: Leg) -> None:
        target = self.target
        column = leg.need.column
        slots = np.array([column.pool.slot[page] for page in leg.targets if page != NO_PAGE], dtype=np.int32)
        for plan in target.engine.plans:
            for row in (*plan.context, *plan.generation):
                for other in target.engine.twin.columns:
                    if other.pool is not column.pool:
                        continue
                    used = np.frombuffer(row.tables[other.index].pages, dtype=np.int32)
                    both = np.intersect1d(used, slots)
                    if len(both):
                        place = (transfer.target.request_id, column.pool.name, int(both[0]), plan.iteration)
                        found = f"step {plan.iteration} of request {row.request_id} has the page in its row"
                        message = "a transfer writes a page that a step in flight still uses"
                        self._report(target, "FLIGHT", message, place, "no step in flight uses it", found)
                        return

    def _tenants(self, transfer: Transfer, leg: Leg) -> None:
        """The memory knows the pages as granted to the request that receives, and none of them as published."""
        target, column, owner = self.target, leg.need.column, transfer.target.owner
        assert target.watch is not None
        shadow = target.watch.shadow
        pool = shadow.pool_of[column.index]
        target.docket.count("OWN", len(leg.targets))
        for block, page in zip(leg.need.blocks, leg.targets, strict=False):
            slot = column.pool.slot[page]
            if page != NO_PAGE and (shadow.owner[pool][slot] != owner or shadow.sealed[pool][slot]):
                place = (transfer.target.request_id, column.pool.name, slot, target.engine.iteration)
                expected, found = f"a page granted to owner {owner}", f"page of owner {shadow.owner[pool][slot]}"
                message = "a transfer writes a page that its request does not own alone"
                self._report(target, "OWN", message, place, expected, found, block * shadow.page)
                return

    # -- MAP -----------------------------------------------------------------------------------------------------

    def sent(self, transfer: Transfer) -> None:
        """For each pool the lists name, block by block, the pages that both sides' tables have for that block."""
        for leg in transfer.legs:
            self.target.docket.count("MAP")
            column = leg.need.column
            mine = self._pages(self.target, column, transfer.target, leg)
            own = self._pages(self.source, self.source.engine.twin.columns[column.index], transfer.source, leg)
            for wanted, listed, side in ((own, leg.sources, "source"), (mine, leg.targets, "destination")):
                if list(listed) != wanted:
                    place = (transfer.target.request_id, column.pool.name, -1, self.target.engine.iteration)
                    message = f"{column.lifecycle.name}: the {side} list of a transfer is not the pool's own"
                    expected, found = f"pages {wanted[:8]} from block {leg.need.blocks[0]}", f"pages {list(listed)[:8]}"
                    self._report(self.target, "MAP", message, place, expected, found, leg.need.begin)

    @staticmethod
    def _pages(world: World, column: Column, request: Request, leg: Leg) -> list[int]:
        sequence = column.manager.sequences.get(request.owner)
        assert sequence is not None and world.engine.twin.columns[column.index] is column
        return [sequence.tables[column.column].page(block) for block in leg.need.blocks]

    # -- FRONT ---------------------------------------------------------------------------------------------------

    def arrived(self, transfer: Transfer, promised: bool) -> None:
        """What a request that begins to generate will read is claimed, received, or hidden behind its slot's base.

        ``promised``: the drafter's pages were to come along.
        """
        world, request = self.target, transfer.target
        twin, page = world.engine.twin, world.config.limits.page_size
        position = request.prompt_length + request.generated - 1
        received = {leg.need.column.index: leg.need for leg in transfer.legs}
        drafts = [column for column in twin.columns if column.draft]
        if drafts and promised and all(self._saw_its_window(transfer, column, position) for column in drafts):
            self._promised[request.owner] = (request, drafts[0].pool.name)
        world.docket.count("FRONT", len(twin.columns))
        for column in twin.columns:
            sequence = column.manager.sequences[request.owner]
            place = (request.request_id, column.pool.name, -1, world.engine.iteration)
            if sequence.history != position:
                message = "a received request starts at another history than its position"
                expected, found = f"history {position}", f"history {sequence.history}"
                self._report(world, "FRONT", message, place, expected, found, min(position, sequence.history))
                continue
            low = max(column.lifecycle.read_from(position), request.received * page if column.draft else 0)
            claimed = sequence.claimed if column.column not in sequence.declined else 0
            claimed = 0 if column.draft and request.claim.fresh else claimed
            need = received.get(column.index)
            blocks = set(need.blocks) if need is not None else set()
            if column.lifecycle.window is not None and (promised or not column.draft):
                self._next_turn(transfer, column, blocks, claimed)
            holes = [
                b for b in range(low // page, cdiv(position, page)) if b not in blocks and (b + 1) * page > claimed
            ]
            holes = [block for block in holes if min((block + 1) * page, position) > max(low, claimed)]
            if holes:
                message = f"{column.lifecycle.name}: part of the context was neither claimed nor received"
                expected, found = f"all of [{low}, {position})", f"block {holes[0]} is missing"
                self._report(world, "FRONT", message, place, expected, found, holes[0] * page)

    def _saw_its_window(self, transfer: Transfer, column: Column, position: int) -> bool:
        """Whether the drafter's context at the source begins at its window or before."""
        engine = self.source.engine
        page = self.source.config.limits.page_size
        return engine.binder.base_of(transfer.source.owner) * page <= column.lifecycle.read_from(position + 1)

    # -- REUSE ---------------------------------------------------------------------------------------------------

    def _next_turn(self, transfer: Transfer, column: Column, blocks: set[int], claimed: int) -> None:
        """What a lookup at the end of this prompt asks for of a window is here, if the source had it.

        The lookahead moves the deepest claim, and with it the window that has to be covered, below the prompt's end.
        """
        world, request = self.target, transfer.target
        page = world.config.limits.page_size
        sequence = column.manager.sequences[request.owner]
        if sequence.keys is None or column.column in column.manager.private:
            return
        world.docket.count("REUSE")
        end = max(0, request.prompt_length - world.engine.twin.span)
        source = self.source.engine.twin.columns[column.index]
        table = source.manager.sequences[transfer.source.owner].tables[source.column]
        low = column.lifecycle.read_from(end)
        if column.draft:
            low = max(low, request.received * page)
        for block in range(low // page, cdiv(end, page)):
            if block in blocks or (block + 1) * page <= claimed or table.page(block) == NO_PAGE:
                continue
            place = (request.request_id, column.pool.name, table.page(block), world.engine.iteration)
            message = f"{column.lifecycle.name}: the transfer left behind what the next turn will look up"
            expected, found = f"all from position {low} on", f"block {block} is not sent"
            self._report(world, "REUSE", message, place, expected, found, block * page)
            return

    # -- AL ------------------------------------------------------------------------------------------------------

    def drafted(self) -> None:
        """A drafter whose pages were to come along finds its window whole at its first pass.

        Said only where no other law broke on the request: what was wrong with its pages has a better name.
        """
        if not self._promised:
            return
        world = self.target
        assert world.watch is not None
        shadow = world.watch.shadow
        for owner, (request, pool) in list(self._promised.items()):
            reader = shadow.readers.get(owner)
            if world.engine.owners.get(owner) is not request:
                del self._promised[owner]
            elif reader is not None and reader.drafted >= 0:
                del self._promised[owner]
                world.docket.count("AL")
                share = shadow.coverage(owner)
                if share < 1.0 and all(found.request != request.request_id for found in world.violations):
                    place = (request.request_id, pool, -1, shadow.iteration)
                    message = "the drafter's first pass behind a transfer does not see its window"
                    self._report(world, "AL", message, place, "its whole window", f"{share:.0%} of it")

    def never_ended(self, request_id: int) -> None:
        """The run is over and a transfer is still open."""
        step = self.target.engine.iteration
        message = "the run ended with a transfer that never did"
        self.target.docket.report(Violation("PROGRESS", message, request_id, step=step, expected="no open transfer"))

    @staticmethod
    def _report(
        world: World,
        code: str,
        message: str,
        place: tuple[int, str, int, int],
        expected: str,
        found: str,
        position: int = -1,
    ) -> None:
        request, pool, page, step = place
        world.docket.report(Violation(code, message, request, pool, page, position, step, expected, found))
