"""From text to a build: its name, ``fault:NAME``, or either with rules of the user's own."""

from __future__ import annotations

from collections.abc import Iterable

from model.builds import BUILDS, Build
from model.faults import FAULTS
from scenarios.errors import InputError
from scenarios.names import FAULT_PREFIX, find_build, unknown_name
from scenarios.user_rules import SEPARATOR, RuleError, base_of


def find(text: str) -> Build:
    """The build that ``text`` names: ``NAME``, ``fault:NAME``, or one with ``+RULE=module:Class`` behind it.

    Raises InputError, in one line, for an unknown name and for a rule that cannot be used.
    """
    try:
        return find_build(text)
    except RuleError as error:
        raise InputError("build", 0, "", str(error)) from error
    except KeyError as error:
        name = base_of(text)
        if name.startswith(FAULT_PREFIX):
            problem = unknown_name("a fault", name.removeprefix(FAULT_PREFIX), FAULTS, "kvtwin faults")
        else:
            problem = unknown_name("a build or fault:NAME", name, BUILDS, "kvtwin builds")
        raise InputError("build", 0, "", problem) from error


def text_of(build: str, rules: Iterable[str]) -> str:
    """``build`` with each ``RULE=module:Class`` of ``rules``: what :func:`find` reads."""
    return SEPARATOR.join((build, *rules))
