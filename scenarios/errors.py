"""What bad input gets: one line that says where, which field, what was expected and what was found."""

from __future__ import annotations

_SHOWN = 60  # characters of a value that a line quotes


def quote(value: object) -> str:
    """``value`` as one short line: long values are cut, line breaks are escaped."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def reason_of(error: OSError | UnicodeDecodeError) -> str:
    """Why a file could not be read, without the number and the path that the system's own text has."""
    if isinstance(error, UnicodeDecodeError):
        return "bytes that are not UTF-8 text"
    return (error.strerror or str(error)).lower()


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


class InputError(ValueError):
    """Input that cannot be used. ``str()`` is one line: ``FILE:LINE: field: expected ..., found ...``.

    ``line`` counts from 1 and is 0 where a file as a whole is meant; ``field`` may be empty. What cannot be printed,
    such as a line break in the name of a file or of what a file holds, is escaped.
    """

    def __init__(self, file: str, line: int, field: str, problem: str) -> None:
        self.file = file
        self.line = line
        self.field = field
        self.problem = " ".join(problem.split())
        super().__init__(str(self))

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return _printable(": ".join(part for part in (place, self.field, self.problem) if part))

    def __reduce__(self) -> tuple[type[InputError], tuple[str, int, str, str]]:
        return (type(self), (self.file, self.line, self.field, self.problem))


class FieldError(ValueError):
    """A rule about a field of a scenario that is broken; the loader adds the file and the line.

    ``location`` is the path of keys and list positions from the top of the file.
    """

    def __init__(self, location: tuple[str | int, ...], problem: str) -> None:
        self.location = location
        self.problem = problem
        super().__init__(f"{field_name(location)}: {problem}")


def field_name(location: tuple[str | int, ...]) -> str:
    """``location`` as people write it: ``workload.sessions[2].turns[0].output``."""
    name = ""
    for part in location:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return name
