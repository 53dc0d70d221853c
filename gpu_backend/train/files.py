"""The folder of a training, and files that are written whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from scenarios.errors import InputError, reason_of

CORPUS, TOKENS, TARGET, DRAFTER = "corpus", "tokens", "target", "drafter"


def write_whole(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` by way of a file beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    os.replace(part, path)


def write_json(path: Path, values: Any) -> None:
    """Write ``values`` as indented JSON."""
    write_whole(path, (json.dumps(values, indent=2) + "\n").encode())


def read_bytes(path: Path, stage: str) -> bytes:
    """The content of ``path``, which ``stage`` writes; ``InputError`` if it did not run."""
    try:
        return path.read_bytes()
    except OSError as error:
        problem = f"expected what `kvtwin train {stage}` writes: {reason_of(error)}"
        raise InputError(str(path), 0, "", problem) from error


def read_json(path: Path, stage: str) -> Any:
    """As :func:`read_bytes`, parsed."""
    try:
        return json.loads(read_bytes(path, stage))
    except ValueError as error:
        raise InputError(str(path), 0, "", "is not JSON") from error
