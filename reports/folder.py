"""Folders of results: they appear whole or not at all, and replace nothing that kvtwin did not write."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from scenarios.errors import InputError, reason_of

MARK = "kvtwin.json"  # lists what kvtwin wrote into a folder, so that nothing else is ever replaced
_FEW = 60  # levels of folders that are looked through


def stamp(folder: Path, kind: str) -> None:
    """Mark ``folder`` as one that kvtwin wrote; ``kind`` is what it holds."""
    entries = sorted(path for path in folder.iterdir() if path.name != MARK)
    manifest: dict[str, Any] = {"kind": kind, "files": [path.name for path in entries if not path.is_dir()]}
    if folders := [path.name for path in entries if path.is_dir()]:
        manifest["folders"] = folders
    (folder / MARK).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def check_target(target: Path) -> None:
    """Refuse a target that would destroy something that kvtwin did not write, and a new one that cannot be made.

    Call it before any work.
    """
    if target.is_symlink():
        raise InputError(str(target), 0, "", "expected a folder to write to, found a symbolic link")
    try:
        if target.is_dir():
            foreign = _foreign(target)
            if foreign is not None:
                problem = f"expected a new folder, an empty one or results of kvtwin, found {foreign} beside them"
                raise InputError(str(target), 0, "", problem)
        elif target.exists():
            raise InputError(str(target), 0, "", "expected a folder to write to, found a file")
        else:
            _try(target)
    except OSError as error:
        raise InputError(str(target), 0, "", f"cannot write here: {reason_of(error)}") from error


def _try(target: Path) -> None:
    """Make a folder where the results will be prepared, and take it away; OSError where none can be made."""
    above = next(path for path in target.absolute().parents if path.exists())
    Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=above)).rmdir()


def check_apart(target: Path, sources: Iterable[Path]) -> None:
    """Refuse a target that is what the command reads, or that holds it: writing there would replace its own input."""
    place = target.resolve()
    for source in sources:
        read = source.resolve()
        if place == read or place in read.parents:
            raise InputError(str(target), 0, "", f"expected a folder to write to other than what is read, {source}")


def _foreign(folder: Path, depth: int = 0) -> str | None:
    """The first entry below ``folder`` that is on no manifest, or is not of the sort that the manifest says."""
    entries = sorted(folder.iterdir())
    files, folders = _manifest(folder)
    for path in entries:
        if path.is_symlink() or depth > _FEW:
            return path.name
        if path.is_dir():
            inner = _foreign(path, depth + 1) if path.name in folders else ""
            if inner is not None:
                return f"{path.name}/{inner}"
        elif path.name not in files:
            return path.name
    return None


def _manifest(folder: Path) -> tuple[set[str], set[str]]:
    """Names of the files and of the folders that kvtwin wrote into ``folder``; none where no manifest says so."""
    try:
        manifest = json.loads((folder / MARK).read_text(encoding="utf-8"))
        files, folders = manifest["files"], manifest.get("folders", [])
        return {MARK, *map(str, files)}, set(map(str, folders))
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return set(), set()


class Output:
    """What a command leaves at ``target``: one folder of results, or one for each of several names below it.

    A context: results are written to a temporary sibling, which takes the target's name at its end and only if nothing
    went wrong. With ``target`` ``None`` nothing is written. Raises :class:`InputError` where the target may not be
    replaced, holds one of the ``sources`` that the command reads, or its parent cannot be written.
    """

    def __init__(self, target: Path | None, several: bool, sources: Iterable[Path] = ()) -> None:
        self._target = target
        self._sources = tuple(sources)
        self._several = several
        self._staging: Path | None = None

    def __enter__(self) -> Output:
        if self._target is not None:
            check_apart(self._target, self._sources)
            check_target(self._target)
        return self

    def folder(self, name: str) -> Path:
        """An empty folder to fill with the results of ``name``."""
        if self._staging is None:
            assert self._target is not None
            self._staging = _sibling(self._target)
        if not self._several:
            return self._staging
        folder = self._staging / name
        folder.mkdir()
        return folder

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._staging is None or self._target is None:
            return
        try:
            if error is None:
                if self._several:
                    stamp(self._staging, "group")
                check_target(self._target)
                _swap(self._staging, self._target)
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)
        if isinstance(error, OSError) and error.filename is None:
            raise OSError(error.errno, error.strerror, str(self._target)) from error


def _sibling(target: Path) -> Path:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        staging.chmod(0o755)
    except OSError as error:
        raise InputError(str(target), 0, "", f"cannot write here: {reason_of(error)}") from error
    return staging


def _swap(staging: Path, target: Path) -> None:
    """Give ``staging`` the name of ``target``; an older folder of that name is moved aside first, then removed."""
    if not target.exists():
        os.replace(staging, target)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        os.replace(target, aside / "old")
        try:
            os.replace(staging, target)
        except OSError:
            os.replace(aside / "old", target)
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
