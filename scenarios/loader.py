"""Reading a scenario file: YAML, schema, then the rules that no schema can say. Nothing runs before all of it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from scenarios.checks import check
from scenarios.errors import FieldError, InputError, quote, reason_of
from scenarios.messages import input_error
from scenarios.schema import Scenario
from scenarios.yamlfile import Document


def load_scenario(path: str | Path) -> Scenario:
    """The scenario in the file at ``path``; ``InputError`` (one line) for anything wrong in it.

    A trace file that it names is read with its workload, not here.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), 0, "", f"expected a scenario file, found: {reason_of(error)}") from error
    return parse_scenario(text, str(path), file.parent)


def parse_scenario(text: str, file: str, folder: Path) -> Scenario:
    """The scenario in ``text``; ``file`` is its name in messages, relative paths in it count from ``folder``."""
    document = Document(text, file)
    values: Any = document.values
    if values is None:
        raise InputError(file, 1, "", "expected a mapping with a geometry and a workload, found an empty file")
    if not isinstance(values, dict):
        raise InputError(file, 1, "", f"expected a mapping with a geometry and a workload, found {quote(values)}")
    try:
        scenario = Scenario.model_validate({"name": Path(file).stem, **values})
    except ValidationError as error:
        raise input_error(error, document, Scenario) from error
    scenario.at(document, folder)
    try:
        check(scenario)
    except FieldError as error:
        raise scenario.located(error) from error
    return scenario


def trace_scenario(
    path: str | Path,
    trace_format: str,
    *,
    geometry: str = "minimax-m3.1-flash-like",
    build: str = "unified",
    seed: int = 0,
    **trace: Any,
) -> Scenario:
    """A scenario that replays a trace file on a preset; ``trace`` takes ``block``, ``limit`` and ``time_scale``."""
    source = {"path": str(Path(path).resolve()), "format": trace_format, **trace}
    name = Path(path).name
    values = {
        "name": name.replace("..", ".").lstrip(".") or "trace",
        "summary": f"replay of {name}",
        "seed": seed,
        "geometry": geometry,
        "build": build,
        "workload": {"trace": source},
        "acceptance": {"length": 3.0},
    }
    document = Document("", str(path))
    try:
        scenario = Scenario.model_validate(values)
    except ValidationError as error:
        raise input_error(error, document, Scenario) from error
    scenario.at(None, Path())
    try:
        check(scenario)
    except FieldError as error:
        raise scenario.located(error) from error
    return scenario
