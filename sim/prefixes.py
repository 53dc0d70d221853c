"""What a prompt shares with those that were sent before it: the hit that an endless cache would give it.

Prompts are runs of named segments, so that a shared prefix is found segment by segment and no token is made.
"""

from __future__ import annotations

from collections.abc import Sequence

from model.config import Scope
from model.tokens import Segment


class _Node:
    """Where a prompt stands after some segments: what others went on with."""

    __slots__ = ("lengths", "literals", "next")

    def __init__(self) -> None:
        self.next: dict[Segment, _Node] = {}
        self.lengths: dict[tuple[int, int], int] = {}  # (seed, first) -> the longest run of that stream
        self.literals: dict[int, list[tuple[int, ...]]] = {}  # first id -> runs given id by id


class SentPrompts:
    """The prompts that were sent so far, by scope. What a request generates is no part of it, since it is not a prompt
    until the next turn sends it."""

    def __init__(self) -> None:
        self._roots: dict[Scope, _Node] = {}

    def shared(self, prompt: Sequence[Segment], scope: Scope) -> int:
        """Tokens at the front of ``prompt`` that an earlier prompt of the same scope began with; then remember it."""
        node = self._roots.setdefault(scope, _Node())
        shared, known = 0, True
        for segment in prompt:
            if not segment.length:
                continue
            after = node.next.get(segment)
            if known:
                shared += segment.length if after is not None else _common(node, segment)
                known = after is not None
            if after is None:
                after = node.next[segment] = _Node()
                _note(node, segment)
            node = after
        return shared


def _common(node: _Node, segment: Segment) -> int:
    """Tokens at the front of ``segment`` that another segment at this place began with."""
    if not segment.literal:
        return min(segment.length, node.lengths.get((segment.seed, segment.first), 0))
    return max((_alike(segment.literal, other) for other in node.literals.get(segment.literal[0], ())), default=0)


def _alike(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two runs have in common at their front."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))


def _note(node: _Node, segment: Segment) -> None:
    if segment.literal:
        node.literals.setdefault(segment.literal[0], []).append(segment.literal)
    else:
        key = (segment.seed, segment.first)
        node.lengths[key] = max(segment.length, node.lengths.get(key, 0))
