"""Named wrong rules: each breaks one answer of a correct build and names the law that has to notice first."""

from __future__ import annotations

from model.builds import BUILDS, Build
from model.faults import budget, claims, copies, device, growth, index, keys, pair, scheduling, scope, windows, workers
from model.faults.base import Fault

__all__ = ["FAULTS", "Fault", "resolve_build"]

_FAMILIES = (claims, keys, scope, index, scheduling, growth, windows, device, budget, workers, pair, copies)
FAULTS: dict[str, Fault] = {entry.name: entry for family in _FAMILIES for entry in family.ENTRIES}


def resolve_build(name: str) -> Build:
    """The build ``name``, or the faulty one ``fault:NAME``; raises ``KeyError`` with the names that exist."""
    if name in BUILDS:
        return BUILDS[name]
    fault = FAULTS.get(name.removeprefix("fault:")) if name.startswith("fault:") else None
    if fault is None:
        raise KeyError(f"no build {name!r}; builds: {', '.join(BUILDS)}, or fault:NAME")
    return fault.build
