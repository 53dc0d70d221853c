"""Rule *prune*: how a matched path becomes an endpoint that every REQUIRED lifecycle covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from model.manager import Manager
    from model.rules.keys import KeyView
    from model.tree import Match


class PruneRule(Protocol):
    """Turns a match into a claimable endpoint."""

    @property
    def name(self) -> str:
        """Name of the answer."""
        ...

    def endpoint(self, manager: Manager, match: Match, trimmed: int, columns: Sequence[int], keys: KeyView) -> int:
        """Endpoint of ``match`` given its length after the lookahead trim."""
        ...


@dataclass(frozen=True, slots=True)
class TrimThenPrune:
    """Trim by the lookahead first: which pages are needed depends on the final endpoint."""

    name: str = "trim-then-prune"

    def endpoint(self, manager: Manager, match: Match, trimmed: int, columns: Sequence[int], keys: KeyView) -> int:
        return manager.deepest(match, trimmed, columns, keys)


@dataclass(frozen=True, slots=True)
class PruneThenTrim:
    """Wrong: windows are checked at an endpoint that is then moved down by the lookahead."""

    name: str = "prune-then-trim"

    def endpoint(self, manager: Manager, match: Match, trimmed: int, columns: Sequence[int], keys: KeyView) -> int:
        windowed = [column for column in columns if manager.lifecycles[column].window is not None]
        rest = [column for column in columns if column not in windowed]
        end = keys.trim(manager.deepest(match, match.tokens, windowed, keys))
        return manager.deepest(match, end, rest, keys)


@dataclass(frozen=True, slots=True)
class LastManagerWins:
    """Wrong: each lifecycle prunes for itself, windows first, and the one that is asked last decides."""

    name: str = "last-manager-wins"

    def endpoint(self, manager: Manager, match: Match, trimmed: int, columns: Sequence[int], keys: KeyView) -> int:
        end = trimmed
        for column in reversed(columns):
            end = manager.deepest(match, trimmed, (column,), keys)
        return end
