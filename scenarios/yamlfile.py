"""YAML with line numbers: plain values for validation, and the line of every field for messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

from scenarios.errors import InputError, field_name, quote

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_DEEPEST = 40  # levels of nesting; a scenario needs about eight

Location = tuple[str | int, ...]


class Document:
    """One parsed YAML document: ``values`` as plain Python values, lines by location."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self._root: yaml.Node | None = None
        self.values: Any = None
        try:
            loader = _LOADER(text)
            try:
                self._root = loader.get_single_node()
                if self._root is not None:
                    self.values = _Builder(file, loader.construct_object).plain(self._root, ())
            finally:
                loader.dispose()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 0
            raise InputError(file, line, "", f"expected YAML, {_found(error.problem or error.context)}") from error
        except yaml.YAMLError as error:
            raise InputError(file, 0, "", f"expected YAML, {_found(str(error))}") from error

    def line(self, location: Location) -> int:
        """Line (from 1) of the field at ``location``, or of the nearest field above it that is in the file.

        Parts of a location that name no key of the file (the branches of a union) are passed over.
        """
        node, line = self._root, 0 if self._root is None else 1
        for part in location:
            step = _child(node, part)
            if step is None:
                continue
            line, node = step
        return line

    def known(self, location: Location) -> Location:
        """``location`` without the parts that name no key or position of the file."""
        if self._root is None:
            return location
        node, found = self._root, []
        for part in location:
            step = _child(node, part)
            if step is not None:
                node = step[1]
                found.append(part)
        return tuple(found)


class _Builder:
    """Turns nodes into plain values, and refuses what a scenario cannot mean."""

    def __init__(self, file: str, construct: Callable[[yaml.Node], Any]) -> None:
        self._file = file
        self._construct = construct
        self._built: dict[int, Any] = {}

    def plain(self, node: yaml.Node, location: Location) -> Any:
        """Plain value of ``node``. An alias gives the very value of its anchor, so nothing is built twice."""
        if len(location) > _DEEPEST:
            raise self._error(node, location[:4], f"expected at most {_DEEPEST} levels, found more")
        if id(node) in self._built:
            return self._built[id(node)]
        value: Any
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _PLAIN:
            raise self._error(node, location, f"expected plain YAML, found the tag {quote(node.tag)}")
        if isinstance(node, yaml.MappingNode):
            value = self._mapping(node, location)
        elif isinstance(node, yaml.SequenceNode):
            value = [self.plain(child, (*location, place)) for place, child in enumerate(node.value)]
        else:
            try:
                value = self._construct(node)
            except ValueError as error:  # a date that is none
                raise self._error(node, location, f"expected a value, found {quote(node.value)} ({error})") from error
            if not isinstance(value, str | int | float | bool | None):
                value = str(node.value)  # a date or bytes: no field takes one, so show what was written
        self._built[id(node)] = value
        return value

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str | int, Any]:
        value: dict[str | int, Any] = {}
        for key_node, child in node.value:
            key = self._construct(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if isinstance(key, bool) or not isinstance(key, str | int):
                raise self._error(key_node, location, f"expected a name as key, found {quote(key_node.value)}")
            if key in value:
                raise self._error(key_node, (*location, key), "expected each key once, found it twice")
            value[key] = self.plain(child, (*location, key))
        return value

    def _error(self, node: yaml.Node, location: Location, problem: str) -> InputError:
        return InputError(self._file, node.start_mark.line + 1, field_name(location), problem)


def _found(problem: str | None) -> str:
    """A problem of the YAML parser behind "expected YAML, "; some of its texts begin with "found" and others do not."""
    words = problem or "something else"
    return words if words.startswith("found ") else f"found text that is none: {words}"


def _child(node: yaml.Node | None, part: str | int) -> tuple[int, yaml.Node] | None:
    """Line and node of one step down from ``node``; ``None`` when there is no such field."""
    if isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                return key.start_mark.line + 1, child
    elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        child = node.value[part]
        return child.start_mark.line + 1, child
    return None
