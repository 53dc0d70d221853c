"""Names of builds and of laws in a scenario, checked against the model."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from model.builds import BUILDS, Build
from model.faults import FAULTS, resolve_build
from model.invariants import INVARIANTS
from scenarios.engine_build import unknown
from scenarios.errors import FieldError, quote
from scenarios.user_rules import RuleError, base_of, is_own, with_rules

FAULT_PREFIX = "fault:"


def find_build(name: str) -> Build:
    """The build of a name or of ``fault:NAME``, perhaps with rules of the user's own.

    ``KeyError`` for an unknown one, ``RuleError`` for a rule that cannot be used.
    """
    base = resolve_build(base_of(name))
    return with_rules(name, base) if is_own(name) else base


def check_build(name: str, location: tuple[str | int, ...]) -> None:
    """Refuse a name that is neither a build's nor ``fault:`` and a fault's, and rules that cannot be used."""
    base = base_of(name)
    if base.startswith(FAULT_PREFIX):
        fault = base.removeprefix(FAULT_PREFIX)
        if fault not in FAULTS:
            raise FieldError(location, unknown("a fault", fault, FAULTS))
    elif base not in BUILDS:
        raise FieldError(location, unknown("a build", base, BUILDS))
    try:
        find_build(name)
    except RuleError as error:
        raise FieldError(location, str(error)) from error


def check_law(code: str, location: tuple[str | int, ...]) -> None:
    """Refuse a code that no law has."""
    if code not in INVARIANTS:
        raise FieldError(location, unknown("a law", code, INVARIANTS))


def unknown_name(what: str, name: str, known: Iterable[str], listed_by: str) -> str:
    """The problem with a name that is not ``known``: the nearest one, and the command that lists them all."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"expected {what}{hint}, found {quote(name)}; {listed_by} lists the names"
