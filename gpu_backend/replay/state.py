"""What the device keeps for its rows: lengths, bases, owners, and the tags that their tokens say."""

from __future__ import annotations

import torch

from gpu_backend.backend import Kernels
from gpu_backend.calls import SlotCall, SlotOp, Slots
from gpu_backend.replay.planes import upload
from model.geometry import cdiv, floor_to
from model.rules.slots import Slots as SlotsRule


class RowSlots:
    """Row slots ``0 .. count``; the last is the dummies'.

    ``length`` int32 ``[slots]`` is the target's length in tokens, ``drafter`` the drafter's slots, ``owner`` int64
    ``[slots]`` who is bound. ``final`` int64 ``[places]``: drafter cells below are final; a place is a request's as
    long as its tokens are known, and its parked base is kept there.
    """

    def __init__(
        self, slots: int, page_size: int, longest: int, rule: SlotsRule, kernels: Kernels, device: torch.device
    ) -> None:
        self.count, self.page_size, self.longest = slots, page_size, longest
        self.rule, self.kernels, self.device = rule, kernels, device
        self.length = torch.zeros(slots, dtype=torch.int32, device=device)
        self.owner = torch.zeros(slots, dtype=torch.int64, device=device)
        places = 4 * slots
        self.scratch = places  # a place of nobody: padding rows write there
        self.drafter = Slots.empty(slots, places + 1, device)
        self.final = torch.zeros(places + 1, dtype=torch.int64, device=device)
        self.trail = torch.zeros(slots, dtype=torch.int32, device=device)  # ``lag`` as the device has it
        self.saved = (self.length, self.owner, self.trail)
        self.place_of: dict[int, int] = {}  # owner -> place
        self.parked: set[int] = set()  # owners whose base lies at their place
        self.lag = [0] * slots  # how far the drafter's slot trails its request, as its binding said
        self._free = list(range(places - 1, -1, -1))

    # -- requests ------------------------------------------------------------------------------------------------

    def begin(self, owner: int, final: int) -> None:
        """An owner's tokens become known, its drafter cells below ``final`` are there."""
        if not self._free:
            self._grow()
        place = self.place_of[owner] = self._free.pop()
        self.final[place].fill_(final)  # to assign a number would wait for the device

    def end(self, owner: int) -> None:
        """An owner is forgotten."""
        place = self.place_of.pop(owner, None)
        if place is not None:
            self._free.append(place)
        self.parked.discard(owner)

    def _grow(self) -> None:
        have = len(self.final)
        more = torch.zeros(have, dtype=torch.int64, device=self.device)
        self.final = torch.cat([self.final, more])
        self.drafter.parked = torch.cat([self.drafter.parked, more.int()])
        self._free = list(range(2 * have - 1, have - 1, -1))

    # -- bindings ------------------------------------------------------------------------------------------------

    def bind(self, slot: int, owner: int, length: int, base: int, draft_length: int) -> None:
        """A request gets a slot. Its base comes back from where it was parked, or starts as the slots rule says."""
        self.length[slot].fill_(length)
        self.owner[slot].fill_(owner)
        self._trails(slot, length - draft_length)
        if owner in self.parked and self.rule.parks:
            self.parked.discard(owner)
            self._update(SlotOp.RESUME, slot, draft_length, self.place_of[owner])
            return
        for op, value in seeds(length, draft_length, base, self.page_size):
            self._update(op, slot, value, 0)

    def unbind(self, slot: int, owner: int | None) -> None:
        """A slot is given up; the base of a request that goes on is parked."""
        place = self.place_of.get(-1 if owner is None else owner)
        if place is not None and owner is not None:
            self.parked.add(owner)
            self._update(SlotOp.PARK, slot, 0, place)
        self.owner[slot].zero_()
        self._trails(slot, 0)

    def _trails(self, slot: int, lag: int) -> None:
        if self.lag[slot] != lag:
            self.trail[slot].fill_(lag)
        self.lag[slot] = lag

    def snapshot(self) -> tuple[set[int], list[int]]:
        """Save every slot before a forward that may fail; the host's own notes are returned."""
        every = range(self.count)
        self._call([SlotOp.SNAPSHOT] * self.count, every)
        self.saved = self.length.clone(), self.owner.clone(), self.trail.clone()
        return set(self.parked), list(self.lag)

    def roll_back(self, notes: tuple[set[int], list[int]]) -> None:
        """Restore what :meth:`snapshot` saved."""
        self._call([SlotOp.ROLLBACK] * self.count, range(self.count))
        self.length.copy_(self.saved[0])
        self.owner.copy_(self.saved[1])
        self.trail.copy_(self.saved[2])
        self.parked, self.lag = notes

    def _update(self, op: SlotOp, slot: int, value: int, place: int) -> None:
        told = upload((op, slot, value, place), self.device, torch.int32)
        self.kernels.update_slots(
            SlotCall(self.drafter, told[:1], told[1:2], told[2:3], told[3:], self.page_size, self.longest)
        )

    def _call(self, ops: list[SlotOp], slots: range) -> None:
        op, slot = upload(ops, self.device, torch.int32), upload(slots, self.device, torch.int32)
        nothing = torch.zeros_like(op)
        self.kernels.update_slots(SlotCall(self.drafter, op, slot, nothing, slot, self.page_size, self.longest))


def seeds(position: int, length: int, base: int, page_size: int) -> tuple[tuple[SlotOp, int], ...]:
    """Slot operations by which a request at ``position`` starts with ``length`` and ``base``."""
    known = {
        SlotOp.PLACE: (0, length, length),
        SlotOp.SEED_PAGE: (position // page_size, floor_to(position, page_size), position),
        SlotOp.SEED_POSITION: (cdiv(position, page_size), position, position),
        SlotOp.HIDE: (length // page_size, length, length),
    }
    for op, (first, tokens, value) in known.items():
        if (first, tokens) == (base, length):
            return ((op, value),)
    return ((SlotOp.HIDE, base * page_size), (SlotOp.ADVANCE, length - base * page_size))
