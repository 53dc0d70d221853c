"""Which code a campaign ran on: a digest of the sources that decide what an example does."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import fields
from functools import cache, lru_cache
from pathlib import Path

from model.builds import Build
from sim.rulespec import find

ROOT = Path(__file__).resolve().parents[2]
DECIDING = ("model", "scenarios", "sim", "property_tests/fuzz")


@lru_cache(maxsize=1)
def of_code() -> str:
    """Digest of the installed sources of the model and of the fuzzer, tests aside; 16 hex digits."""
    digest = hashlib.sha256()
    for room in DECIDING:
        for path in sorted((ROOT / room).rglob("*.py")):
            if not path.name.startswith(("test_", "conftest")):
                digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def of(builds: Iterable[Build]) -> str:
    """:func:`of_code` with the files of those rules of ``builds`` that are not kvtwin's own."""
    files = {path for build in builds for path in _rule_files(build) if not path.is_relative_to(ROOT / "model")}
    if not files:
        return of_code()
    digest = hashlib.sha256(of_code().encode())
    for content in sorted(path.read_bytes() for path in files):
        digest.update(content + b"\0")
    return digest.hexdigest()[:16]


@cache
def of_texts(builds: tuple[str, ...]) -> str:
    """:func:`of` for builds by the texts that name them, as this process came to know them.

    Raises InputError for one that is not to be had here.
    """
    return of([find(text) for text in builds])


def _rule_files(build: Build) -> set[Path]:
    """The source files that the classes of the rules of ``build`` stand in."""
    rules = [getattr(build.rules, field.name) for field in fields(build.rules)]
    modules = [sys.modules.get(type(rule).__module__) for rule in rules]
    names = [getattr(module, "__file__", None) for module in modules]
    return {Path(name).resolve() for name in names if name and name.endswith(".py")}
