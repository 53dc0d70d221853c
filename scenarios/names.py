"""Names of builds and of laws in a scenario, checked against the model."""

from __future__ import annotations

from model.builds import BUILDS, Build
from model.faults import FAULTS, resolve_build
from model.invariants import INVARIANTS
from scenarios.engine_build import unknown
from scenarios.errors import FieldError

_FAULT = "fault:"


def find_build(name: str) -> Build:
    """The build of a name or of ``fault:NAME``; ``KeyError`` for an unknown one."""
    return resolve_build(name)


def check_build(name: str, location: tuple[str | int, ...]) -> None:
    """Refuse a name that is neither a build's nor ``fault:`` and a fault's."""
    if name.startswith(_FAULT):
        fault = name.removeprefix(_FAULT)
        if fault not in FAULTS:
            raise FieldError(location, unknown("a fault", fault, FAULTS))
    elif name not in BUILDS:
        raise FieldError(location, unknown("a build", name, BUILDS))


def check_law(code: str, location: tuple[str | int, ...]) -> None:
    """Refuse a code that no law has."""
    if code not in INVARIANTS:
        raise FieldError(location, unknown("a law", code, INVARIANTS))
