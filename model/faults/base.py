"""A named wrong rule: what it replaces, in which build, and the law that has to notice first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from model.builds import BUILDS, Build


@dataclass(frozen=True, slots=True)
class Fault:
    """One wrong rule. ``fires``: the code that must come first, then those that tend to follow it."""

    name: str
    changes: tuple[tuple[str, Any], ...]
    base: str
    sources: tuple[str, ...]
    fires: tuple[str, ...]
    scenario: str
    looks_like: str

    @property
    def rule(self) -> str:
        """Names of the rules that it replaces."""
        return ", ".join(name for name, _ in self.changes)

    @property
    def build(self) -> Build:
        """The base build with the rule replaced."""
        base = BUILDS[self.base]
        rules = replace(base.rules, **dict(self.changes))
        return Build(f"fault:{self.name}", rules, self.looks_like, ", ".join(self.sources), False, self.fires)


def fault(
    name: str,
    changes: dict[str, Any],
    base: str,
    sources: tuple[str, ...],
    fires: tuple[str, ...],
    scenario: str,
    looks_like: str,
) -> Fault:
    """An entry of the catalogue; ``changes`` maps the name of a rule to its wrong answer."""
    return Fault(name, tuple(changes.items()), base, sources, fires, scenario, looks_like)
