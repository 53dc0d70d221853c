"""A build with rules of the user's own: ``BUILD+RULE=module:Attribute[+RULE2=module:Attribute2]``.

The module is one of the user's, from the current directory or ``sys.path``; nothing in this project has to know it.
The attribute is a class that takes no arguments, or what is to answer as it stands: an instance, a member of an enum.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from difflib import get_close_matches
from types import ModuleType
from typing import Any, get_args, get_type_hints

from model.builds import Build
from model.rules.base import Rules
from scenarios.errors import quote

SEPARATOR = "+"
_FORM = "RULE=module:Class"
IMPORTED: set[str] = set()  # modules of the user's that this process took rules from


class RuleError(ValueError):
    """A rule of the user's that cannot be used; ``str()`` says what was expected and what was found."""


def base_of(text: str) -> str:
    """Name of the build whose rules are replaced, and the text itself where none are."""
    return text.partition(SEPARATOR)[0]


def is_own(text: str) -> bool:
    """Whether ``text`` names a build with rules of the user's: nobody has promised anything about it."""
    return SEPARATOR in text


def with_rules(text: str, base: Build) -> Build:
    """``base`` with the rules that ``text`` names behind the first ``+``; its name is the text. Raises RuleError."""
    changes: dict[str, Any] = {}
    for part in text.split(SEPARATOR)[1:]:
        rule, equals, place = part.partition("=")
        module, colon, attribute = place.partition(":")
        if not (rule and equals and module and colon and attribute):
            raise RuleError(f"expected {_FORM}, found {quote(part)}")
        known = [entry.name for entry in fields(Rules)]
        if rule not in known:
            near = get_close_matches(rule, known, n=1, cutoff=0.5)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise RuleError(f"expected the name of a rule{hint}, found {quote(rule)}; kvtwin builds lists the rules")
        if rule in changes:
            raise RuleError(f"expected each rule once, found {rule} twice")
        changes[rule] = _answer(rule, place, _attribute(_module(module, place), attribute, place))
    summary = f"{base.name} with {' and '.join(text.split(SEPARATOR)[1:])}"
    return Build(text, replace(base.rules, **changes), summary, "rules of your own", correct=False)


def _module(name: str, place: str) -> ModuleType:
    """The user's module. What it raises while it is imported is told with the line in it."""
    try:
        with _current_directory_first():
            importlib.invalidate_caches()
            module = importlib.import_module(name)
            IMPORTED.add(name)
            return module
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            looked = "in the current directory or on sys.path"
            raise RuleError(f"expected a module for {place}, found none of the name {error.name} {looked}") from error
        raise RuleError(f"expected {name} to be imported, found: {_told(error)}") from error
    except (Exception, SystemExit) as error:
        raise RuleError(f"expected {name} to be imported, found: {_told(error)}") from error


@contextmanager
def _current_directory_first() -> Iterator[None]:
    """Look in the current directory first for one import, and last for those that a rule does while it runs."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
        if here not in sys.path:
            sys.path.append(here)


def _attribute(module: ModuleType, path: str, place: str) -> Any:
    found: Any = module
    for name in path.split("."):
        if not hasattr(found, name):
            near = get_close_matches(name, [known for known in dir(found) if known[0] != "_"], n=1, cutoff=0.5)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise RuleError(f"expected {place} to exist{hint}, found no {name!r} in {module.__name__}")
        found = getattr(found, name)
    return found


def _answer(rule: str, place: str, found: Any) -> Any:
    """``found``, or an instance of it where it is a class, once it has all that is asked of ``rule``."""
    wanted = _protocol(rule)
    if issubclass(wanted, enum.Enum):  # the device carries such a rule out: it knows its members and no others
        if not isinstance(found, wanted):
            members = ", ".join(f"{wanted.__name__}.{member.name}" for member in wanted)
            raise RuleError(f"expected {place} to be one of {members} (the device carries {rule} out), found {found!r}")
        return found
    if isinstance(found, type):
        try:
            found = found()
        except Exception as error:
            raise RuleError(f"expected {place} to be made without arguments, found: {_told(error)}") from error
    missing = [name for name in _members(wanted) if not hasattr(found, name)]
    if missing:
        asked = ", ".join(_members(wanted))
        raise RuleError(f"expected {place} to have {asked} (asked of the rule {rule}), found no {', '.join(missing)}")
    if not isinstance(found.name, str) or not found.name:
        raise RuleError(f"expected the name of {place} to be text, found {quote(found.name)}")
    for name in _members(wanted):
        _check_call(getattr(wanted, name, None), getattr(found, name), f"{place}.{name}")
    return found


def _protocol(rule: str) -> type:
    """What an answer to ``rule`` has to look like: a protocol, an enum, or the class of the answers that there are."""
    hint = get_type_hints(Rules)[rule]
    return get_args(hint)[0] if get_args(hint) else hint


def _members(wanted: type) -> list[str]:
    """Public fields, properties and methods of ``wanted``, ``name`` first."""
    names: dict[str, None] = {"name": None}
    for owner in reversed(wanted.__mro__[:-1]):
        if owner.__module__ != "typing":
            names |= dict.fromkeys((*getattr(owner, "__annotations__", {}), *vars(owner)))
    return [name for name in names if not name.startswith("_")]


def _check_call(asked: Any, own: Any, place: str) -> None:
    """Refuse a method that cannot be called as the model calls it."""
    if not inspect.isfunction(asked):
        return
    names = list(inspect.signature(asked).parameters)[1:]
    shown = f"{place}({', '.join(names)})"
    if not callable(own):
        raise RuleError(f"expected {shown}, found {quote(own)}")
    try:
        inspect.signature(own).bind(*names)
    except TypeError as error:
        raise RuleError(f"expected {shown}, found {place}{inspect.signature(own)}: {error}") from error


def _told(error: BaseException) -> str:
    """An error as one line, with the innermost line of code where one is known."""
    line = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    if isinstance(error, SyntaxError) or not frames or frames[-1].filename == __file__:
        return line
    return f"{line} ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})"
