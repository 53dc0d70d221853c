"""Field types and the base model of the scenario file: strict types, no unknown fields, values that cannot change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from scenarios.errors import quote


class Part(BaseModel):
    """Base of every mapping in a scenario file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


Count = Annotated[int, Field(ge=1, le=1 << 40)]
Many = Annotated[int, Field(ge=1, le=1_000_000)]
Depth = Annotated[int, Field(ge=0, le=254)]
Size = Annotated[int, Field(ge=0, le=1 << 40)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Positive = Annotated[float, Field(gt=0)]
Bandwidth = Annotated[float, Field(ge=1e-6, le=1e6)]  # GiB/s: the transfer of a page ends, and takes time
Loss = Annotated[float, Field(ge=0, le=0.9)]  # what is sent again must arrive at some time
Share = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]
Stream = Annotated[int, Field(ge=0, lt=1 << 64)]
TokenId = Annotated[int, Field(ge=0, lt=1 << 32)]
Name = Annotated[str, Field(min_length=1, max_length=120)]
BuildName = Annotated[str, Field(min_length=1, max_length=400)]  # may name rules of the user's own


def _one_component(value: str) -> str:
    # Folders of results are named after scenarios, so a name must stay below the folder that the user gave.
    if value.startswith(".") or ".." in value or not set(value).isdisjoint("/\\") or not value.isprintable():
        raise unusable("a name without slashes, '..', a leading dot and control characters", value)
    return value


ScenarioName = Annotated[Name, AfterValidator(_one_component)]

UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def byte_count(value: Any) -> Any:
    """Bytes from a number or from text such as ``82.89 GiB``; anything else is left to the field's own check."""
    if not isinstance(value, str):
        return value
    number = value.strip().rstrip("BKMGTi").strip()
    unit = value.strip()[len(number) :].strip()
    try:
        if unit in UNITS:
            return int(float(number) * UNITS[unit])
    except (ValueError, OverflowError):
        pass
    raise unusable(f"bytes as a number or with a unit ({', '.join(list(UNITS)[1:])})", value)


Bytes = Annotated[int, Field(ge=0), BeforeValidator(byte_count, json_schema_input_type=int | str)]


def shorthand(key: str, *types: type) -> Callable[[Any], Any]:
    """A before-validator: a bare value of one of ``types`` stands for a mapping with the single key ``key``."""

    def expand(value: Any) -> Any:
        is_short = isinstance(value, types) and not (isinstance(value, bool) and bool not in types)
        return {key: value} if is_short else value

    return expand


def refuse(problem: str) -> PydanticCustomError:
    """The error that a validator raises with a text of its own: ``expected ..., found ...``."""
    # The context keeps braces in a value from being read as a template.
    return PydanticCustomError("scenario", "{problem}", {"problem": problem})


def unusable(expected: str, found: object) -> PydanticCustomError:
    """:func:`refuse` with the value that was found."""
    return refuse(f"expected {expected}, found {quote(found)}")


def one_of(model: Part, names: tuple[str, ...]) -> str:
    """The one field of ``names`` that is given; refused if none or several are."""
    given = [name for name in names if getattr(model, name) is not None]
    if len(given) != 1:
        found = ", ".join(label(model, name) for name in given) or "none"
        raise refuse(f"expected exactly one of {', '.join(label(model, name) for name in names)}, found {found}")
    return given[0]


def only_with(model: Part, name: str, needed: str, given: bool) -> None:
    """Refuse the field ``name`` where it is given (not its default) although ``needed`` is not."""
    if name in model.model_fields_set and not given:
        raise refuse(f"expected {label(model, name)} only beside {needed}, found it without")


def label(model: Part, name: str) -> str:
    """Name of a field as it stands in the file."""
    return type(model).model_fields[name].alias or name
