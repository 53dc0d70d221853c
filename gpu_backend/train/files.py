"""The folder of a training, and files that are written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from scenarios.errors import InputError, reason_of

CORPUS, TOKENS, TARGET, DRAFTER, WRITTEN = "corpus", "tokens", "target", "drafter", "written"
PROGRESS = "progress.json"  # of weights; written last, so that a folder with it is whole


def make_folder(folder: Path) -> None:
    """Make ``folder`` and those above it unless they are there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise InputError(str(folder), 0, "", f"expected a folder to write to: {reason_of(error)}") from error


def write_whole(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` by way of a file beside it."""
    make_folder(path.parent)
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    os.replace(part, path)


def write_json(path: Path, values: Any) -> None:
    """Write ``values`` as indented JSON."""
    write_whole(path, (json.dumps(values, indent=2) + "\n").encode())


def require_folder(path: Path) -> None:
    """``InputError`` if ``path`` can be no folder, since it or one above it is something else; before any work."""
    for above in (path, *path.parents):
        if above.exists():
            if not above.is_dir():
                raise InputError(str(above), 0, "", "expected a folder to write to, found a file")
            return


def beside(folder: Path) -> tuple[Path, Path]:
    """Where new weights are written before they take the place of ``folder``, and where its old ones go meanwhile."""
    return folder.with_name(f"{folder.name}.part"), folder.with_name(f"{folder.name}.old")


def recover(folder: Path) -> None:
    """End what a run that was killed between the two renames of :func:`replace` began, or take it back."""
    part, old = beside(folder)
    for found in (part, old):
        if not folder.exists() and (found / PROGRESS).exists():
            found.rename(folder)
    _drop(part)
    if folder.exists():
        _drop(old)


def replace(folder: Path) -> None:
    """Put the new weights beside ``folder`` in its place. Whenever this is killed, :func:`recover` finds weights."""
    part, old = beside(folder)
    if folder.exists():
        folder.rename(old)
    part.rename(folder)
    _drop(old)


def _drop(folder: Path) -> None:
    (folder / PROGRESS).unlink(missing_ok=True)  # first: what is left of it is no longer whole
    shutil.rmtree(folder, ignore_errors=True)


def read_bytes(path: Path, stage: str) -> bytes:
    """The content of ``path``, which ``stage`` writes; ``InputError`` if it did not run."""
    try:
        return path.read_bytes()
    except OSError as error:
        problem = f"expected what `kvtwin train {stage}` writes: {reason_of(error)}"
        raise InputError(str(path), 0, "", problem) from error


def read_prompts(path: Path) -> list[dict[str, Any]]:
    """Prompts in ``path``, where the tokenizer's stage left them; ``InputError`` unless each has ids."""
    told = read_json(path, "tokenizer")
    if not isinstance(told, list) or not all(isinstance(one, dict) and _are_ids(one.get("ids")) for one in told):
        raise InputError(str(path), 0, "", "expected a list of prompts with ids")
    return told


def _are_ids(told: object) -> bool:
    return isinstance(told, list) and all(type(one) is int for one in told)


def read_json(path: Path, stage: str) -> Any:
    """As :func:`read_bytes`, parsed."""
    content = read_bytes(path, stage)  # outside, since its InputError is a ValueError as well
    try:
        return json.loads(content)
    except ValueError as error:
        raise InputError(str(path), 0, "", "is not JSON") from error
