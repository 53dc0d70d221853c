"""Rules *layout*, *retention*, *pairing*, *mirror* and *index*: how many managers there are and what they keep."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from model.config import Drafter, EngineConfig
from model.drafter import DrafterKind, View
from model.geometry import Lifecycle, ReusePolicy


class Shape(enum.Enum):
    """How target and drafter layers are laid out."""

    SEPARATE = "two managers, the drafter's unpaired"
    PAIRED = "two managers under one cursor"
    UNIFIED = "one manager that hosts both"


class Edge(enum.Enum):
    """The position whose query a window is kept for while rows are in flight."""

    SETTLED = "the next one that is not settled"
    OPTIMISTIC = "the next one if every draft in flight is accepted"
    HIGHEST = "the last one of the verify row itself"


@dataclass(frozen=True, slots=True)
class Retention:
    """What a windowed drafter pool keeps below its window: ``pages`` trailing pages, the lookahead, ``tokens`` more.

    ``edge``: the position that the window counts from when a row is dispatched.
    """

    name: str = "window"
    pages: int = 0
    lookahead: bool = True
    tokens: int = 0
    edge: Edge = Edge.SETTLED

    def released_at(self, settled: int, width: int, rows: int) -> int:
        """Position whose window stays: ``rows`` rows of ``width`` tokens are in flight, the newest included."""
        if self.edge is Edge.SETTLED:
            return settled
        return settled + width * rows - (1 if self.edge is Edge.HIGHEST else width)

    def trail(self, lifecycle: Lifecycle, kind: DrafterKind, page_size: int) -> int:
        """Tokens kept below the window."""
        pages = self.pages * page_size if kind.slot else 0
        return pages + self.tokens + (lifecycle.lookahead if self.lookahead else 0)


@dataclass(frozen=True, slots=True)
class Pairing:
    """Whether a drafter pool may pair: its lookahead is known and it has a pool that the drafter reads.

    ``always`` (wrong): whatever has a pool pairs. ``keys_unpaired`` (wrong): the keys see the drafter's lookahead
    although nobody pairs.
    """

    name: str = "by-capability"
    always: bool = False
    keys_unpaired: bool = False

    def allows(self, kind: DrafterKind, drafter: Drafter, page_size: int) -> bool:
        """Whether a build with this answer pairs ``drafter`` at pages of ``page_size`` tokens."""
        return kind.has_pool if self.always else kind.may_pair(drafter.chain, page_size)


@dataclass(frozen=True, slots=True)
class Mirror:
    """How an unpaired mirror is sized. ``history``: a chunk's start is history, so that a windowed pool drops what
    lies below. ``whole_prompt``: the legacy view of a separate draft engine, at position 0 with the whole prompt as
    one chunk."""

    name: str = "target-view-history"
    history: bool = True
    whole_prompt: bool = False

    def hint(self, kind: DrafterKind, start: int, covered: int) -> int:
        """History for a chunk from ``start`` when the mirror covers ``[0, covered)``; 0 where none is known."""
        if not self.history or kind.view is View.DRAFT:
            return 0  # the draft view of MTP and Eagle keeps its own cursor and tells no history
        return start if covered >= start or kind.slot else 0


@dataclass(frozen=True, slots=True)
class Index:
    """What becomes of a page's key. ``exact``: a page that moves to a longer node keeps the coverage it has.
    ``supersedes``: the shorter node's key goes when its page moves. ``keeps``: a released page stays cached under its
    key, and ``joins`` the evictor's rings. ``counts``: a page that leaves the index is free only if nobody holds it.
    ``whole`` (wrong): a page that covers part of its block passes for one that covers all of it.
    """

    name: str = "page-coverage"
    exact: bool = True
    supersedes: bool = True
    keeps: bool = True
    joins: bool = True
    counts: bool = True
    whole: bool = False

    def adopted(self, coverage: int, node_length: int) -> int:
        """Coverage of a replaced sibling's page at the node that takes its place."""
        return coverage if self.exact else node_length


@dataclass(frozen=True, slots=True)
class Layout:
    """The shape of a build. In a unified one ``draft_required`` lets the drafter's group constrain every match,
    ``shares_pool`` takes its pages from the target's pool, and ``fused`` puts its bytes into the target's page: no
    window of its own and as many pages as the target has."""

    name: str
    shape: Shape
    draft_required: bool = False
    shares_pool: bool = False
    fused: bool = False

    def draft_lifecycles(
        self, config: EngineConfig, kind: DrafterKind, retention: Retention, unified: bool
    ) -> tuple[Lifecycle, ...]:
        """The drafter's lifecycles as this layout retains them."""
        policy = ReusePolicy.OPTIONAL if unified and not self.draft_required else ReusePolicy.REQUIRED
        page = config.limits.page_size
        span = kind.tag_span(config.drafter.chain)
        lives = []
        for configured in config.draft:
            life = replace(configured, policy=policy, lookahead=span)
            if unified and self.shares_pool:
                life = replace(life, pool=config.target[0].pool)
            if unified and self.fused:
                life = replace(life, window=None, sinks=0)
            lives.append(replace(life, trail=retention.trail(life, kind, page)))
        return tuple(lives)
