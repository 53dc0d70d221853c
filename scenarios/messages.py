"""From the errors of pydantic to one line in the words of this project."""

from __future__ import annotations

import types
import typing
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from scenarios.errors import InputError, field_name, quote
from scenarios.yamlfile import Document, Location

_EXPECTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "too_short": "at least one entry",
    "union_tag_not_found": "a mapping with its kind in 'op'",
}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
    "string_too_long": ("text of at most", "max_length"),
}


def input_error(error: ValidationError, document: Document, model: type[BaseModel]) -> InputError:
    """The first problem of ``error`` in the order of the file."""
    items = error.errors(include_url=False)
    surplus = [item["loc"][:-1] for item in items if item["type"] == "extra_forbidden"]
    # A misspelt field is missing under its right name as well: only the former is worth telling.
    told = [item for item in items if item["type"] != "missing" or item["loc"][:-1] not in surplus]
    return min((_problem(item, document, model) for item in told), key=lambda problem: problem.line)


def _problem(item: Any, document: Document, model: type[BaseModel]) -> InputError:
    location: Location = tuple(item["loc"])
    shown = document.known(location)
    line = document.line(location)
    kind, value, context = item["type"], item["input"], item.get("ctx", {})
    if kind == "missing":
        return InputError(document.file, line, field_name((*shown, location[-1])), "expected a value, found none")
    if kind == "extra_forbidden":
        name = str(location[-1])
        near = get_close_matches(name, sorted(fields_at(model, location[:-1])), n=1, cutoff=0.6)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        problem = f"expected a known field{hint}, found unknown {name!r}"
        return InputError(document.file, line, field_name(shown), problem)
    return InputError(document.file, line, field_name(shown), _text(kind, value, context, item["msg"]))


def _text(kind: str, value: object, context: dict[str, Any], message: str) -> str:
    if kind == "scenario":
        return context["problem"]
    if kind in ("literal_error", "union_tag_invalid"):
        known = str(context.get("expected", context.get("expected_tags", "")))
        found = context.get("tag", value)
        names = [name.strip(" '") for name in known.replace(" or ", ",").split(",")]
        near = get_close_matches(str(found), names, n=1, cutoff=0.5)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        return f"expected one of {', '.join(names)}{hint}, found {quote(found)}"
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"expected {words} {context[key]}, found {quote(value)}"
    return f"expected {_EXPECTED.get(kind, f'valid input ({message})')}, found {quote(value)}"


def fields_at(annotation: Any, location: Location) -> set[str]:
    """Names of the fields that the mapping at ``location`` may have, below the type ``annotation``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        labels = {field.alias or name: field.annotation for name, field in annotation.model_fields.items()}
        if not location:
            return set(labels)
        if location[0] in labels:
            return fields_at(labels[str(location[0])], location[1:])
        return fields_at(annotation, location[1:])  # a part that names the branch of a union
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return fields_at(arguments[0], location)
    if origin in (typing.Union, types.UnionType):
        return set().union(*(fields_at(argument, location) for argument in arguments))
    if origin in (list, dict) and location:
        return fields_at(arguments[-1], location[1:])
    return set()
