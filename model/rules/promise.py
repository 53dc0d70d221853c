"""What a claim rule declares of its own depth: how much of what the memory holds it may leave, how deep it may go.

The declaration of a rule is about pages that are published and cached, whatever the prefix trees make of them. Slack
that no rule can avoid is the holdings' own: a partial block is promised only where one cached page could be meant.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from model.geometry import floor_to


class Promise(NamedTuple):
    """A claim lies in ``[least, most]`` tokens: below it reuse is lost, above it the rule does not allow it."""

    least: int
    most: int


class Holdings(Protocol):
    """What the memory holds of one prompt when it is claimed."""

    length: int  # context length L
    limit: int  # deepest endpoint that the keys can speak for: the last token is computed, D tokens are evidence
    page_size: int
    window: int | None  # drafter window W that a fresh mirror recomputes, None where there is no fresh mirror
    branches: bool  # whether the publication rule publishes a branch window
    drafts: bool  # whether there is a drafter with a pool
    span: int  # lookahead D of a paired drafter
    split: bool  # whether target and drafter have a manager each

    def target(self, end: int, sure: bool, boundary: bool = False) -> int:
        """Deepest endpoint up to ``end`` that the target's columns cover; ``sure``: whichever page a match takes."""
        ...

    def joint(self, end: int, sure: bool, boundary: bool = False) -> int:
        """Likewise for the columns of target and drafter."""
        ...

    def settles(self, end: int) -> bool:
        """Whether two managers that clip each other from ``end`` down agree within one more claim."""
        ...


def matches(held: Holdings, *edges: int) -> list[int]:
    """Lengths that the target's match may have, the ends of its range and the ``edges`` that lie in it."""
    low, high = held.target(held.limit, True), held.target(held.limit, False)
    return sorted({low, high, *(edge for edge in edges if low < edge < high)})


def target_promise(held: Holdings, full_pages: bool) -> Promise:
    """The target's match, on a page boundary with ``full_pages`` (slack of a page less one token)."""
    return Promise(held.target(held.limit, True, full_pages), held.target(held.limit, False))


def tail_promise(held: Holdings, tail: int) -> Promise:
    """The target's match, rewound so that ``tail`` tokens are computed; a rewound cursor is on a page.

    A negative ``tail`` gives the whole match up.
    """
    if tail < 0:
        return Promise(0, 0)
    rest = held.length - tail
    starts = [
        match if tail == 0 or match <= rest else floor_to(max(0, rest), held.page_size)
        for match in matches(held, rest, rest + 1)
    ]
    return Promise(held.target(min(starts), True), max(starts))


def joint_promise(held: Holdings) -> Promise:
    """What both pools cover; where windows make the two managers disagree twice, a claim of nothing is allowed."""
    deepest = held.joint(held.limit, False)
    return Promise(held.joint(held.limit, True) if held.settles(held.limit) else 0, deepest)


def dropped_promise(held: Holdings, drop: int) -> Promise:
    """Whole pages that every group covers once ``drop`` tokens fell off the match (slack ``drop``)."""
    page = held.page_size
    least = max(0, held.joint(held.limit, True, True) - drop)
    most = max(0, floor_to(held.target(held.limit, False), page) - drop)
    return Promise(held.joint(least, True, True), held.joint(most, False, True))


def windowed_promise(held: Holdings, boundary: bool, branch: bool, draft_first: bool) -> Promise:
    """The deeper of the covered endpoint and the fresh mirror (slack ``W + B - 1``; a branch adds ``L - P``).

    ``boundary``: a drafter window counts on a page boundary only (slack ``B - 1``). Where two managers do not agree on
    an endpoint, a claim of nothing is allowed. See semantics 9 for the limits.
    """
    covered, deepest = held.joint(held.limit, True, boundary), held.joint(held.limit, False)
    if covered and not held.settles(held.limit):
        covered = 0
    starts = [0]
    if held.window is not None:
        edge = held.length + 1 - held.window
        starts = [_fresh_start(held, match, edge, branch) for match in matches(held, edge, edge + 1)]
    # Two managers that look up a joint endpoint one after the other may find less there than both were said to cover.
    joint = (draft_first and deepest) or (held.split and deepest > covered)
    least = covered if joint else max(covered, held.target(min(starts), True))
    return Promise(least, max(deepest, *starts))


def _fresh_start(held: Holdings, match: int, edge: int, branch: bool) -> int:
    """Where a fresh mirror starts: the match, or one window before the end, or before a branch point to publish."""
    if match <= edge:
        return match
    if branch and match < held.length and held.window is not None:
        return floor_to(max(0, match - held.window), held.page_size)
    return floor_to(max(0, edge), held.page_size)
