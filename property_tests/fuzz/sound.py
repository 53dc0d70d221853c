"""The correct build that a wrong rule was put into: what breaks there, too, says nothing about the rule."""

from __future__ import annotations

from model.builds import BUILDS, Build
from model.faults import FAULTS
from scenarios.names import FAULT_PREFIX
from scenarios.user_rules import base_of


def sound_base(build: Build) -> Build | None:
    """The correct build some of whose rules ``build`` replaces; ``None`` where there is none."""
    name = base_of(build.name)
    fault = FAULTS.get(name.removeprefix(FAULT_PREFIX)) if name.startswith(FAULT_PREFIX) else None
    base = BUILDS.get(fault.base if fault is not None else name)
    return base if base is not None and base.correct and base.rules != build.rules else None
