"""Folders and files that appear whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scenarios.errors import InputError

MARK = "kvtwin.json"  # names the kind and version of a folder that kvtwin wrote, so that only those are ever replaced


def stamp(folder: Path, kind: str) -> None:
    """Mark ``folder`` as one that kvtwin wrote; ``kind`` is what it holds."""
    files = sorted(path.name for path in folder.iterdir())
    (folder / MARK).write_text(json.dumps({"kind": kind, "files": files}, indent=2) + "\n")


def check_target(target: Path) -> None:
    """Refuse a target that would destroy something that kvtwin did not write; call it before any work."""
    if target.is_dir():
        if any(target.iterdir()) and not (target / MARK).is_file():
            raise InputError(
                str(target), 0, "", "expected a new or an empty folder, found files that kvtwin did not write"
            )
    elif target.exists() or target.is_symlink():
        raise InputError(str(target), 0, "", "expected a folder to write to, found a file")


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary sibling of ``target`` to fill; it takes the target's name only if the block succeeds.

    Raises :class:`InputError` where the target may not be replaced or its parent cannot be written.
    """
    check_target(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise InputError(str(target), 0, "", f"cannot write here: {error.strerror}") from error
    try:
        staging.chmod(0o755)
        yield staging
        _swap(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _swap(staging: Path, target: Path) -> None:
    """Give ``staging`` the name of ``target``; an older folder of that name is moved aside first, then removed."""
    if not target.exists():
        os.replace(staging, target)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        os.replace(target, aside / "old")
        os.replace(staging, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
