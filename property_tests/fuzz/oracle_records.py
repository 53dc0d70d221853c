"""What the naive oracle is told: a world, a claim rule and a history of plain records.

A *position* is an absolute token position of a request, from 0; ranges are half open. A *block* is the positions
[block * B, block * B + B), a *page* is a physical page of one group, a *tenancy* is one life of that page, from the
allocation to the return (any number that tells lives apart). A *cell* is one position in one page. ``tokens`` and
``prompt`` are token ids from position 0 on.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

Owner = Hashable
Policy = Literal["all_reusable", "per_request", "per_conversation"]


@dataclass(frozen=True)
class Group:
    """Layers that share pages. ``window`` W and ``sinks`` S are in tokens; W None is full attention.

    ``lookahead`` D: the cell at i is a function of (scope, tokens[0 .. i + D]); 0 for a target. ``stored`` is the
    window that is retained, in tokens, where that is more than W (trailing page, lookahead); claims never ask for it.
    """

    name: str
    side: Literal["target", "draft"]
    window: int | None = None
    sinks: int = 0
    lookahead: int = 0
    stored: int | None = None


MOST_CHILDREN = 32


@dataclass(frozen=True)
class World:
    """``page`` is B, for all groups. ``one_tree``: target and draft share a prefix tree (unified layout); else each has
    its own. ``shifted``: pages are keyed on the stream shifted by D; else on raw tokens, and each match gives D back.
    ``children``: siblings among which a match still may end inside a page are fewer than that.
    """

    page: int
    groups: tuple[Group, ...]
    one_tree: bool = False
    shifted: bool = False
    children: int = MOST_CHILDREN

    @property
    def lookahead(self) -> int:
        """The largest D of any group; every match of every group is trimmed by it."""
        return max(group.lookahead for group in self.groups)

    def side(self, side: str) -> tuple[Group, ...]:
        """The groups of "target" or "draft"."""
        return tuple(group for group in self.groups if group.side == side)


@dataclass(frozen=True)
class Rule:
    """What a claim rule asks of the draft groups, and what it may give away.

    ``draft``: "ignored" (nothing is asked), "required" (draft pages must serve the claim) or "window" (they serve it,
    or they are declined and the window is computed again by a fresh mirror). ``boundary``: draft pages serve only
    claims that end on a page. ``branch``: a fresh mirror may start one window below the shared prefix. ``draft_first``:
    any nonzero draft match wins over a deeper fresh claim. ``drop``: whole pages only, and the last one matched is
    given back. ``tail``: T of recompute_tail in tokens (negative: nothing is reused).
    """

    draft: Literal["ignored", "required", "window"]
    boundary: bool = False
    branch: bool = False
    draft_first: bool = False
    drop: bool = False
    tail: int = 0


RULES = {
    "target-only": Rule("ignored"),
    "recompute-tail": Rule("ignored", tail=4),  # dataclasses.replace gives another tail
    "joint-minimum": Rule("required"),
    "windowed-pair": Rule("window", branch=True),
    "windowed-pair-nobranch": Rule("window"),
    "windowed-pair-draft-first": Rule("window", branch=True, draft_first=True),
    "optional-at-page-boundary": Rule("window", boundary=True),
    "optional-at-any-endpoint": Rule("window"),
    "optional-without-window": Rule("ignored"),
    "drop-last-page": Rule("required", boundary=True, drop=True),
}


@dataclass(frozen=True)
class Granted:
    """The entry of ``owner``'s table for ``block`` shows ``page`` from now on: fresh, copied, or shared by a claim."""

    owner: Owner
    group: str
    block: int
    page: int
    tenancy: int


@dataclass(frozen=True)
class Freed:
    """``owner`` no longer holds ``page``: released behind its window, rewound, given up or finished."""

    owner: Owner
    group: str
    page: int
    tenancy: int


@dataclass(frozen=True)
class Claimed:
    """An admission of ``owner``: [0, depth) of ``prompt`` is not computed again, the next query is at ``depth``.

    ``prompt`` is the whole context to compute (after a preemption with what had been generated). ``draft`` is the depth
    up to which draft pages are reused: ``depth``, or 0 where they are declined or nobody asked for them. ``keyed`` is
    how many tokens of ``prompt`` its keys span: what had been generated is none of them. ``None``: all.
    """

    owner: Owner
    prompt: tuple[int, ...]
    scope: Hashable
    depth: int
    draft: int
    keyed: int | None = None


@dataclass(frozen=True)
class Advanced:
    """``owner``'s context is computed up to ``position`` (exclusive), the end of a chunk, in all groups."""

    owner: Owner
    position: int


@dataclass(frozen=True)
class Published:
    """``owner`` put ``page`` into the index: it holds the positions [first, first + cells) of one block.

    ``tokens`` are those that the content was computed from: tokens[: first + cells] at least, D more for a draft group
    (with shifted keys for every group, since the key spans them). A cell whose lookahead lies beyond the end of
    ``tokens`` counts as unknown content. The same page may be published again with more cells.
    """

    owner: Owner
    group: str
    page: int
    tenancy: int
    first: int
    cells: int
    tokens: tuple[int, ...]
    scope: Hashable


@dataclass(frozen=True)
class Dropped:
    """The index no longer leads to ``page``: evicted, unlinked with its subtree, or replaced by a longer one."""

    group: str
    page: int
    tenancy: int


Record = Granted | Freed | Claimed | Advanced | Published | Dropped
History = Sequence[Record]
