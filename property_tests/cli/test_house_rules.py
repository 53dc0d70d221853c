"""The rules of the house that no linter knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("model", "scenarios", "sim", "gpu_backend", "reports", "property_tests")
LINES_OF_A_FILE = 400
LINES_OF_A_FUNCTION = 60
MACHINE_PATH = re.compile(r"/(?:work|tmp|root|home)/\w")
LEFTOVER = re.compile(r"\b(?:TODO|FIXME|XXX|NotImplementedError)\b|pytest\.mark\.(?:skip|xfail)\b")


def sources() -> Iterator[Path]:
    """Every Python file of the project, this one aside (it spells what it looks for)."""
    yield ROOT / "kvtwin.py"
    for room in ROOMS:
        yield from (path for path in sorted((ROOT / room).rglob("*.py")) if path != Path(__file__).resolve())


def texts() -> Iterator[Path]:
    """Everything that is read by people or machines."""
    yield from sources()
    yield from (
        ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", "constraints.txt")
    )
    yield from sorted((ROOT / "scenarios").rglob("*.yaml"))


@cache
def trees() -> dict[str, ast.Module]:
    return {name(path): ast.parse(path.read_text()) for path in sources()}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_a_file_holds_one_idea() -> None:
    lengths = {name(path): len(path.read_text().splitlines()) for path in sources()}
    assert {path: lines for path, lines in lengths.items() if lines > LINES_OF_A_FILE} == {}


def test_a_function_fits_on_a_screen() -> None:
    long = {}
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LINES_OF_A_FUNCTION:
                    long[f"{path}:{node.name}"] = lines
    assert long == {}


def test_every_module_says_what_it_is_for() -> None:
    empty = {name(path) for path in sources() if not path.read_text().strip()}
    assert [path for path, tree in trees().items() if path not in empty and not ast.get_docstring(tree)] == []


@pytest.mark.parametrize("pattern", [MACHINE_PATH, LEFTOVER], ids=["machine path", "leftover"])
def test_no_text_names_a_machine_or_promises_later(pattern: re.Pattern[str]) -> None:
    found = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []
