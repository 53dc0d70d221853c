"""Arguments of the kernels, one value per operation; the Triton kernels and the torch references both take them.

Common shapes. ``table`` is int32 ``[rows, columns]`` of page ids, -1 where nothing backs a block. ``base`` is int32
``[rows]``, in pages: a row's positions are counted from the start of block ``base`` (0: absolute positions), so that
position ``p`` lies in page ``table[row, base + p // page_size]``. ``k_cache`` and ``v_cache`` are views
``[pages, page_size, kv_heads, head_dim]`` of one layer with equal strides. Lengths and positions are tokens. Everything
lies on one device and is updated in place between steps, so that a captured CUDA graph sees the new values.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import torch

from model.rules.device import Extent, Unbacked


def require_dense(**lists: torch.Tensor | None) -> None:
    """ValueError for a list whose entries do not lie side by side: kernels read them from the first one on."""
    for name, tensor in lists.items():
        if tensor is not None and not tensor.is_contiguous():
            raise ValueError(f"expected {name} to lie dense in memory, found strides of {tensor.stride()} entries")


class OwnershipError(AssertionError):
    """A reference met a table entry that its actor must not touch."""


@dataclass(slots=True)
class Cells:
    """Tag and state of every token slot of one pool: int64 and int8 ``[pages, page_size]``."""

    tags: torch.Tensor
    states: torch.Tensor


@dataclass(slots=True)
class StoreCall:
    """Write K and V rows ``[tokens, kv_heads, head_dim]`` into pages, and the tags of their slots along with them.

    ``row`` is int32 ``[tokens]`` (-1: a padding token), ``position`` int32 ``[tokens]``. A token whose block is not
    backed is dropped. ``cells`` is given by the last layer of a lifecycle only, with ``tag`` int64 ``[tokens]`` and
    ``state`` int8 ``[tokens]``.
    """

    k: torch.Tensor
    v: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    row: torch.Tensor
    position: torch.Tensor
    table: torch.Tensor
    base: torch.Tensor
    cells: Cells | None = None
    tag: torch.Tensor | None = None
    state: torch.Tensor | None = None

    def __post_init__(self) -> None:
        require_dense(row=self.row, position=self.position, base=self.base, tag=self.tag, state=self.state)


@dataclass(slots=True)
class AttentionCall:
    """Attention of ``q`` ``[tokens, heads, head_dim]`` over paged keys; ``out`` has the shape of ``q``.

    Row ``r`` owns queries ``[cu_query[r], cu_query[r + 1])`` (int32 ``[rows + 1]``); they stand at the end of its
    ``length[r]`` tokens, whose K and V are already stored. Keys are ``[start[r], length[r])``, further bounded per
    query by causality and by ``window_left`` (keys left of the query that it sees, -1 for all; a model's window is
    ``window_left + 1``). A row of length 0 is parked: its output is zero. ``from_origin`` promises that every ``start``
    is 0 and spares the kernel its masked left edge.
    """

    q: torch.Tensor
    out: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    table: torch.Tensor
    cu_query: torch.Tensor
    length: torch.Tensor
    base: torch.Tensor
    start: torch.Tensor
    causal: bool = True
    window_left: int = -1
    from_origin: bool = False

    def __post_init__(self) -> None:
        require_dense(cu_query=self.cu_query, length=self.length, base=self.base, start=self.start)


@dataclass(slots=True)
class CopyCall:
    """Copy the first ``tokens[i]`` slots of page ``source[i]`` to page ``target[i]`` in every layer, tags included.

    ``kv`` is ``[layers, 2, pages, page_size, kv_heads, head_dim]``; the others are int32 ``[copies]``. No target is a
    source of the same call. ``tokens`` 0 makes an entry idle; a page's size is the most.
    """

    kv: torch.Tensor
    cells: Cells
    source: torch.Tensor
    target: torch.Tensor
    tokens: torch.Tensor

    def __post_init__(self) -> None:
        require_dense(source=self.source, target=self.target, tokens=self.tokens)


@dataclass(slots=True)
class ConvertCall:
    """Rebase and convert a block table: ``out[r, j] = table[r, base[r] + j] * scale`` below the row's extent, else -1.

    ``extent`` int32 ``[rows]`` is written too: one past the last backed entry, or the count of backed entries, by
    ``extent_rule``. An unbacked entry below the extent becomes -1 (guard) or 0 (physical page 0), by ``unbacked``.
    ``scale`` converts page ids to units of another kernel library (1: page ids).
    """

    table: torch.Tensor
    base: torch.Tensor
    out: torch.Tensor
    extent: torch.Tensor
    scale: int = 1
    extent_rule: Extent = Extent.LAST_BACKED
    unbacked: Unbacked = Unbacked.GUARD


class Reason(enum.IntEnum):
    """Why the check refuses a slot, in the order in which it looks; the index of a count in the verdict."""

    UNBACKED = 0  # no page behind the position
    TENANCY = 1  # the page was freed since the row claimed it
    STATE = 2  # the slot's state is not legal for this reader
    TAG = 3  # the slot holds other content than the tokens say


@dataclass(slots=True)
class Verdict:
    """Findings of checks: int32 ``counts`` ``[4]`` by :class:`Reason`, and int64 ``first`` ``[1]``.

    ``first`` is the smallest ``row << 32 | position`` refused, ``NOTHING`` if none was.
    """

    counts: torch.Tensor
    first: torch.Tensor

    NOTHING = (1 << 63) - 1

    @classmethod
    def clean(cls, device: torch.device | str) -> Verdict:
        """A verdict without findings."""
        return cls(torch.zeros(4, dtype=torch.int32, device=device), torch.full((1,), cls.NOTHING, device=device))

    def clear(self) -> None:
        """Forget the findings, in place."""
        self.counts.zero_()
        self.first.fill_(self.NOTHING)

    def found(self) -> tuple[int, int] | None:
        """Row and position of the first refused slot; waits for the device."""
        place = int(self.first)
        return None if place == self.NOTHING else (place >> 32, place & 0xFFFF_FFFF)


@dataclass(slots=True)
class CheckCall:
    """Compare the slots that rows are about to read with what their tokens say.

    Row ``r`` is checked on positions ``[start[r], end[r])``. ``expected_tag`` is int64 ``[rows, tokens]`` and
    ``expected_generation`` int32 ``[rows, columns]``, both at absolute positions and blocks; ``generation`` is int32
    ``[pages]``. ``legal`` masks the legal states (bit ``1 << state``). ``from_origin`` promises that every base and
    every ``start`` is 0 and shortens the kernel's chain of loads. ``lag`` int32 ``[rows]``: the content of a row's
    cells is that of the tokens so far behind them (where a drafter's slot trails its request).
    """

    cells: Cells
    generation: torch.Tensor
    expected_tag: torch.Tensor
    expected_generation: torch.Tensor
    table: torch.Tensor
    base: torch.Tensor
    start: torch.Tensor
    end: torch.Tensor
    verdict: Verdict
    legal: int
    from_origin: bool = False
    lag: torch.Tensor | None = None

    def __post_init__(self) -> None:
        require_dense(base=self.base, start=self.start, end=self.end, lag=self.lag)


@dataclass(slots=True)
class WriteCall:
    """Judge cells that are about to be written: row slots and absolute positions, int64 ``[cells]`` each.

    Not ``given`` (bool ``[cells]``) is padding. ``owner`` is int64 ``[slots]``; ``tenant`` int64 and ``sealed`` int32
    are by page, from physical page 1 on: whose it is, and how many of its first tokens must not change. ``counts``
    int32 ``[3]``: cells without a page, on a page of somebody else, sealed; ``first`` as in :class:`Verdict`.
    """

    slot: torch.Tensor
    position: torch.Tensor
    given: torch.Tensor
    table: torch.Tensor
    owner: torch.Tensor
    tenant: torch.Tensor
    sealed: torch.Tensor
    counts: torch.Tensor
    first: torch.Tensor
    page_size: int

    def __post_init__(self) -> None:
        require_dense(slot=self.slot, position=self.position, given=self.given)


@dataclass(slots=True)
class ClaimCall:
    """Row slots ``slot``, int64 ``[n]``, are about to be read: what is new to them they hold from now on.

    ``seen_page`` and ``seen_generation`` int32 ``[slots, columns]``; an entry is new if it is not the page seen last,
    or if its page is granted to the row's own owner. ``generation`` int32 ``[pages]`` is by physical page, ``owner``
    and ``tenant`` as in :class:`WriteCall`. No slot may occur twice with another table.
    """

    slot: torch.Tensor
    table: torch.Tensor
    owner: torch.Tensor
    tenant: torch.Tensor
    generation: torch.Tensor
    seen_page: torch.Tensor
    seen_generation: torch.Tensor

    def __post_init__(self) -> None:
        require_dense(slot=self.slot)


class SlotOp(enum.IntEnum):
    """What happens to a drafter slot; a context is the absolute interval ``[base * page_size, length)``.

    ``value`` is a count of tokens (ADVANCE) or an absolute position. Source: semantics of DFlash and DSpark slots.
    """

    IDLE = 0
    ADVANCE = 1  # length += value
    PLACE = 2  # base 0, length = value: the prefix is valid here
    SEED_PAGE = 3  # base = value // page, length on that boundary
    SEED_POSITION = 4  # base = value / page rounded up, length = value
    HIDE = 5  # base = value // page, length = value: the prefix is hidden
    PARK = 6  # the base is kept at ``place``, the slot becomes empty
    RESUME = 7  # the base comes back from ``place``, length = value; value 0 is a new request: base 0
    SNAPSHOT = 8  # length and base are saved
    ROLLBACK = 9  # length and base are restored


@dataclass(slots=True)
class Slots:
    """Drafter slots on the device, int32 ``[slots]`` each but ``parked`` ``[places]``; lengths tokens, bases pages."""

    length: torch.Tensor
    base: torch.Tensor
    saved_length: torch.Tensor
    saved_base: torch.Tensor
    parked: torch.Tensor

    @classmethod
    def empty(cls, slots: int, places: int, device: torch.device | str) -> Slots:
        """``slots`` empty slots and ``places`` places for the bases of parked requests."""
        columns = torch.zeros((4, slots), dtype=torch.int32, device=device)
        parked = torch.zeros(places, dtype=torch.int32, device=device)
        return cls(columns[0], columns[1], columns[2], columns[3], parked)


@dataclass(slots=True)
class SlotCall:
    """Apply ``op[i]`` with ``value[i]`` and ``place[i]`` to slot ``slot[i]``; int32 ``[updates]`` each.

    No slot and no place occurs twice in one call. Lengths are clamped to ``longest`` tokens.
    """

    slots: Slots
    op: torch.Tensor
    slot: torch.Tensor
    value: torch.Tensor
    place: torch.Tensor
    page_size: int
    longest: int
