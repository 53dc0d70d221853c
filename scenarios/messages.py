"""From the errors of pydantic to one line in the words of this project."""

from __future__ import annotations

import re
import types
import typing
from difflib import get_close_matches
from typing import Any, Literal

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
}
_FLOAT = re.compile(r"([-+]?[0-9]+)(\.[0-9]*)?[eE]([-+]?)([0-9]+)")
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
        return InputError(document.file, line, field_name(shown), _surplus(model, location))
    return InputError(document.file, line, field_name(shown), _text(kind, value, context, item["msg"]))


def _surplus(model: type[BaseModel], location: Location) -> str:
    """What is wrong with the unknown field at ``location``, which may be a field of another branch of a union."""
    name, owners = str(location[-1]), models_at(model, location[:-1])
    tags = {tag for owner in owners if (tag := tag_of(owner)) is not None and tag in location[-2:-1]}
    if tags:
        others = [other for other in models_at(model, location[:-2]) if name in _labels(other)]
        if others:
            having = ", ".join(sorted(tag_of(other) or "" for other in others))
            return f"expected a field of {tags.pop()}, found {name!r}, which belongs to {having}"
    near = get_close_matches(name, sorted(set().union(*map(_labels, owners))), n=1, cutoff=0.6)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"expected a known field{hint}, found unknown {name!r}"


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
    if kind == "union_tag_not_found":
        return f"expected a mapping with its kind in {context['discriminator']}, found {quote(value)}"
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        bound = context[key]
        return f"expected {words} {f'{bound:g}' if isinstance(bound, float) else bound}, found {quote(value)}"
    hint = _float_hint(value) if kind == "float_type" else ""
    return f"expected {_EXPECTED.get(kind, f'valid input ({message})')}{hint}, found {quote(value)}"


def _float_hint(value: object) -> str:
    """How to write a number that YAML 1.1 takes for text, as it has no point or no sign in its exponent."""
    parts = _FLOAT.fullmatch(value) if isinstance(value, str) else None
    if parts is None:
        return ""
    whole, fraction, sign, exponent = parts.groups()
    return f" (write {whole}{fraction or '.0'}e{sign or '+'}{exponent})"


def models_at(annotation: Any, location: Location) -> list[type[BaseModel]]:
    """What the mapping at ``location`` may be, below the type ``annotation``: several for the branches of a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if not location:
            return [annotation]
        labels = _labels(annotation)
        if location[0] in labels:
            return models_at(labels[str(location[0])], location[1:])
        # A part that names the branch of a union: another one's fields are of no use.
        own = tag_of(annotation) in (None, location[0])
        return models_at(annotation, location[1:]) if own else []
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return models_at(arguments[0], location)
    if origin in (typing.Union, types.UnionType):
        return [model for argument in arguments for model in models_at(argument, location)]
    if origin in (list, dict) and location:
        return models_at(arguments[-1], location[1:])
    return []


def tag_of(model: type[BaseModel]) -> str | None:
    """The one value of the field that tells ``model`` from the other branches of its union, or ``None``."""
    for field in model.model_fields.values():
        if typing.get_origin(field.annotation) is Literal and len(typing.get_args(field.annotation)) == 1:
            return typing.get_args(field.annotation)[0]
    return None


def _labels(model: type[BaseModel]) -> dict[str, Any]:
    """Types of the fields of ``model``, by their names in the file."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}
