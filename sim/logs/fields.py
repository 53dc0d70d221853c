"""Fields of events as they come: checked for their types only, so that a log of a million events stays fast.

pydantic models would say the same in fewer lines, but take several times as long as the rest of the check.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from scenarios.errors import InputError, quote
from sim.logs.findings import Place


class Fields:
    """Typed access to values of the event at ``place``; a wrong type is an :class:`InputError` with file and line."""

    def __init__(self, path: Path, place: Place, counts: Counter[str]) -> None:
        self.path, self.place, self.counts = path, place, counts

    def fail(self, name: str, wanted: str, value: Any) -> NoReturn:
        """Raise the error about a field."""
        raise InputError(str(self.path), self.place.line, name, f"expected {wanted}, found {quote(value)}")

    def object(self, name: str, value: Any) -> dict[str, Any]:
        """An object."""
        if type(value) is not dict:
            self.fail(name, "an object", value)
        return value

    def list(self, name: str, value: Any) -> list[Any]:
        """A list."""
        if type(value) is not list:
            self.fail(name, "a list", value)
        return value

    def integer(self, name: str, value: Any, least: int = 0) -> int:
        """An integer of at least ``least``."""
        if type(value) is not int or value < least:
            self.fail(name, f"an integer of at least {least}", value)
        return value

    def whole(self, name: str, value: Any) -> int:
        """An integer, which may be negative."""
        if type(value) is not int:
            self.fail(name, "an integer", value)
        return value

    def integers(self, name: str, value: Any) -> list[int]:
        """A list of integers of at least 0."""
        for one in self.list(name, value):
            self.integer(name, one)
        return value

    def name(self, name: str, value: Any) -> int | str:
        """A hash: an integer or a string."""
        if type(value) is not int and (type(value) is not str or not value):
            self.fail(name, "a hash (integer or string)", value)
        return value

    def names(self, name: str, value: Any) -> list[int | str]:
        """A list of hashes."""
        for one in self.list(name, value):
            if type(one) is not int:
                self.name(name, one)
        return value

    def unknown(self, value: dict[str, Any], known: Iterable[str], where: str) -> None:
        """Count the fields that nobody here has heard of."""
        for name in value.keys() - set(known):
            self.counts[f"field {where}{name}"] += 1
