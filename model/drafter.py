"""Drafter kinds, and the slots in which hidden-state drafters keep their context.

A slot's context is the absolute interval ``[base * page_size, length)``: what lies below the base is hidden, never
read. An empty context is ``length == base * page_size``, not a new origin.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple


class View(enum.Enum):
    """Whose cursor a separate mirror follows when it is not paired."""

    TARGET = "target"  # external one-engine drafters
    DRAFT = "draft"  # a separate draft engine's own cursor


class Pass(enum.Enum):
    """What one drafter pass writes after it folded the accepted tokens (device semantics)."""

    BLOCK = "block"  # K parallel queries behind the context, over fixed-size masked columns
    CHAIN = "chain"  # K - 1 further cells, one autoregressive step each
    NONE = "none"


@dataclass(frozen=True, slots=True)
class DrafterKind:
    """One row of the drafter table.

    ``lookahead``: tokens after ``i`` that cell ``i`` depends on (``None``: unknown, never paired; -1: the depth of
    the chain). ``slot``: keeps its context in a slot with a base. ``hidden``: a cell exists only where the target
    really ran. ``attends``: its prefill reads earlier drafter cells. ``odd_pages``: its kernels take pages that are
    no power of two (without a non-causal context kernel they do not).
    """

    name: str
    lookahead: int | None
    has_pool: bool
    slot: bool
    hidden: bool
    attends: bool
    writes: Pass
    view: View
    odd_pages: bool
    summary: str

    def may_pair(self, chain: int, page_size: int) -> bool:
        """Whether its pool may pair with a target of ``page_size``: it has one, its span is known, its kernels fit."""
        known = self.span(chain) is not None
        return self.has_pool and known and (self.odd_pages or page_size & (page_size - 1) == 0)

    def span(self, chain: int) -> int | None:
        """Lookahead D in tokens for a drafter with ``chain`` modules."""
        return chain if self.lookahead == -1 else self.lookahead

    def tag_span(self, chain: int) -> int:
        """Lookahead that content tags use; an unknown one is taken to be 1, as its input preparation shifts by 1."""
        span = self.span(chain)
        return 1 if span is None else span


KINDS: dict[str, DrafterKind] = {
    kind.name: kind
    for kind in (
        DrafterKind(
            "dflash", 0, True, True, True, False, Pass.BLOCK, View.TARGET, False, "DFlash: K queries in one block"
        ),
        DrafterKind(
            "dspark", 0, True, True, True, False, Pass.BLOCK, View.TARGET, False, "DSpark: DFlash with a Markov head"
        ),
        DrafterKind("pard", 0, True, False, False, True, Pass.BLOCK, View.TARGET, True, "PARD: parallel mask tokens"),
        DrafterKind("eagle3", 1, True, False, True, True, Pass.CHAIN, View.DRAFT, True, "EAGLE3, one model"),
        DrafterKind("mtp-eagle", 1, True, False, True, True, Pass.CHAIN, View.DRAFT, True, "MTP head used as EAGLE"),
        DrafterKind("mtp", -1, True, False, True, True, Pass.CHAIN, View.DRAFT, True, "chain of D MTP modules"),
        DrafterKind(
            "draft-target-one-model",
            None,
            True,
            False,
            False,
            True,
            Pass.CHAIN,
            View.TARGET,
            True,
            "small model, one engine",
        ),
        DrafterKind("ngram", None, False, False, False, False, Pass.NONE, View.TARGET, True, "prompt lookup, no KV"),
    )
}


class Seed(enum.Enum):
    """Where a fresh slot of a request at absolute position ``p`` starts."""

    ZERO = "zero"  # base 0, length 0: a new origin
    PAGE = "page boundary"  # base floor(p / page), length on that boundary: trails by less than a page
    POSITION = "position"  # base ceil(p / page), length p: cells of the open page stay hidden


@dataclass(frozen=True, slots=True)
class SlotState:
    """Base page and length (tokens) of a slot."""

    base: int
    length: int


class SlotSnapshot(NamedTuple):
    """A copy of a :class:`SlotMap`: free slots, and per owner its slot, its base and its parked base."""

    free: list[int]
    slot_of: dict[int, int]
    base: dict[int, int]
    parked: dict[int, int]


class SlotMap:
    """Row slots ``0 .. capacity - 1`` of the requests in the running batch; slot ``capacity`` is the dummies'.

    A request that is absent from a batch gives its slot up and parks its base; the pages keep its context.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.free = list(range(capacity - 1, -1, -1))
        self.slot_of: dict[int, int] = {}
        self.base: dict[int, int] = {}  # owner -> base page, bound or parked
        self.parked: dict[int, int] = {}

    def bind(self, owner: int, base: int) -> int:
        """Give ``owner`` a slot whose context is hidden below page ``base``."""
        slot = self.free.pop()
        self.slot_of[owner] = slot
        self.base[owner] = base
        self.parked.pop(owner, None)
        return slot

    def park(self, owner: int, keeps_row: bool = False) -> int:
        """Take the slot of an absent request away and remember its base; returns the slot.

        ``keeps_row`` (wrong) leaves the request with the number of a slot that others may now get.
        """
        slot = self.slot_of[owner] if keeps_row else self.slot_of.pop(owner)
        self.parked[owner] = self.base[owner] if keeps_row else self.base.pop(owner)
        self.free.append(slot)
        return slot

    def release(self, owner: int) -> int | None:
        """Forget an ended request; returns the slot it had."""
        kept = self.parked.pop(owner, None) is not None
        self.base.pop(owner, None)
        slot = self.slot_of.pop(owner, None)
        if slot is not None and not kept:
            self.free.append(slot)
        return slot

    def snapshot(self) -> SlotSnapshot:
        """State to restore when a forward fails."""
        return SlotSnapshot(list(self.free), dict(self.slot_of), dict(self.base), dict(self.parked))

    def rollback(self, saved: SlotSnapshot) -> None:
        """Restore a snapshot."""
        self.free, self.slot_of = list(saved.free), dict(saved.slot_of)
        self.base, self.parked = dict(saved.base), dict(saved.parked)


def rebased(row_blocks: int, base: int, length: int, page_size: int) -> tuple[int, int]:
    """Rebased view of a row: (first block the drafter's kernel sees, context length it is told).

    The block at absolute position ``p`` is entry ``p // page_size - base`` of the rebased row; both reads and writes
    use it. Returns ``(min(base, row_blocks), max(0, length - base * page_size))``.
    """
    return (min(base, row_blocks), max(0, length - base * page_size))
