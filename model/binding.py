"""Row slots of a batch: who gets one, where its drafter context starts, and what a failed forward restores."""

from __future__ import annotations

from collections.abc import Sequence

from model.drafter import SlotMap, SlotSnapshot, SlotState
from model.geometry import cdiv
from model.joint import Twin
from model.plan import BIND, UNBIND, Recorder
from model.request import Request


class RowBinder:
    """Binds the requests of a batch to row slots, by the slots and epoch rules, and records it for the memory."""

    def __init__(self, twin: Twin, recorder: Recorder) -> None:
        self.twin, self.recorder = twin, recorder
        self.slots = SlotMap(twin.config.limits.max_batch)
        self._left: dict[int, int] = {}  # request id -> base that an ended request left behind (wrong)
        page = twin.config.limits.page_size
        lives = [column.lifecycle for column in twin.columns if column.draft]
        self.trailing = all(life.window is None or life.trail >= page for life in lives)

    def bind_rows(self, generation: Sequence[Request], context: Sequence[Request]) -> None:
        """Give every row a slot; requests that are absent from this batch give theirs up first."""
        slots = self.slots
        keeps_row = not self.twin.rules.epoch.releases_rows
        present = {request.owner for request in generation}
        present.update(request.owner for request in context)
        for owner in [owner for owner in slots.slot_of if owner not in present and owner not in slots.parked]:
            self.recorder.records.append((UNBIND, slots.park(owner, keeps_row)))
        for request in context:
            if request.owner not in slots.slot_of:
                self._bind(request, request.cursor)
        for request in generation:
            if request.owner not in slots.slot_of:
                self._bind(request, request.settled_position())

    def _bind(self, request: Request, position: int) -> None:
        page = self.twin.config.limits.page_size
        slots, rule, claim = self.slots, self.twin.rules.slots, request.claim
        if request.received >= 0 and (request.owner not in slots.parked or not self.twin.kind.slot):
            state = self._received(request, position)
        elif not self.twin.kind.slot:
            hidden = claim.fresh and rule.hides_prefix
            state = SlotState(cdiv(claim.tokens, page) if hidden else 0, position)
        elif request.owner in slots.parked or request.started:
            state = rule.returning(slots.parked.get(request.owner), position - request.lag, page, self.trailing)
        else:
            state = rule.first(position, 0 if claim.fresh else claim.tokens, page)
            if request.request_id in self._left:
                state = SlotState(self._left.pop(request.request_id), state.length)
        slot = slots.bind(request.owner, state.base)
        self.recorder.records.append((BIND, slot, request.owner, position, state.base, state.length))

    def _received(self, request: Request, position: int) -> SlotState:
        """First slot of a request that was prefilled elsewhere; drafter context that did not come is hidden."""
        if not self.twin.rules.transfer.seeds_in_place:
            return SlotState(0, 0)
        page = self.twin.config.limits.page_size
        if request.received * page < position or not self.twin.kind.slot:
            return SlotState(request.received, position)
        state = self.twin.rules.slots.returning(None, position, page, self.trailing)
        request.lag = position - state.length  # its cells lie that far behind their tokens, wherever the slot goes
        return state

    def base_of(self, owner: int) -> int:
        """Base page of the drafter's context of ``owner``, bound to a slot or parked."""
        return self.slots.base.get(owner, self.slots.parked.get(owner, 0))

    def unbind(self, owner: int, request_id: int = -1) -> None:
        """Forget an ended epoch, or the request ``request_id`` that ended."""
        if request_id >= 0 and not self.twin.rules.slots.forgets_ended:
            self._left[request_id] = self.slots.base.get(owner, 0)
        slot = self.slots.release(owner)
        if slot is not None:
            self.recorder.records.append((UNBIND, slot))

    def roll_back(self, saved: SlotSnapshot) -> None:
        """Restore the slots after a failed forward."""
        slots = self.slots
        kept = slots.base if not self.twin.rules.slots.keeps_base else None
        slots.rollback(saved)
        if kept is not None:
            slots.base.update({owner: base for owner, base in kept.items() if owner in slots.base})
            slots.parked.update({owner: base for owner, base in kept.items() if owner in slots.parked})
