"""The folder of a campaign: its ledger, its failures and a summary, from the first example on."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path

from reports import failures
from reports.folder import MARK, check_target
from scenarios.errors import InputError, reason_of
from sim.files import write_lines
from sim.findings import Failure

KIND, SUMMARY, LEDGER, FAILURES, UNFINISHED = "campaign", "campaign.json", "ledger.jsonl", "failures", ".unfinished"


class CampaignFolder:
    """``target``, new or with a campaign that goes on; nothing is written where it is ``None``.

    ``place`` is where the folder will lie in the end, for the commands that repeat a failure (``target`` by default).
    Raises :class:`InputError` where something else than a campaign lies there. Each failure is there whole or not at
    all, whenever the campaign ends.
    """

    def __init__(self, target: Path | None, place: Path | None = None) -> None:
        self.target = target
        self._place = place or target
        if target is None:
            return
        if _kind(target) == KIND and (target / FAILURES / UNFINISHED).is_dir():
            _tidy(target)
        check_target(target)
        if target.is_dir() and any(target.iterdir()) and _kind(target) != KIND:
            problem = "expected a new folder or that of a campaign, found other results of kvtwin"
            raise InputError(str(target), 0, "", problem)
        try:
            target.mkdir(parents=True, exist_ok=True)
            _mark(target, KIND, files=[SUMMARY, LEDGER], folders=[FAILURES])
        except OSError as error:
            raise InputError(str(target), 0, "", f"cannot write here: {reason_of(error)}") from error

    @property
    def ledger(self) -> Path | None:
        """The file of the ledger."""
        return None if self.target is None else self.target / LEDGER

    @property
    def summary(self) -> Path | None:
        """The file of the summary."""
        return None if self.target is None else self.target / SUMMARY

    def keep(self, failure: Failure, command: str) -> str:
        """Write the folder of a failure that ``command`` found; its name below the target, or nothing."""
        if self.target is None or self._place is None:
            return ""
        folder = self.target / FAILURES
        unfinished = folder / UNFINISHED
        unfinished.mkdir(parents=True, exist_ok=True)
        try:
            written = failures.write(unfinished, failure, command, self._place / FAILURES)
            final = folder / written.name
            names = {path.name for path in folder.iterdir() if path.is_dir() and path.name != UNFINISHED}
            _mark(folder, "group", files=[], folders=sorted(names | {final.name}))
            if final.exists():
                shutil.rmtree(final)
            os.replace(written, final)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return f"{FAILURES}/{final.name}"

    def drop(self, name: str) -> None:
        """Remove the folder of a failure, by the name that :meth:`keep` gave it."""
        if self.target is None or not name:
            return
        unfinished = self.target / FAILURES / UNFINISHED
        unfinished.mkdir(parents=True, exist_ok=True)
        gone = unfinished / Path(name).name
        try:
            os.replace(self.target / name, gone)  # at once, and what a kill leaves of it is cleared away
        except FileNotFoundError:
            pass  # somebody tidied up
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        folder = self.target / FAILURES
        names = sorted(path.name for path in folder.iterdir() if path.is_dir())
        _mark(folder, "group", files=[], folders=names)

    def summarise(self, text: str) -> None:
        """Write the summary."""
        if self.summary is not None:
            write_lines(self.summary, [text.removesuffix("\n")])


def _tidy(target: Path) -> None:
    """Remove a failure that was being written when the campaign was killed; it may be one that is still running."""
    try:
        with (target / LEDGER).open("ab") as ledger:
            try:
                fcntl.flock(ledger, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                problem = "expected a free folder, found a campaign that is running in it"
                raise InputError(str(target / LEDGER), 0, "", problem) from error
            shutil.rmtree(target / FAILURES / UNFINISHED)
    except OSError as error:
        raise InputError(str(target), 0, "", f"cannot write here: {reason_of(error)}") from error


def _kind(folder: Path) -> str:
    """What the manifest of ``folder`` says that it holds; nothing where there is none."""
    try:
        return str(json.loads((folder / MARK).read_text(encoding="utf-8"))["kind"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _mark(folder: Path, kind: str, *, files: list[str], folders: list[str]) -> None:
    """List what will lie in ``folder``, ahead of it: a kill in between leaves nothing that is on no list."""
    manifest = {"kind": kind, "files": files, "folders": folders}
    write_lines(folder / MARK, json.dumps(manifest, indent=2).splitlines())
