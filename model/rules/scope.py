"""Rule *scope*: which fields beside the tokens belong to a page's key."""

from __future__ import annotations

from dataclasses import dataclass

from model.config import Scope


@dataclass(frozen=True, slots=True)
class ScopeKey:
    """``typed``: an adapter and a salt of one name are two fields. ``target_weights``, ``draft_weights``: which
    version of the weights computed the content belongs to the key."""

    name: str = "typed"
    typed: bool = True
    target_weights: bool = True
    draft_weights: bool = True

    def key(self, scope: Scope) -> Scope:
        """The scope as the keys see it."""
        adapter, salt = (scope.adapter, scope.salt) if self.typed else ("", scope.adapter + scope.salt)
        weights = (scope.target_weights if self.target_weights else 0, scope.draft_weights if self.draft_weights else 0)
        return Scope(adapter, salt, *weights)
